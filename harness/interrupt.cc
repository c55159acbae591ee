// SPDX-License-Identifier: Apache-2.0
#include "harness/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace smla {
namespace {
volatile std::sig_atomic_t g_signal = 0;
}

void watch_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int signal) {
    g_signal = signal;
    constexpr char text[] = "\nsmla: stopping after the run at hand; once more stops at once\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) return;
  };
  sigemptyset(&action.sa_mask);
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);  // the second one kills
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

int interrupted() { return g_signal; }

}  // namespace smla
