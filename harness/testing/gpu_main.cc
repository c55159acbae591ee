// SPDX-License-Identifier: Apache-2.0
// main of a test that needs a GPU: exit status 77 (skipped), with the reason, where there is none. It serves as the worker of its own tests, too.
#define CATCH_CONFIG_RUNNER
#include <cstdio>
#include <string_view>

#include "harness/cuda/gpu_probe.h"
#include "harness/worker.h"
#include "smla_catch.h"

int main(int argc, char** argv) {
  try {
    if (argc > 1 && std::string_view(argv[1]) == "worker") return smla::worker_main(argc - 1, argv + 1);
  } catch (const std::exception& error) { return std::fprintf(stderr, "%s\n", error.what()), 3; }
  std::string why;
  if (!smla::probe_gpu(0, why)) {
    std::printf("skipped: %s\n", why.c_str());
    return 77;
  }
  return Catch::Session().run(argc, argv);
}
