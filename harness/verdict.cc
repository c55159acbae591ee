// SPDX-License-Identifier: Apache-2.0
#include "harness/verdict.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include "harness/figure.h"
#include "reports/outcome.h"

namespace smla {
namespace {

std::string place(const std::vector<int64_t>& index) {
  constexpr const char* names[] = {"b", "s_q", "h", "d"};
  std::string text;
  for (size_t i = 0; i < index.size(); ++i) text += fmt::format("{}{}={}", i == 0 ? "" : " ", names[i], index[i]);
  return text;
}

std::string join(std::string all, const std::string& more) { return all.empty() ? more : more.empty() ? all : all + "; " + more; }

std::string out_fault(const RowFigures& f, const Limits& limits) {
  std::string why;
  if (f.out.n_bad_rows > 0) {
    why = fmt::format("{} of {} rows wrong (z max {}, row rms {} of its limit, {} non-finite): at {} got {:.6g}, want {:.6g}", f.out.n_bad_rows,
                      f.rows, figure_beside(f.out.z_max, limits.z_max), figure_beside(f.row_rms_share_max, 1), f.out.n_nonfinite_mismatch,
                      place(f.out.worst_index), f.out.worst_got, f.out.worst_ref);
    if (!f.diagnosis.empty()) why += "; " + f.diagnosis;
  }
  if (!f.pooled.ok(limits))
    why = join(why, fmt::format("pooled rms of z {} over {:.2f}{}", fixed_beside(f.pooled.value(), limits.pooled_rms, 3), limits.pooled_rms,
                                f.out.n_bad_rows == 0 ? ": a bias that no row shows alone" : ""));
  return why;
}

std::string lse_fault(const RowFigures& f, const Limits& limits) {
  if (f.lse.n_bad_rows == 0) return "";
  return fmt::format("lse of {} of {} rows wrong ({} of its limit): at {} got {:.9g}, want {:.9g} (base e)", f.lse.n_bad_rows, f.rows,
                     figure_beside(f.lse_ratio_max, limits.lse_ratio), place(f.lse.worst_index), f.lse.worst_got, f.lse.worst_ref);
}

}  // namespace

std::string wrong_rows(const RowFigures& f) {
  return fmt::format("out of {} and lse of {} of {} rows wrong", f.out.n_bad_rows, f.lse.n_bad_rows, f.rows);
}

Decision decide(const Evidence& e, const Limits& limits) {
  if (e.ended != Status::pass) return {e.ended, e.ended, e.ended_detail, e.ended_detail};
  if (!e.mistrusted.empty()) return {Status::mistrusted, Status::mistrusted, e.mistrusted, e.mistrusted};
  Decision d;
  const auto because = [](const std::string& fault, const std::string& cause) { return fault.empty() ? "" : join(fault, cause); };
  d.out_detail = because(out_fault(e.figures, limits), e.causes.out);
  d.lse_detail = e.has_lse ? because(lse_fault(e.figures, limits), e.causes.lse) : "";
  std::string out_too, lse_too;  // checks that say nothing of this tensor that is not said already
  for (const CheckOutcome& check : e.checks) {
    if (!check.ran) continue;
    const std::string name(checks()[check.check].name);
    const auto add = [&](std::string& detail, std::string& too, bool is_said) {
      if (is_said) too += (too.empty() ? "also under " : ", ") + name;
      else detail = join(detail, name + ": " + check.detail);
    };
    if (!check.out_ok) add(d.out_detail, out_too, check.detail.empty());
    if (!check.lse_ok && e.has_lse) add(d.lse_detail, lse_too, check.detail.empty() || (!check.out_ok && !d.lse_detail.empty()));
  }
  if (!out_too.empty()) d.out_detail = join(d.out_detail, out_too);
  if (!lse_too.empty()) d.lse_detail = join(d.lse_detail, lse_too);
  if (!d.out_detail.empty()) d.out = Status::fail;
  if (!d.lse_detail.empty()) d.lse = Status::fail;
  // Right within bounds in which a wrong answer is right too: this case can say nothing for this kernel, only against it.
  if (d.status() == Status::pass && !e.too_loose.empty()) return {Status::unsupported, Status::unsupported, e.too_loose, e.too_loose};
  return d;
}

bool is_red(Status status, const std::string& kernel, const std::string& expect, std::string* why) {
  const auto unmet = [&](const std::string& text) {
    if (why != nullptr) *why = text;
    return true;
  };
  if (expect == "mistrusted")
    return status == Status::mistrusted || status == Status::unsupported || status == Status::skipped ? false : unmet("expected mistrusted");
  constexpr std::string_view kUnsupported = "unsupported:";
  if (expect.rfind(kUnsupported, 0) == 0 && fnmatch(expect.c_str() + kUnsupported.size(), kernel.c_str(), 0) == 0)
    return status == Status::unsupported || status == Status::skipped ? false : unmet("expected unsupported");
  return is_red(status);
}

}  // namespace smla
