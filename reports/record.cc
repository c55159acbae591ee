// SPDX-License-Identifier: Apache-2.0
#include "reports/record.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "reports/text.h"

namespace smla {
namespace {

[[noreturn]] void bad_cell(const std::string& column, const std::string& cell, const char* expected) {
  throw UsageError(fmt::format("column {}: \"{}\" is not {}", column, clean_text(cell), expected));
}

template <class T>
T parse_number(const std::string& column, const std::string& cell, const char* expected) {
  T value{};
  const char* end = cell.data() + cell.size();
  const auto [stop, error] = std::from_chars(cell.data(), end, value);
  if (error != std::errc() || stop != end) bad_cell(column, cell, expected);
  return value;
}

// The cell of one value and the value of one cell, by the member's type.
std::string to_cell(int value) { return fmt::format("{}", value); }
std::string to_cell(const Text& value) { return clean_text(value); }
std::string to_cell(const Count& value) { return value ? fmt::format("{}", *value) : ""; }
std::string to_cell(const Measure& value) { return value && std::isfinite(*value) && *value >= 0 ? fmt::format("{:.9g}", *value) : ""; }
std::string to_cell(const Deviation& value) { return value && *value >= 0 ? fmt::format("{:.9g}", *value) : ""; }
std::string to_cell(const AnyDouble& any) { return any.value ? fmt::format("{:.9g}", *any.value) : ""; }
std::string to_cell(const Flag& value) { return value ? (*value ? "true" : "false") : ""; }
std::string to_cell(Tensor value) { return std::string(name_of(value)); }
std::string to_cell(Status value) { return std::string(name_of(value)); }
std::string to_cell(const std::optional<Verdict>& value) { return value ? std::string(name_of(*value)) : ""; }

void from_cell(const std::string& column, const std::string& cell, int& value) { value = parse_number<int>(column, cell, "an integer"); }
void from_cell(const std::string&, const std::string& cell, Text& value) { value = cell; }
void from_cell(const std::string& column, const std::string& cell, Count& value) {
  if (!cell.empty()) value = parse_number<int64_t>(column, cell, "an integer");
}
void from_cell(const std::string& column, const std::string& cell, Measure& value) {
  constexpr const char* kExpected = "a finite, non-negative number with a decimal point";
  if (cell.empty()) return;
  value = parse_number<double>(column, cell, kExpected);
  if (!std::isfinite(*value) || *value < 0) bad_cell(column, cell, kExpected);
}
void from_cell(const std::string& column, const std::string& cell, Deviation& value) {
  constexpr const char* kExpected = "a non-negative number with a decimal point, or inf";
  if (cell.empty()) return;
  value = parse_number<double>(column, cell, kExpected);
  if (!(*value >= 0)) bad_cell(column, cell, kExpected);
}
void from_cell(const std::string& column, const std::string& cell, AnyDouble& any) {
  if (!cell.empty()) any.value = parse_number<double>(column, cell, "a number with a decimal point");
}
void from_cell(const std::string& column, const std::string& cell, Flag& value) {
  if (cell.empty()) return;
  if (cell != "true" && cell != "false") bad_cell(column, cell, "true or false");
  value = cell == "true";
}
void from_cell(const std::string& column, const std::string& cell, Tensor& value) { value = parse_enum<Tensor>("column " + column, cell); }
void from_cell(const std::string& column, const std::string& cell, Status& value) { value = parse_enum<Status>("column " + column, cell); }
void from_cell(const std::string& column, const std::string& cell, std::optional<Verdict>& value) {
  if (!cell.empty()) value = parse_enum<Verdict>("column " + column, cell);
}

template <class Row, class Base, class T>
Field<Row> field(const char* column, T Base::*member) {
  return {{column},
          [member](const Row& row, std::vector<std::string>& cells) { cells.push_back(to_cell(row.*member)); },
          [member, name = std::string(column)](Row& row, std::span<const std::string> cells) { from_cell(name, cells[0], row.*member); }};
}

/// case_id, case and every key. Read back from the keys, which are always all there; id and line must be those of that case, so an edited cell is
/// noticed, and so is a default that has changed since the row was written.
template <class Row>
Field<Row> case_field() {
  std::vector<std::string> columns{"case_id", "case"};
  columns.insert(columns.end(), case_keys().begin(), case_keys().end());
  return {columns,
          [](const Row& row, std::vector<std::string>& cells) {
            cells.push_back(case_id(row.c));
            cells.push_back(to_line(row.c));
            for (const std::string& key : case_keys()) cells.push_back(case_value(row.c, key));
          },
          [](Row& row, std::span<const std::string> cells) {
            std::string line = cells[2];
            for (size_t i = 1; i < case_keys().size(); ++i) line += fmt::format(" {}={}", case_keys()[i], cells[2 + i]);
            row.c = parse_line(line);
            if (case_id(row.c) != cells[0]) bad_cell("case_id", cells[0], fmt::format("{}, the id of the case in this row", case_id(row.c)).c_str());
            if (to_line(row.c) != cells[1])
              bad_cell("case", cells[1], fmt::format("\"{}\", the line of the case in this row", to_line(row.c)).c_str());
          }};
}

#define F(member) field<Row>(#member, &Row::member)
template <class Row>
std::vector<Field<Row>> common_fields() {
  return {F(schema_version), F(run_id),   F(started_utc),    F(tool_version),    F(git_commit),   F(git_dirty),      F(arch),
          F(device_name),    F(gpu_uuid), F(sm_count),       F(power_limit_w),   F(ecc),          F(driver_version), F(cuda_version),
          F(host),           F(suite),    case_field<Row>(), F(valid_keys_mean), F(invalid_frac), F(kernel),         F(plugin_sha)};
}

template <class Row>
std::vector<Field<Row>> joined(std::vector<Field<Row>> fields, const std::vector<Field<Row>>& more) {
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

// Columns at schema version 1, 2, ... Append to a list, never change what stands.
constexpr size_t kAccuracyWidths[] = {82, 82};
constexpr size_t kThroughputWidths[] = {98, 101};
constexpr size_t kSampleWidths[] = {14, 14};

}  // namespace

template <>
const std::vector<Field<AccuracyRow>>& fields<AccuracyRow>() {
  using Row = AccuracyRow;
  static const auto all = joined<Row>(common_fields<Row>(), {F(tensor),          F(status),
                                                             F(detail),          F(oracle),
                                                             F(oracle_rows),     F(rows_unjudged),
                                                             F(declared),        F(checks_run),
                                                             F(n_elem),          F(n_bad),
                                                             F(n_bad_rows),      F(n_nonfinite_mismatch),
                                                             F(abs_err_max),     F(rel_err_max),
                                                             F(ulp_err_max),     F(cos_diff_worst_row),
                                                             F(z_max),           F(z_row_rms_max),
                                                             F(z_rms_pooled),    F(z_row_rms_reference),
                                                             F(lse_err_max),     F(worst_index),
                                                             F(worst_got),       F(worst_ref),
                                                             F(tightest_atol),   F(tightest_rtol),
                                                             F(needle_coverage), F(poison_ok),
                                                             F(guards_ok),       F(outputs_written_ok),
                                                             F(determinism_ok),  F(metamorphic_ok),
                                                             F(oracle_ms),       F(kernel_ms),
                                                             F(first_launch_ms), F(repro)});
  return all;
}

template <>
const std::vector<Field<ThroughputRow>>& fields<ThroughputRow>() {
  using Row = ThroughputRow;
  static const auto all = joined<Row>(common_fields<Row>(), {F(status),
                                                             F(detail),
                                                             F(timing),
                                                             F(cache),
                                                             F(cold_ratio),
                                                             F(l2_bytes),
                                                             F(samples),
                                                             F(discarded),
                                                             F(power_capped_frac),
                                                             F(stop_reason),
                                                             F(calls_per_sample),
                                                             F(time_us_min),
                                                             F(time_us_q1),
                                                             F(time_us_median),
                                                             F(time_us_q3),
                                                             F(time_us_p95),
                                                             F(time_us_ci95_lo),
                                                             F(time_us_ci95_hi),
                                                             F(time_rel_iqr),
                                                             F(prepare_us),
                                                             F(host_launch_us),
                                                             F(workspace_bytes),
                                                             F(flops),
                                                             F(bytes_unique),
                                                             F(bytes_gathered),
                                                             F(tflops),
                                                             F(gbps_unique),
                                                             F(gbps_gathered),
                                                             F(tokens_per_s),
                                                             F(roof_us),
                                                             F(roof_bound),
                                                             F(roof_frac),
                                                             F(gather_floor_us),
                                                             F(peak_source),
                                                             F(dense_kernel),
                                                             F(dense_time_us_median),
                                                             F(speedup_vs_dense),
                                                             F(dense_roof_us),
                                                             F(sm_clock_mhz_median),
                                                             F(mem_clock_mhz),
                                                             F(clocks_locked),
                                                             F(throttle_reasons),
                                                             F(outputs_verified),
                                                             F(verified_on_arch),
                                                             F(splits_used),
                                                             F(dense_topk_time_us_median),
                                                             F(baseline_time_us),
                                                             F(ratio_vs_baseline),
                                                             F(ratio_ci95_lo),
                                                             F(ratio_ci95_hi),
                                                             F(verdict),
                                                             F(repro),
                                                             F(power_w_median),
                                                             F(temperature_c_max),
                                                             F(launch_floor_us)});
  return all;
}

template <>
const std::vector<Field<SampleRow>>& fields<SampleRow>() {
  using Row = SampleRow;
  static const std::vector<Field<Row>> all{F(schema_version), F(run_id),       F(arch),         F(case_id),  F(kernel),
                                           F(timing),         F(cache),        F(round),        F(sample),   F(calls_per_sample),
                                           F(time_us),        F(sm_clock_mhz), F(power_capped), F(discarded)};
  return all;
}
#undef F

template <>
std::string_view file_name<AccuracyRow>() {
  return "accuracy.csv";
}
template <>
std::string_view file_name<ThroughputRow>() {
  return "throughput.csv";
}
template <>
std::string_view file_name<SampleRow>() {
  return "samples.csv";
}
template <>
std::vector<std::string> unit_columns<AccuracyRow>() {
  return {"case_id", "kernel"};
}
template <>
std::vector<std::string> unit_columns<ThroughputRow>() {
  return {"case_id", "kernel"};
}
template <>
std::vector<std::string> unit_columns<SampleRow>() {
  return {"case_id", "kernel"};
}
template <>
std::span<const size_t> schema_widths<AccuracyRow>() {
  return kAccuracyWidths;
}
template <>
std::span<const size_t> schema_widths<ThroughputRow>() {
  return kThroughputWidths;
}
template <>
std::span<const size_t> schema_widths<SampleRow>() {
  return kSampleWidths;
}

}  // namespace smla
