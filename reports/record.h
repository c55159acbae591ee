// SPDX-License-Identifier: Apache-2.0
// One row of each report as a struct: members are named after the columns, which README.md lists with their units. An empty optional is a missing
// value.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "cases/words.h"

namespace smla {

inline constexpr int kSchemaVersion = 2;

using Text = std::string;  // "" = missing
using Count = std::optional<int64_t>;
using Measure = std::optional<double>;  // finite and not negative; any other value is written as missing and refused on reading
using Flag = std::optional<bool>;

/// An error: not negative, and inf where an element is finite on one side only.
struct Deviation : std::optional<double> {
  using std::optional<double>::optional;
};

/// `worst_got` and `worst_ref`: any double, nan and inf included.
struct AnyDouble {
  std::optional<double> value;
};

enum class Verdict : int32_t { same, faster, slower, ambiguous, fresh, missing };  // fresh is written `new`, a keyword of C++
template <>
struct Names<Verdict> {
  static constexpr std::string_view kKind = "Verdict";
  static constexpr std::string_view kAll[] = {"same", "faster", "slower", "ambiguous", "new", "missing"};
};

/// What every row of accuracy.csv and throughput.csv begins with. The columns case_id, case and pass_kind .. seed are all of `c`.
struct Common {
  int schema_version = kSchemaVersion;
  Text run_id, started_utc, tool_version, git_commit;
  Flag git_dirty;
  Text arch, device_name, gpu_uuid;
  Count sm_count;
  Measure power_limit_w;
  Flag ecc;
  Text driver_version, cuda_version, host, suite;
  Case c;
  Measure valid_keys_mean, invalid_frac;
  Text kernel, plugin_sha;
};

/// One row a (case, kernel, tensor).
struct AccuracyRow : Common {
  Tensor tensor = Tensor::out;
  Status status = Status::pass;
  Text detail, oracle;
  Count oracle_rows, rows_unjudged;
  Text declared, checks_run;
  Count n_elem, n_bad, n_bad_rows, n_nonfinite_mismatch;
  Deviation abs_err_max, rel_err_max, ulp_err_max, cos_diff_worst_row, z_max, z_row_rms_max, z_rms_pooled, z_row_rms_reference, lse_err_max;
  Text worst_index;
  AnyDouble worst_got, worst_ref;
  Deviation tightest_atol;
  Measure tightest_rtol, needle_coverage;
  Flag poison_ok, guards_ok, outputs_written_ok, determinism_ok, metamorphic_ok;
  Measure oracle_ms, kernel_ms, first_launch_ms;
  Text repro;
};

/// One row a (case, kernel, timing, cache).
struct ThroughputRow : Common {
  Status status = Status::pass;
  Text detail, timing, cache;
  Measure cold_ratio;
  Count l2_bytes, samples, discarded;
  Measure power_capped_frac;
  Text stop_reason;
  Count calls_per_sample;
  Measure time_us_min, time_us_q1, time_us_median, time_us_q3, time_us_p95, time_us_ci95_lo, time_us_ci95_hi, time_rel_iqr, prepare_us,
      host_launch_us;
  Count workspace_bytes, flops, bytes_unique, bytes_gathered;
  Measure tflops, gbps_unique, gbps_gathered, tokens_per_s, roof_us;
  Text roof_bound;
  Measure roof_frac, gather_floor_us;
  Text peak_source, dense_kernel;
  Measure dense_time_us_median, speedup_vs_dense, dense_roof_us, sm_clock_mhz_median, mem_clock_mhz;
  Flag clocks_locked;
  Text throttle_reasons;
  Flag outputs_verified;
  Text verified_on_arch;
  Count splits_used;
  Measure dense_topk_time_us_median, baseline_time_us, ratio_vs_baseline, ratio_ci95_lo, ratio_ci95_hi;
  std::optional<Verdict> verdict;
  Text repro;
  // since version 2
  Measure power_w_median, temperature_c_max, launch_floor_us;
};

/// One row a timed sample, in the order measured. Joined to throughput.csv by run_id, case_id, kernel, timing, cache.
struct SampleRow {
  int schema_version = kSchemaVersion;
  Text run_id, arch, case_id, kernel, timing, cache;
  Count round, sample, calls_per_sample;
  Measure time_us, sm_clock_mhz;
  Flag power_capped, discarded;
};

/// One member of Row and the columns that it takes: one, or for the case a block. Writing and reading both go through this table and nothing else.
/// `read` throws UsageError naming the column and the cell.
template <class Row>
struct Field {
  std::vector<std::string> columns;
  std::function<void(const Row&, std::vector<std::string>& cells)> write;
  std::function<void(Row&, std::span<const std::string> cells)> read;
};
/// In the order of the file. Specialised for the three rows.
template <class Row>
const std::vector<Field<Row>>& fields();
/// "accuracy.csv", "throughput.csv", "samples.csv".
template <class Row>
std::string_view file_name();
/// Columns that together name what one append writes: a unit is in the file whole or not at all.
template <class Row>
std::vector<std::string> unit_columns();
/// How many columns the file had at schema version 1, 2, ...: an older header is a prefix of the newest.
template <class Row>
std::span<const size_t> schema_widths();

#define SMLA_ROW(Row)                           \
  template <>                                   \
  const std::vector<Field<Row>>& fields<Row>(); \
  template <>                                   \
  std::string_view file_name<Row>();            \
  template <>                                   \
  std::vector<std::string> unit_columns<Row>(); \
  template <>                                   \
  std::span<const size_t> schema_widths<Row>();
SMLA_ROW(AccuracyRow)
SMLA_ROW(ThroughputRow)
SMLA_ROW(SampleRow)
#undef SMLA_ROW

}  // namespace smla
