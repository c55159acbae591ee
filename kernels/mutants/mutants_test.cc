// SPDX-License-Identifier: Apache-2.0
// No mutant is a no-op: each one answers some small case otherwise than the kernel that it was made from. Whether the harness notices is its
// self-test's business.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "kernels/host_call.h"
#include "kernels/mutants/mutant.h"
#include "kernels/registry.h"
#include "smla_catch.h"

namespace smla {
namespace {

struct Line {
  const char* line;
  const char* variant = "base";
};
const Line kCases[] = {
    {"decode b=3 s_q=2 h_q=3 s_kv=300 topk=130 pattern=interleaved_invalid num_splits=2 sink=finite"},
    {"decode b=3 s_q=2 h_q=3 s_kv=300 topk=190 topk_length=1 pattern=stale_tail kv_format=fp8_656 page_size=32", "strided"},
    {"decode b=5 s_q=1 h_q=2 s_kv=200 topk=160 pattern=all_invalid num_splits=3"},
    {"decode b=5 s_q=1 h_q=2 s_kv=200 topk=160 pattern=all_invalid sink=mixed"},
    {"decode b=4 s_q=2 h_q=2 s_kv=400 topk=256 topk_length=1 pattern=padded lens=mixed num_splits=4"},
    {"decode b=2 s_q=1 h_q=3 s_kv=500 topk=256 pattern=leading_invalid sink=finite"},
    {"decode b=2 s_q=1 h_q=3 s_kv=300 topk=192 pattern=out_of_range"},
    {"decode b=2 s_q=2 h_q=2 s_kv=300 topk=140 pattern=duplicates q_dtype=fp16 kv_format=fp16"},
    {"decode b=4 s_q=3 h_q=2 s_kv=150 topk=160 page_size=16 pattern=dense lens=mixed"},
    {"decode b=4 s_q=3 h_q=2 s_kv=150 topk=160 page_size=16 pattern=dense lens=mixed table=query"},
    {"decode b=2 s_q=1 h_q=33 s_kv=150 topk=64 kv_format=fp8_656 page_size=1"},
    {"decode b=1 s_q=1 h_q=32 s_kv=150 topk=64 page_size=53 page_stride_rows=64"},
    {"decode b=1 s_q=2 h_q=80 s_kv=100 topk=64 d_qk=512"},
    {"decode b=1 s_q=1 h_q=4 s_kv=320 topk=320 pattern=contiguous values=rising_max"},
    {"decode b=2 s_q=2 h_q=4 s_kv=200 topk=128 values=large_logits num_splits=2"},
    {"decode b=2 s_q=2 h_q=4 s_kv=200 topk=128 values=large_logits pattern=padded sink=finite"},
    {"decode b=2 s_q=1 h_q=2 s_kv=200 topk=64 values=tiny"},
    {"decode b=1 s_q=1 h_q=2 s_kv=1000 topk=700 num_splits=4 sm_scale=0.0721687824"},
    {"prefill b=1 s_q=21 h_q=1 s_kv=100 topk=70 pattern=scattered"},
    {"decode b=2 s_q=1 h_q=2 s_kv=3000 topk=200 page_size=4 num_splits=2 kv_format=fp8_656 q_dtype=fp16 rope_dtype=fp16"},
    {"decode b=1 s_q=1 h_q=1 s_kv=3000 topk=300 pattern=far"},
    {"decode b=1 s_q=1 h_q=1 s_kv=3000 topk=300 pattern=far kv_format=fp8_656"},
    {"decode b=65600 s_q=1 h_q=1 s_kv=1 topk=1 page_size=1"},
    {"decode b=2 s_q=1 h_q=1 s_kv=66000 topk=64 page_size=1"},
};

/// Runs `question` in a process of its own, which may crash or hang: its exit status, or one of these.
constexpr int kHung = 253, kThrew = 254, kDied = 255;
int asked_apart(const std::function<int()>& question, int timeout_s) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    for (const int signal_number : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) signal(signal_number, SIG_DFL);
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, STDOUT_FILENO), dup2(null, STDERR_FILENO);
    alarm(static_cast<unsigned>(timeout_s));
    try {
      _exit(question());
    } catch (const std::exception&) { _exit(kThrew); }
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status) == SIGALRM ? kHung : kDied;
}

/// The cases with the bases' answers. Twice each: some defects need a second call.
struct Bench {
  struct Prepared {
    std::unique_ptr<HostCall> call;
    std::map<std::string, HostResult> answers;
  };
  std::vector<Prepared> cases;
  Bench() {
    for (const Line& line : kCases) {
      Prepared prepared{std::make_unique<HostCall>(parse_line(line.line), parse_variant(line.variant)), {}};
      std::set<std::string> bases;
      for (const mutants::Mutant& mutant : mutants::table()) bases.insert(mutants::base_name(mutant.base));
      for (const std::string& base : bases)
        if (const smla_kernel& kernel = find_kernel(base); prepared.call->declines(kernel).empty())
          prepared.answers[base] = prepared.call->run(kernel);
      cases.push_back(std::move(prepared));
    }
  }
  /// 0 = everywhere the base's answer; i + 1 = case i shows a difference.
  int first_difference(const smla_kernel& kernel, const char* base) const {
    for (size_t i = 0; i < cases.size(); ++i) {
      const auto answer = cases[i].answers.find(base);
      if (answer == cases[i].answers.end()) continue;
      for (int call = 0; call < 2; ++call)
        if (!(cases[i].call->run(kernel) == answer->second) || cases[i].call->touched_other_memory()) return static_cast<int>(i) + 1;
    }
    return 0;
  }
};

const Bench& bench() {
  static const Bench all;
  return all;
}

// Public reports of wrong MLA, sparse attention and paged decode kernels: indices, poison, empty work, LSE and splits, scale, offsets, pages, FP8,
// shapes, determinism and precision, producers.
const char* const kReports[] = {
    "radixark/miles#2079",
    "vllm-project/vllm#48364",
    "vllm-project/vllm#45324",
    "vllm-project/vllm#36616",
    "tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#2",
    "vllm-project/vllm#48611",
    "vllm-project/vllm#54541",
    "sgl-project/sglang#39431",
    "tenstorrent/tt-metal#45079",
    "sgl-project/sgl-kernel-xpu#200",
    "flashinfer-ai/flashinfer#941",
    "Dao-AILab/flash-attention#2374",
    "Dao-AILab/flash-attention#1745",
    "vllm-project/vllm#936",
    "ROCm/aiter#4245",
    "vllm-project/vllm#57156",
    "sgl-project/sglang#19902",
    "huggingface/transformers#46765",
    "deepbeepmeep/Wan2GP#1628",
    "sgl-project/sglang#16678",
    "ROCm/aiter#4667",
    "openvinotoolkit/openvino#33814",
    "ROCm/aiter#4711",
    "vllm-project/vllm#57094",
    "flashinfer-ai/flashinfer#2883",
    "vllm-project/vllm#35969",
    "sgl-project/sglang#1779",
    "flashinfer-ai/flashinfer#4401",
    "ikawrakow/ik_llama.cpp#2344",
    "pytorch/pytorch#134650",
    "vllm-project/vllm#51970",
    "sgl-project/sglang#30378",
    "pegainfer-project/pegainfer#21",
    "deepseek-ai/FlashMLA@ebf3064",
    "sgl-project/sgl-kernel-xpu#235",
    "xLLM-AI/xllm#1939",
    "sgl-project/sglang#33064",
    "vllm-project/vllm#47079",
    "sgl-project/sglang#40903",
    "flashinfer-ai/flashinfer#5119",
    "vllm-project/vllm#54568",
    "deepseek-ai/FlashMLA:tests/ref.py",
    "vllm-project/flash-attention#195",
    "vllm-project/vllm#54639",
    "NVIDIA/Megatron-LM#1429",
    "onnxruntime/mobius#548",
    "ollama/ollama#13893",
    "AI-Hypercomputer/maxtext#3138",
    "NVIDIA/TensorRT-LLM#12089",
    "lightseekorg/tokenspeed#501",
    "flashinfer-ai/flashinfer#3130",
    "ROCm/aiter#4452",
    "vllm-project/vllm#46222",
    "deepseek-ai/FlashMLA#182",
    "flashinfer-ai/flashinfer#4534",
    "deepseek-ai/FlashMLA#173",
    "NVIDIA/cudnn-frontend#311",
    "LMCache/LMCache#2567",
    "ROCm/aiter#2996",
    "ROCm/aiter#3095",
    "sgl-project/sglang-jax#1074",
    "flashinfer-ai/flashinfer#3395",
    "NVIDIA/cutlass#2221",
    "sgl-project/sgl-kernel-xpu#335",
    "vllm-project/vllm#53906",
    "vllm-project/vllm-xpu-kernels#165",
    "NVIDIA/TensorRT-LLM#4943",
    "tenstorrent/tt-metal#54742",
    "vllm-project/vllm#46074",
    "ROCm/FlyDSL#979",
    "deepseek-ai/FlashMLA#184",
    "vllm-project/vllm#54563",
    "NVIDIA/TensorRT-LLM#16916",
    "vllm-project/vllm#42956",
    "sgl-project/sglang#28455",
    "vllm-project/vllm#56314",
    "vllm-project/vllm#51011",
    "flashinfer-ai/flashinfer#2689",
    "vllm-project/vllm#40763",
    "flashinfer-ai/flashinfer#2607",
    "vllm-project/vllm#53963",
    "ROCm/aiter#2821",
    "flashinfer-ai/flashinfer#5135",
    "tile-ai/tilelang#1252",
    "deepseek-ai/FlashMLA#39",
    "vllm-project/vllm#49886",
    "deepseek-ai/FlashMLA#212",
    "ROCm/aiter#4364",
    "radixark/miles#3155",
    "sgl-project/sglang#35795",
    "flashinfer-ai/flashinfer#3505",
    "flashinfer-ai/flashinfer#949",
    "sgl-project/sglang#2465",
    "deepseek-ai/FlashMLA@c759027",
    "sgl-project/sglang#30645",
    "sgl-project/sglang#35257",
    "NVIDIA/cudnn-frontend#445",
    "vllm-project/vllm#51848",
    "vllm-project/vllm#45227",
    "vllm-project/vllm#40018",
    "hw-native-sys/pypto-lib#158",
};

TEST_CASE("every report is carried by a mutant, or excused") {
  std::map<std::string, int> cited;
  for (const mutants::Mutant& mutant : mutants::table()) {
    std::istringstream words(mutant.reports);
    for (std::string report; words >> report;) ++cited[report];
  }
  const std::set<std::string> known(std::begin(kReports), std::end(kReports));
  for (const mutants::Excused& excused : mutants::excused()) {
    INFO(excused.report);
    CHECK(known.count(excused.report) == 1);
    CHECK(cited.count(excused.report) == 0);
    cited[excused.report] = 1;
  }
  for (const std::string& report : known) {
    INFO(report);
    CHECK(cited.count(report) == 1);
  }
}

TEST_CASE("every mutant differs from its base somewhere, and declares what its base declares") {
  bench();
  for (const mutants::Mutant& mutant : mutants::table()) {
    if (*mutant.out_of_reach) continue;
    const smla_kernel& kernel = find_kernel(mutant.name);
    const char* base = mutants::base_name(mutant.base);
    const bool hangs = std::string(mutant.name) == "mut_hangs_on_invalid_tile";
    const int seen = asked_apart([&] { return bench().first_difference(kernel, base); }, hangs ? 2 : 100);
    INFO(mutant.name);
    if (std::getenv("SMLA_SHOW"))
      std::printf("%-36s %s\n", mutant.name, seen == 0 ? "-" : seen > kHung - 1 ? "crash or hang" : kCases[seen - 1].line);
    REQUIRE(seen != kThrew);
    CHECK((seen == kHung) == hangs);
    CHECK(seen != 0);
  }
}

TEST_CASE("the unmutated steps, looked up at run time, answer as the base does") {
  for (const char* base : {"cpu_naive", "cpu_split", "cpu_dense", "cpu_virtual_block_table"})
    CHECK(bench().first_difference(find_kernel(base), base) == 0);
}

TEST_CASE("fake kernels do what they are called") {
  const char* line = "decode b=2 s_q=1 h_q=4 s_kv=200 topk=96";
  HostCall call(parse_line(line));
  Variant other;
  other.second = true;
  HostCall second(parse_line(line), other);
  const HostResult right = call.run(find_kernel("cpu_split")), right_second = second.run(find_kernel("cpu_split"));
  REQUIRE_FALSE(right == right_second);

  for (const char* name : {"fake_zeros", "fake_mean_v", "fake_noise", "fake_noop"}) {
    INFO(name);
    const HostResult got = call.run(find_kernel(name));
    CHECK(got.out != right.out);
    CHECK((std::fabs(got.lse[0] - right.lse[0]) < 1e-4f) == (std::string(name) == "fake_noise"));
    CHECK_FALSE(call.touched_other_memory());
  }
  CHECK(call.run(find_kernel("fake_previous_output")) == right);
  CHECK(second.run(find_kernel("fake_previous_output")) == right);
  CHECK(call.run(find_kernel("fake_previous_output")) == right_second);
  for (int i = 0; i < 5; ++i) CHECK((call.run(find_kernel("fake_right_for_three_calls")) == right) == (i < 3));

  const smla_kernel& cached = find_kernel("fake_cached_by_pointer");
  CHECK(call.run(cached) == right);
  auto* q = const_cast<uint16_t*>(static_cast<const uint16_t*>(call.buffers().q));  // the same buffers with other contents
  const uint16_t q0 = std::exchange(q[0], static_cast<uint16_t>(q[0] ^ 0x4000));
  CHECK(call.run(cached) == right);
  CHECK_FALSE(call.run(find_kernel("cpu_split")) == right);
  q[0] = q0;

  for (const char* name : {"fake_writes_inputs", "fake_writes_indices", "fake_writes_behind_output"}) {
    INFO(name);
    HostCall fresh(parse_line(line));
    CHECK(fresh.run(find_kernel(name)) == right);
    CHECK(fresh.touched_other_memory());
  }
  const auto runs = [&](const char* name) { return asked_apart([&] { return call.run(find_kernel(name)).out.empty() ? 2 : 1; }, 1); };
  CHECK(runs("cpu_split") == 1);
  CHECK(runs("fake_aborts") == kDied);
  CHECK(runs("fake_segfaults") == kDied);
  CHECK(runs("fake_hangs") == kHung);
  CHECK(runs("fake_exits") == 0);
  CHECK_THROWS(call.run(find_kernel("fake_throws")));
  CHECK_THROWS_WITH(call.run(find_kernel("fake_fails")), "returned 3");
}

}  // namespace
}  // namespace smla
