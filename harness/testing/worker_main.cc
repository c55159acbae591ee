// SPDX-License-Identifier: Apache-2.0
// A program that is a worker and nothing else: what tests of Worker start.
#include <cstdio>
#include <exception>

#include "harness/worker.h"

int main(int argc, char** argv) {
  try {
    return smla::worker_main(argc - 1, argv + 1);  // argv[1] is the verb, as in smla
  } catch (const std::exception& error) { return std::fprintf(stderr, "%s\n", error.what()), 3; }
}
