// SPDX-License-Identifier: Apache-2.0
// Released memory that waits for the next block of its size: the system takes longer for a fresh one than most kernels run.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>

namespace smla {

class ReleasedMemory {
 public:
  using GiveBack = void (*)(std::byte* at, int64_t bytes);
  /// Holds at most so many bytes; what is beyond goes back to the system, the oldest first.
  ReleasedMemory(int64_t most_bytes, GiveBack give_back) : most_bytes_(most_bytes), give_back_(give_back) {}
  ReleasedMemory(const ReleasedMemory&) = delete;
  ~ReleasedMemory() { give_back_all(); }

  void keep(std::byte* at, int64_t bytes) {
    if (bytes > most_bytes_) return give_back_(at, bytes);
    held_.push_back({at, bytes});
    bytes_ += bytes;
    give_back_beyond(most_bytes_);
  }
  /// The piece of exactly that size that was released last; null where there is none.
  std::byte* take(int64_t bytes) {
    for (auto piece = held_.rbegin(); piece != held_.rend(); ++piece) {
      if (piece->bytes != bytes) continue;
      std::byte* at = piece->at;
      bytes_ -= bytes;
      held_.erase(std::next(piece).base());
      return at;
    }
    return nullptr;
  }
  void give_back_all() { give_back_beyond(0); }
  /// The oldest first, until no more than so much is held.
  void give_back_beyond(int64_t bytes) {
    while (bytes_ > bytes) give_back_oldest();
  }
  int64_t bytes() const { return bytes_; }

 private:
  struct Piece {
    std::byte* at;
    int64_t bytes;
  };
  void give_back_oldest() {
    const Piece oldest = held_.front();
    held_.pop_front();
    bytes_ -= oldest.bytes;
    give_back_(oldest.at, oldest.bytes);
  }
  int64_t most_bytes_, bytes_ = 0;
  GiveBack give_back_;
  std::deque<Piece> held_;  // oldest first
};

}  // namespace smla
