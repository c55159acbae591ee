// SPDX-License-Identifier: Apache-2.0
// junit.xml, as CI systems read it: one suite a kernel and job, one test case a row, a property for each number, the reproducer in the failure text.
#pragma once
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reports/record.h"

namespace smla {

struct JunitCase {
  enum class Ending { passed, failure, error, skipped };
  std::string suite, classname, name;
  double time_s = 0;
  Ending ending = Ending::passed;
  std::string type, message, text;  // of a failure, error or skip: status, one line, all lines
  std::vector<std::pair<std::string, std::string>> properties;
};

/// The document. Suites in the order of first appearance; counts are summed from the cases.
std::string junit_xml(std::span<const JunitCase> cases);

/// `unexpected`: pair_key -> "expected ...": a failure whatever the status.
/// fail, mistrusted, impossible_fast: failure. crash, timeout, oom, invalid: error. unsupported, skipped: skipped, with the reason.
std::vector<JunitCase> junit_cases(std::span<const AccuracyRow> rows, const std::map<std::string, std::string>& unexpected = {});
std::vector<JunitCase> junit_cases(std::span<const ThroughputRow> rows);

}  // namespace smla
