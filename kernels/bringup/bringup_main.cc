// SPDX-License-Identifier: Apache-2.0
// smla_cuda_bringup: the CUDA kernels without the harness, for a machine that has a GPU and a driver and nothing else.
//   check [kernel=NAME] [CASE LINE ...]     correctness, repeatability, dirty workspace, graph replay, two streams
//   instances                               dynamic shared memory of each instance, as CSV; needs no GPU
//   time  [sparse|dense|prefill] [KEY=VALUE ...]   cold-L2 and graph times beside the floors measured in the same run
#include <cstring>

#include "cases/words.h"
#include "kernels/bringup/device.h"
#include "kernels/common/kernels.h"

int main(int argc, char** argv) {
  try {
    if (argc >= 2 && !strcmp(argv[1], "check")) return smla::bringup::check_main(argc - 2, argv + 2);
    if (argc >= 2 && !strcmp(argv[1], "time")) return smla::bringup::time_main(argc - 2, argv + 2);
    if (argc >= 2 && !strcmp(argv[1], "instances")) {
      for (const auto& [instance, bytes] : smla::cuda::dynamic_shared()) printf("%s,%d\n", instance, bytes);
      return 0;
    }
  } catch (const smla::UsageError& error) {
    fprintf(stderr, "%s\n", error.what());
    return 3;
  }
  fprintf(stderr, "usage: smla_cuda_bringup check [kernel=NAME] [CASE LINE ...] | time [sparse|dense|prefill] [KEY=VALUE ...]\n");
  return 3;
}
