// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and SIGTERM end a run at the next finished (case, kernel): rows are complete, the count is told, the exit status is 128 + signal.
// A second Ctrl-C ends it at once.
#pragma once

namespace smla {

void watch_interrupts();
/// The signal that asked to stop, or 0.
int interrupted();

}  // namespace smla
