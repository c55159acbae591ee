// SPDX-License-Identifier: Apache-2.0
// What `smla` can be asked to do: one file a verb, one row each in the table of verbs.cc.
#pragma once
#include <span>

namespace smla {

struct Verb {
  const char* name;
  const char* what;                    // one line for `smla --help`
  int (*main)(int argc, char** argv);  // argv[0] is the verb; returns the exit status; throws UsageError, NothingMatched, CannotStart
};
std::span<const Verb> verbs();

int verb_list(int argc, char** argv);
int verb_check(int argc, char** argv);
int verb_bench(int argc, char** argv);
int verb_run(int argc, char** argv);
int verb_compare(int argc, char** argv);
int verb_capture(int argc, char** argv);
int verb_replay(int argc, char** argv);
int verb_gate(int argc, char** argv);
int verb_selftest(int argc, char** argv);
int verb_device(int argc, char** argv);

/// The program: finds the verb, turns every exception into one line on stderr and an exit status.
int smla_main(int argc, char** argv);

}  // namespace smla
