// SPDX-License-Identifier: Apache-2.0
// The parts of the self-test that can be tested without hunting: who noticed, what is asked first, and that the rules of others are those rules.
#include "harness/selftest/selftest.h"

#include <limits>
#include <set>

#include "smla_catch.h"

using namespace smla;

namespace {

PairResult pair_with(const Evidence& evidence) {
  PairResult pair;
  pair.evidence = evidence;
  pair.decision = decide(evidence);
  return pair;
}
CheckOutcome outcome(const char* name, bool ok) { return {parse_checks(name).front(), true, ok, ok, ""}; }

/// One row of a two-key case, its output off by `error` in every element.
bool accepted(const char* rule, double error, double lse_error = 0, double ref = 1) {
  const Inputs in = make_inputs(parse_line("decode b=1 s_q=1 h_q=1 s_kv=2 topk=2 values=exact_mean"));
  const std::vector<double> expected(512, ref);
  const std::vector<float> out(512, static_cast<float>(ref + error));
  RowStats stats;
  stats.lse_err = lse_error;
  PublishedRules rules;
  Magnitudes magnitudes;
  rules.add({in, 0, 0, out, 10.0, expected}, stats, magnitudes);
  for (size_t i = 0; i < published_rules().size(); ++i)
    if (published_rules()[i].name == std::string_view(rule)) return rules.accepts(i);
  throw std::logic_error("no such rule");
}

}  // namespace

TEST_CASE("who noticed: tensors, checks that ran and failed, or how it ended") {
  Evidence e;
  CHECK(noticed_by(pair_with(e)).empty());
  e.checks = {outcome("guards", true), outcome("strided", false), outcome("batch", false)};
  CHECK(noticed_by(pair_with(e)) == std::vector<std::string>{"strided", "batch"});
  e.figures.lse.n_bad_rows = 1;
  e.figures.lse.worst_index = {0, 0, 0};
  CHECK(noticed_by(pair_with(e)) == std::vector<std::string>{"lse", "strided", "batch"});
  e.checks[1].ran = e.checks[2].ran = false;
  CHECK(noticed_by(pair_with(e)) == std::vector<std::string>{"lse"});
  e.mistrusted = "accepts zeros";  // convicts nobody
  CHECK(noticed_by(pair_with(e)).empty());
  e.ended = Status::timeout;
  CHECK(noticed_by(pair_with(e)) == std::vector<std::string>{"timeout"});
}

TEST_CASE("what is asked first names planted kernels and cases of suite quick") {
  std::set<std::string> lines, names;
  for (const SuiteCase& suite_case : load_suite("quick").cases) lines.insert(to_line(suite_case.c));
  for (const Planted& p : planted_kernels({})) names.insert(p.name);
  for (const auto& [kernel, line] : known_killers()) {
    INFO(kernel << " " << line);
    CHECK(lines.count(line) == 1);
#ifndef SMLA_HAVE_CUDA
    if (kernel.rfind("mut_gpu_", 0) == 0) continue;
#endif
    CHECK(names.count(kernel) == 1);
  }
}

TEST_CASE("planted kernels are chosen by glob; fakes are asked alone") {
  for (const Planted& p : planted_kernels({"fake_*"})) CHECK(p.alone);
  CHECK(planted_kernels({"mut_lse_in_base_2"}).size() == 1);
  CHECK_THROWS(planted_kernels({"cpu_split"}));
}

TEST_CASE("the rules of other projects, at their borders") {
  CHECK(accepted("flashmla_out", 0));
  CHECK(accepted("flashmla_out", 0.0031));
  CHECK_FALSE(accepted("flashmla_out", 0.0033));  // as far as an element goes it might; 1 - cosine is 5.4e-6
  CHECK_FALSE(accepted("flashmla", 0, 2e-3));
  CHECK(accepted("flashmla_out", 0, 2e-3));
  CHECK(accepted("flashmla", 0, 1e-3));
  CHECK(accepted("close_5e-2", 0.099));
  CHECK_FALSE(accepted("close_5e-2", 0.101));
  CHECK(accepted("close_5e-2", -0.04, 0, 0.04));  // zeros for an answer this small
  CHECK(accepted("close_1e-2", 0.0199));
  CHECK_FALSE(accepted("close_1e-2", 0.0201));
  CHECK(accepted("nmse_5e-4", 0.022));
  CHECK_FALSE(accepted("nmse_5e-4", 0.023));
  CHECK_FALSE(accepted("cosine_1e-3", -1));
  CHECK(accepted("benchdnn", 8 * 3 * 0.0078125 - 1e-3));
  for (const PublishedRule& rule : published_rules()) CHECK_FALSE(accepted(rule.name, std::numeric_limits<double>::quiet_NaN()));
}
