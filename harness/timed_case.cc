// SPDX-License-Identifier: Apache-2.0
#include "harness/timed_case.h"

#include <map>
#include <string>

namespace smla {
namespace {

/// Kernels of two libraries live in two processes; they take turns in so many blocks of rounds.
constexpr int kBlocks = 4;

/// The samples of a later block behind those before it.
void append(LaneReply& all, LaneReply block) {
  const int64_t first = all.round.empty() ? 0 : all.round.back() + 1;
  for (int64_t& round : block.round) round += first;
  const auto before = [](auto& list, const auto& earlier) { list.insert(list.begin(), earlier.begin(), earlier.end()); };
  before(block.time_us, all.time_us);
  before(block.round, all.round);
  before(block.sm_clock_mhz, all.sm_clock_mhz);
  before(block.throttle, all.throttle);
  before(block.out_hash, all.out_hash);
  before(block.lse_hash, all.lse_hash);
  block.temperature_c_max = std::max(block.temperature_c_max, all.temperature_c_max);
  all = std::move(block);
}

}  // namespace

void TimedCase::run(TimeRequest request) {
  std::vector<Worker*> workers;
  for (const Entry& e : lanes_)
    if (std::find(workers.begin(), workers.end(), e.worker) == workers.end()) workers.push_back(e.worker);
  const int blocks = workers.size() > 1 ? kBlocks : 1;
  request.min_samples = (request.min_samples + blocks - 1) / blocks;
  request.max_time_s /= blocks;
  for (int block = 0; block < blocks; ++block)
    for (Worker* worker : workers) {
      std::vector<Entry*> mine;
      for (Entry& e : lanes_)
        if (e.worker == worker && e.reply.status == Status::pass) mine.push_back(&e);
      if (mine.empty() || !ask(request, mine)) continue;
      std::map<std::string, std::vector<Entry*>> by_kernel;
      for (Entry* e : mine) by_kernel[e->lane.kernel].push_back(e);
      for (auto& [kernel, some] : by_kernel)
        if (const std::optional<TimeReply> died = ask(request, some))
          for (Entry* e : some) e->reply.status = died->status, e->reply.detail = died->detail;
    }
}

std::optional<TimeReply> TimedCase::ask(TimeRequest request, const std::vector<Entry*>& some) {
  for (const Entry* e : some) request.lanes.push_back(e->lane);
  request.deadline_s += static_cast<double>(some.size()) * 4 * request.max_time_s;
  TimeReply reply = some.front()->worker->time(request);
  if (reply.status != Status::pass || reply.lanes.size() != some.size()) return reply;
  l2_bytes_ = reply.l2_bytes;
  for (size_t i = 0; i < some.size(); ++i) append(some[i]->reply, std::move(reply.lanes[i]));
  return {};
}

}  // namespace smla
