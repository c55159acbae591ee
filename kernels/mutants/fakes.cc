// SPDX-License-Identifier: Apache-2.0
// Kernels that are none: they cheat, or misbehave towards the program that calls them. None may ever be green.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "kernels/cpu/naive.h"
#include "kernels/mutants/mutant.h"
#include "kernels/problem.h"

namespace smla::mutants {
namespace {

using namespace cpu;

const smla_kernel& honest() { return cpu::kernels()[1]; }  // cpu_split, whose contract and answers are borrowed

using Launch = int (*)(const smla_problem& p, const smla_buffers& io, void* workspace);
struct Fake {
  const char* name;
  const char* description;
  Launch launch;
};

int right_answer(const smla_problem& p, const smla_buffers& io, void* workspace) { return honest().launch(&honest(), &p, &io, workspace, nullptr); }

/// Outputs as bytes, gaps included.
struct Outputs {
  std::vector<uint8_t> out, lse;
};
Outputs taken(const smla_problem& p, const smla_buffers& io) {
  const TensorBytes size = tensor_bytes(p);
  const auto* out = static_cast<const uint8_t*>(io.out);
  const auto* lse = static_cast<const uint8_t*>(io.lse);
  return {{out, out + size.out}, {lse, lse + size.lse}};
}
void give(const Outputs& outputs, const smla_buffers& io) {
  std::memcpy(io.out, outputs.out.data(), outputs.out.size());
  std::memcpy(io.lse, outputs.lse.data(), outputs.lse.size());
}

int zeros(const smla_problem& p, const smla_buffers& io, void*) {
  const Steps& steps = Healthy();
  const Call c{p, io, Config()};
  const std::vector<float> zero(static_cast<size_t>(p.d_v));
  for (int64_t t = 0; t < steps.rows(c); ++t)
    for (int h = 0; h < p.h_q; ++h) steps.store(c, steps.row(c, t), h, zero.data(), 0);
  return 0;
}

/// The naive kernel with something else for an answer. Its workspace is its own.
template <class S>
int naive_as(const smla_problem& p, const smla_buffers& io) {
  const Config config = naive_config();
  const Call c{p, io, config};
  std::vector<uint8_t> workspace(static_cast<size_t>(NaiveBody::workspace_bytes(c)) + 64);
  const Steps& steps = S();
  NaiveBody::run(steps, c, workspace.data() + (64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64) % 64);
  return 0;
}
struct MeanOfValues final : Steps {
  float sm_scale(const Call&) const override { return 0; }
};
int mean_v(const smla_problem& p, const smla_buffers& io, void*) { return naive_as<MeanOfValues>(p, io); }

struct Noise final : Steps {  // as large as the answer, and with its lse
  void store(const Call& c, const Row& row, int h, const float* acc, float lse) const override {
    double squares = 0;
    for (int d = 0; d < c.p.d_v; ++d) squares += double{acc[d]} * acc[d];
    const auto amplitude = static_cast<float>(std::sqrt(3 * squares / c.p.d_v));
    std::vector<float> noise(static_cast<size_t>(c.p.d_v));
    uint64_t state = static_cast<uint64_t>(row.t) * 8191 + static_cast<uint64_t>(h) + 1;
    for (float& x : noise) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      x = amplitude * (static_cast<float>(state >> 40) * 0x1p-23f - 1);
    }
    Steps::store(c, row, h, noise.data(), lse);
  }
};
int noise(const smla_problem& p, const smla_buffers& io, void*) { return naive_as<Noise>(p, io); }

int noop(const smla_problem&, const smla_buffers&, void*) { return 0; }

int previous_output(const smla_problem& p, const smla_buffers& io, void* workspace) {
  static std::mutex mutex;
  static Outputs previous;
  const std::lock_guard lock(mutex);
  if (const int error = right_answer(p, io, workspace)) return error;
  const Outputs now = taken(p, io);
  if (previous.out.size() == now.out.size() && previous.lse.size() == now.lse.size()) give(previous, io);
  previous = now;
  return 0;
}

int right_for_three_calls(const smla_problem& p, const smla_buffers& io, void* workspace) {
  static std::atomic<int> calls{0};
  return calls.fetch_add(1) < 3 ? right_answer(p, io, workspace) : zeros(p, io, workspace);
}

int cached_by_pointer(const smla_problem& p, const smla_buffers& io, void* workspace) {
  static std::mutex mutex;
  static std::map<std::array<const void*, 4>, Outputs> cache;
  const std::lock_guard lock(mutex);
  const std::array<const void*, 4> key = {io.q, io.kv, io.indices, io.out};
  const auto found = cache.find(key);
  if (found != cache.end() && found->second.out.size() == taken(p, io).out.size()) return give(found->second, io), 0;
  const int error = right_answer(p, io, workspace);
  cache[key] = taken(p, io);
  return error;
}

int writes_inputs(const smla_problem& p, const smla_buffers& io, void* workspace) {
  const int error = right_answer(p, io, workspace);
  const_cast<uint16_t*>(static_cast<const uint16_t*>(io.q))[0] ^= 1;
  return error;
}

int writes_indices(const smla_problem& p, const smla_buffers& io, void* workspace) {  // sorts them in place, say
  const int error = right_answer(p, io, workspace);
  std::reverse(const_cast<int32_t*>(io.indices), const_cast<int32_t*>(io.indices) + p.topk);
  return error;
}

int writes_behind_output(const smla_problem& p, const smla_buffers& io, void* workspace) {
  const int error = right_answer(p, io, workspace);
  static_cast<uint8_t*>(io.out)[tensor_bytes(p).out] ^= 0x55;
  return error;
}

int aborts(const smla_problem&, const smla_buffers&, void*) { std::abort(); }
int segfaults(const smla_problem&, const smla_buffers&, void*) { return std::raise(SIGSEGV); }
int exits(const smla_problem&, const smla_buffers&, void*) { _exit(0); }
int throws(const smla_problem&, const smla_buffers&, void*) { throw std::runtime_error("an exception across the door"); }
int fails(const smla_problem&, const smla_buffers&, void*) { return 3; }
int hangs(const smla_problem&, const smla_buffers&, void*) {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}
int works_on_later(const smla_problem& p, const smla_buffers& io, void* workspace) {  // the CPU's private stream
  std::thread([p, io, workspace] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    right_answer(p, io, workspace);
  }).detach();
  return 0;
}

const Fake kFakes[] = {
    {"fake_zeros", "all zeros", zeros},
    {"fake_mean_v", "the mean of V", mean_v},
    {"fake_noise", "noise as large as the answer, with the right lse", noise},
    {"fake_noop", "does nothing", noop},
    {"fake_previous_output", "returns the answer of the call before", previous_output},
    {"fake_right_for_three_calls", "right for three calls, then zeros", right_for_three_calls},
    {"fake_cached_by_pointer", "answers again what it once answered for these pointers", cached_by_pointer},
    {"fake_writes_inputs", "right, and changes q", writes_inputs},
    {"fake_writes_indices", "right, and reverses the first row's indices", writes_indices},
    {"fake_writes_behind_output", "right, and changes the byte behind out", writes_behind_output},
    {"fake_aborts", "abort()", aborts},
    {"fake_segfaults", "SIGSEGV", segfaults},
    {"fake_exits", "leaves the process with status 0", exits},
    {"fake_throws", "throws across the door", throws},
    {"fake_fails", "returns an error", fails},
    {"fake_hangs", "never returns", hangs},
    {"fake_works_on_later", "returns at once, and writes the right answer 20 ms later", works_on_later},
};

int launch(const smla_kernel* self, const smla_problem* p, const smla_buffers* io, void* workspace, void*) {
  return static_cast<const Fake*>(self->user)->launch(*p, *io, workspace);
}

// What the honest kernel says of itself, in a fake's name: its functions read their own struct.
int contract(const smla_kernel*, const smla_problem* p, smla_contract* out) { return honest().contract(&honest(), p, out); }
int supports(const smla_kernel*, const smla_problem* p, char* reason, uint64_t reason_bytes) {
  return honest().supports(&honest(), p, reason, reason_bytes);
}
int64_t workspace_bytes(const smla_kernel*, const smla_problem* p) { return honest().workspace_bytes(&honest(), p); }

}  // namespace

std::span<const smla_kernel> fakes() {
  static const std::vector<smla_kernel> all = [] {
    std::vector<smla_kernel> kernels;
    for (const Fake& fake : kFakes)
      kernels.push_back(
          {sizeof(smla_kernel), SMLA_DEVICE_CPU, fake.name, fake.description, &fake, contract, supports, workspace_bytes, nullptr, launch});
    return kernels;
  }();
  return all;
}

}  // namespace smla::mutants
