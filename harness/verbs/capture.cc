// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "harness/capture/captured_call.h"
#include "harness/cards.h"
#include "harness/exit_status.h"
#include "harness/progress.h"
#include "harness/session.h"
#include "harness/verbs/verb_flags.h"
#include "harness/verbs/verbs.h"
#include "harness/worker/host_device.h"
#include "reports/text.h"

namespace smla {

int verb_capture(int argc, char** argv) {
  CaptureFlags flags;
  Options options;
  if (!parse_flags(flags, options, argc, argv)) return kAllGreen;
  Case c;
  try {
    c = parse_line(flags.line);
  } catch (const UsageError& error) { throw UsageError(fmt::format("'{}': {}", flags.line, error.what())); }
  refuse_unwritable(flags.file);
  cards_must_be_here(options);
  if (const std::string why = too_large(c); !why.empty()) throw CannotStart(fmt::format("'{}': {}", flags.line, why));
  const Inputs in = make_inputs(c);
  const Session session(options);
  std::string declined;
  for (const Candidate& candidate : session.chosen()) {
    const RunReply answer = run_all_rows(candidate, in, options);
    if (answer.status == Status::unsupported || answer.status == Status::skipped) {
      declined += fmt::format("{}{}: {}", declined.empty() ? "" : "; ", candidate.info.name, answer.detail);
      continue;
    }
    if (answer.status != Status::pass) {
      tell(fmt::format("capture: {} {}: {}", candidate.info.name, name_of(answer.status), answer.detail));
      return kCorrectnessRed;
    }
    write_captured_call(flags.file, in, candidate.info.name, answer);
    fmt::print("{}: {} by {}\n", flags.file, to_line(c), candidate.info.name);
    return kAllGreen;
  }
  throw NothingMatched("no kernel answers this case: " + declined);
}

}  // namespace smla
