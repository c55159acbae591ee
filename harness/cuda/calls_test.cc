// SPDX-License-Identifier: Apache-2.0
// The questions that need streams: a healthy kernel passes each, and the defect that each was made for does not.
#include "harness/worker.h"
#include "smla_catch.h"

using namespace smla;

namespace {

RunReply ask(const std::string& kernel, Calls calls, const char* line = "decode b=4 s_q=2 h_q=8 s_kv=600 topk=300 sink=finite topk_length=1") {
  WorkerOptions options;
  options.gpu = 0;
  Worker worker(options);
  RunRequest request;
  request.c = parse_line(line);
  request.kernel = kernel;
  request.calls = calls;
  request.launches = calls == Calls::streams ? 20 : 1;
  return worker.run(request);
}
/// Nothing wrong is told, and every answer has the bits of the small healthy kernel's: those of all mutants that answer rightly.
bool clean(const RunReply& reply, const RunReply& right) {
  for (uint64_t hash : reply.out_hash)
    if (hash != right.out_hash.at(0)) return false;
  for (uint64_t hash : reply.lse_hash)
    if (hash != right.lse_hash.at(0)) return false;
  return reply.status == Status::pass && reply.misuse.empty() && reply.guards_ok && reply.inputs_ok && reply.written_ok && !reply.out_hash.empty();
}

}  // namespace

TEST_CASE("healthy kernels pass every way of being called, with the same bits in each") {
  const char* kernel = GENERATE("naive", "sparse_mma", "virtual_block_table", "small_split");
  const RunReply plain = ask(kernel, Calls::plain);
  REQUIRE(clean(plain, plain));
  for (Calls calls : {Calls::back_to_back, Calls::gate, Calls::graph, Calls::streams}) {
    const RunReply reply = ask(kernel, calls);
    INFO(kernel << ", way " << static_cast<int>(calls) << ": " << reply.detail << reply.misuse << reply.guards_detail);
    CHECK(clean(reply, plain));
  }
}

TEST_CASE("kernels of the CPU and of the GPU take turns in one process: each finds its inputs in its own memory") {
  WorkerOptions options;
  options.gpu = 0;
  Worker worker(options);
  for (const char* kernel : {"cpu_split", "naive", "cpu_naive", "sparse_mma", "naive"}) {
    RunRequest request;
    request.c = parse_line("decode b=4 s_q=2 h_q=8 s_kv=600 topk=300");
    request.kernel = kernel;
    const RunReply reply = worker.run(request);
    INFO(kernel << ": " << reply.detail);
    CHECK(reply.status == Status::pass);
  }
}

TEST_CASE("what each way was made for") {
  const RunReply right = ask("small_split", Calls::plain);
  CHECK(clean(ask("mut_gpu_private_stream", Calls::plain), right));
  CHECK_THAT(ask("mut_gpu_private_stream", Calls::gate).misuse, ContainsSubstring("written before"));
  CHECK_THAT(ask("mut_gpu_default_stream", Calls::gate).misuse, ContainsSubstring("written before"));
  CHECK_THAT(ask("mut_gpu_synchronizes", Calls::gate).misuse, ContainsSubstring("waited"));
  CHECK_THAT(ask("mut_gpu_synchronizes", Calls::streams).misuse, ContainsSubstring("waited"));
  CHECK_THAT(ask("mut_gpu_private_stream", Calls::graph).misuse, ContainsSubstring("launches nothing on the stream"));
  for (const auto& [kernel, calls] : {std::pair("mut_gpu_argument_frozen_in_graph", Calls::graph),
                                      {"mut_gpu_counter_not_reset", Calls::back_to_back},
                                      {"mut_gpu_shared_scratch", Calls::streams}}) {
    INFO(kernel);
    CHECK(clean(ask(kernel, Calls::plain), right));
    CHECK_FALSE(clean(ask(kernel, calls), right));
  }
}

TEST_CASE("a launch that cannot be captured is told with the error of CUDA, and the process goes on with the next request") {
  WorkerOptions options;
  options.gpu = 0;
  Worker worker(options);
  RunRequest request;
  request.c = parse_line("decode b=4 s_q=2 h_q=8 s_kv=600 topk=300 sink=finite topk_length=1");
  const RunReply right = ask("small_split", Calls::plain);
  for (const auto& [kernel, error] : {std::pair("mut_gpu_allocates", "capture: allocating: cudaErrorStreamCaptureUnsupported"),
                                      {"mut_gpu_synchronizes", "capture: it cannot be captured in a graph: cudaErrorStreamCaptureInvalidated"}}) {
    request.kernel = kernel;
    request.calls = Calls::graph;
    const RunReply captured = worker.run(request);
    INFO(kernel << ": " << captured.detail << captured.misuse << captured.guards_detail);
    CHECK(captured.status == Status::pass);
    CHECK_THAT(captured.misuse, ContainsSubstring(error));
    CHECK((captured.guards_ok && captured.inputs_ok && captured.out_hash.empty()));
    request.calls = Calls::plain;
    CHECK(clean(worker.run(request), right));
  }
  request.kernel = "small_split";
  request.calls = Calls::graph;
  CHECK(clean(worker.run(request), right));
  CHECK(worker.restarts() == 0);
}

TEST_CASE("a fault that ends the context is told, and the next request runs in another process") {
  WorkerOptions options;
  options.gpu = 0;
  Worker worker(options);
  RunRequest request;
  request.c = parse_line("decode b=9 s_q=1 h_q=8 s_kv=700 topk=192 topk_length=1");
  request.kernel = "mut_gpu_sticky_fault";
  const RunReply reply = worker.run(request);
  CHECK(reply.status == Status::crash);
  CHECK_THAT(reply.detail, ContainsSubstring("cudaError"));
  request.kernel = "naive";
  CHECK(worker.run(request).status == Status::pass);
  CHECK(worker.restarts() == 1);
}
