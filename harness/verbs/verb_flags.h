// SPDX-License-Identifier: Apache-2.0
// What selftest, capture, replay, compare and gate are asked: the flags of each that no other verb has.
#pragma once
#include <cstdint>
#include <string>

#include "harness/options.h"
#include "reports/compare.h"
#include "reports/gate.h"

namespace smla {

/// smla selftest.
struct SelftestFlags {
  bool quick = false;     // stop at the first that notices a planted defect; no sweep of healthy kernels
  bool which = false;     // only tell, for each planted defect, the case that exposes it
  bool rules = false;     // only compare acceptance rules in use elsewhere with this one
  int jobs = 0;           // questions at a time; 0 = one a core
  int64_t pairs = 10000;  // (case, seed) of the sweep of healthy kernels
};
bool parse_flags(SelftestFlags& flags, Options& options, int argc, char** argv);

/// smla capture CASE FILE.
struct CaptureFlags {
  std::string line, file;
};
bool parse_flags(CaptureFlags& flags, Options& options, int argc, char** argv);

/// smla replay FILE.
struct ReplayFlags {
  std::string file, contract;  // contract: words that replace those of the file
  int64_t rows = 8;            // so many of the worst are named
  Accept accept = Accept::declared;
  int threads = 0;
};
bool parse_flags(ReplayFlags& flags, int argc, char** argv);

/// smla compare A B.
struct CompareFlags {
  std::string a, b;                // throughput.csv, the folder that holds it, or a kernel
  std::string in = Options().out;  // the report that two kernels are looked up in
  bool in_given = false;
  double margin = CompareOptions().margin;
  std::string csv, markdown;
};
bool parse_flags(CompareFlags& flags, int argc, char** argv);

/// smla gate --baseline DIR.
struct GateFlags {
  std::string baseline, out = Options().out, known_issues, markdown, junit;
  double max_loss = GateOptions().max_loss, noise_factor = GateOptions().noise_factor;
  bool accuracy_only = false, update_baseline = false;
};
bool parse_flags(GateFlags& flags, int argc, char** argv);

}  // namespace smla
