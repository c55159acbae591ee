// SPDX-License-Identifier: Apache-2.0
#include "reports/record.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "reports/report_file.h"
#include "reports/text.h"
#include "smla_catch.h"

using namespace smla;

namespace {

const std::string kCommon =
    "schema_version,run_id,started_utc,tool_version,git_commit,git_dirty,arch,device_name,gpu_uuid,sm_count,power_limit_w,ecc,driver_version,cuda_"
    "version,host,"
    "suite,case_id,case,pass_kind,b,s_q,h_q,s_kv,topk,d_qk,d_v,q_dtype,kv_format,scales,rope_dtype,page_size,page_stride_rows,table,lens,topk_length,"
    "sink,"
    "sm_scale,num_splits,pattern,values,needle0,seed,valid_keys_mean,invalid_frac,kernel,plugin_sha,";
const std::string kAccuracy =
    "tensor,status,detail,oracle,oracle_rows,rows_unjudged,declared,checks_run,n_elem,n_bad,n_bad_rows,n_nonfinite_mismatch,abs_err_max,rel_err_max,"
    "ulp_err_max,"
    "cos_diff_worst_row,z_max,z_row_rms_max,z_rms_pooled,z_row_rms_reference,lse_err_max,worst_index,worst_got,worst_ref,tightest_atol,tightest_rtol,"
    "needle_coverage,poison_ok,guards_ok,outputs_written_ok,determinism_ok,metamorphic_ok,oracle_ms,kernel_ms,first_launch_ms,repro";
const std::string kThroughput =
    "status,detail,timing,cache,cold_ratio,l2_bytes,samples,discarded,power_capped_frac,stop_reason,calls_per_sample,time_us_min,time_us_q1,time_us_"
    "median,"
    "time_us_q3,time_us_p95,time_us_ci95_lo,time_us_ci95_hi,time_rel_iqr,prepare_us,host_launch_us,workspace_bytes,flops,bytes_unique,bytes_gathered,"
    "tflops,"
    "gbps_unique,gbps_gathered,tokens_per_s,roof_us,roof_bound,roof_frac,gather_floor_us,peak_source,dense_kernel,dense_time_us_median,speedup_vs_"
    "dense,"
    "dense_roof_us,sm_clock_mhz_median,mem_clock_mhz,clocks_locked,throttle_reasons,outputs_verified,verified_on_arch,splits_used,dense_topk_time_us_"
    "median,"
    "baseline_time_us,ratio_vs_baseline,ratio_ci95_lo,ratio_ci95_hi,verdict,repro,power_w_median,temperature_c_max,launch_floor_us";
const std::string kSamples =
    "schema_version,run_id,arch,case_id,kernel,timing,cache,round,sample,calls_per_sample,time_us,sm_clock_mhz,power_capped,discarded";

template <class Row>
std::string header_line() {
  const std::string line = csv_line(header<Row>());
  return line.substr(0, line.size() - 1);
}

template <class Row>
Row with_common() {
  Row row;
  row.run_id = "r1";
  row.started_utc = "2026-01-02T03:04:05Z";
  row.git_dirty = true;
  row.arch = "sm_90";
  row.device_name = "Card, with \"quotes\"";
  row.sm_count = 132;
  row.power_limit_w = 700;
  row.c = parse_line("decode b=4 s_q=1 h_q=8 s_kv=32768 topk=2048 kv_format=fp8_656 pattern=page_straddling seed=7");
  row.valid_keys_mean = 2048;
  row.kernel = "cpu_split";
  return row;
}

/// The file of one row, changed by `edit`, is refused with `why`.
template <class Row>
void refused(const Row& row, const std::string& from, const std::string& to, const std::string& why) {
  std::string text = csv_line(header<Row>()) + csv_line(to_cells(row));
  const size_t at = text.rfind(from);
  REQUIRE(at != text.npos);
  text.replace(at, from.size(), to);
  INFO(from << " -> " << to);
  CHECK_THROWS_WITH(parse_report<Row>(text, "a.csv"), ContainsSubstring(why));
}

}  // namespace

TEST_CASE("the columns are those of the README, in its order") {
  CHECK(header_line<AccuracyRow>() == kCommon + kAccuracy);
  CHECK(header_line<ThroughputRow>() == kCommon + kThroughput);
  CHECK(header_line<SampleRow>() == kSamples);
  // A column more means a schema version more: the widths of the versions before stay.
  CHECK(schema_widths<AccuracyRow>().back() == header<AccuracyRow>().size());
  CHECK(schema_widths<ThroughputRow>().back() == header<ThroughputRow>().size());
  CHECK(schema_widths<SampleRow>().back() == header<SampleRow>().size());
  CHECK(schema_widths<AccuracyRow>().size() == size_t{kSchemaVersion});
  CHECK(schema_widths<ThroughputRow>().size() == size_t{kSchemaVersion});
  CHECK(schema_widths<SampleRow>().size() == size_t{kSchemaVersion});
}

TEST_CASE("every column stands in the first column of one of the README's tables") {
  const std::string readme = read_text_file(SMLA_REPORTS_README);
  std::set<std::string> documented;
  for (size_t line = readme.find("\n## Columns"); line != readme.npos && line < readme.find("\n## Compare"); line = readme.find('\n', line + 1)) {
    if (readme.compare(line, 3, "\n| ") != 0) continue;
    const std::string names = readme.substr(line + 3, readme.find(" |", line + 3) - line - 3);
    for (size_t begin = 0; begin < names.size();) {
      const size_t end = std::min(names.find(", ", begin), names.size());
      documented.insert(names.substr(begin, end - begin));
      begin = end + 2;
    }
  }
  std::set<std::string> columns{"column"};  // the title
  for (const auto& all : {header<AccuracyRow>(), header<ThroughputRow>(), header<SampleRow>()}) columns.insert(all.begin(), all.end());
  CHECK(documented == columns);
}

TEST_CASE("a row comes back as it was written") {
  auto row = with_common<AccuracyRow>();
  row.tensor = Tensor::lse;
  row.status = Status::fail;
  row.detail = "two\nlines, and \xFF";
  row.oracle_rows = 0;
  row.n_bad = int64_t{1} << 53 | 1;
  row.abs_err_max = 1e-7;
  row.z_max = 0.1;
  row.z_row_rms_max = std::numeric_limits<double>::infinity();
  row.worst_got.value = std::numeric_limits<double>::quiet_NaN();
  row.worst_ref.value = -std::numeric_limits<double>::infinity();
  row.poison_ok = false;
  row.guards_ok = true;
  row.repro = "smla check --case 'decode b=4'";
  const auto report = parse_report<AccuracyRow>(csv_line(header<AccuracyRow>()) + csv_line(to_cells(row)), "a.csv");
  REQUIRE(report.rows.size() == 1);
  const AccuracyRow& back = report.rows[0];
  CHECK(to_cells(back) == to_cells(row));
  CHECK(back.c == row.c);
  CHECK(back.device_name == row.device_name);
  CHECK(back.detail == "two lines, and \xEF\xBF\xBD");
  CHECK(back.tensor == Tensor::lse);
  CHECK(back.status == Status::fail);
  CHECK(back.git_dirty == true);
  CHECK_FALSE(back.ecc.has_value());            // missing is not false,
  CHECK_FALSE(back.rows_unjudged.has_value());  // and not 0
  CHECK(back.oracle_rows == 0);
  CHECK(back.n_bad == (int64_t{1} << 53 | 1));
  CHECK(back.abs_err_max == 1e-7);  // to the last bit
  CHECK(back.z_row_rms_max == std::numeric_limits<double>::infinity());
  CHECK(std::isnan(back.worst_got.value.value()));
  CHECK(back.worst_ref.value == -std::numeric_limits<double>::infinity());
  CHECK(back.poison_ok == false);
}

TEST_CASE("a measure that is not finite is missing, and floats have nine digits") {
  auto row = with_common<ThroughputRow>();
  row.time_us_min = std::numeric_limits<double>::infinity();
  row.time_us_q1 = std::numeric_limits<double>::quiet_NaN();
  row.time_us_median = 1.0 / 3;
  row.verdict = Verdict::fresh;
  const std::string text = csv_line(to_cells(row));
  CHECK(text.find("inf") == text.npos);
  CHECK(text.find("nan") == text.npos);
  CHECK(text.find(",0.333333333,") != text.npos);
  CHECK(text.find(",new,") != text.npos);
}

TEST_CASE("edited cells are refused with file, line and column") {
  auto row = with_common<ThroughputRow>();
  row.time_us_median = 17.25;
  row.samples = 4001;
  row.outputs_verified = true;
  refused(row, "17.25", "\"17,25\"", "a.csv:2: column time_us_median: \"17,25\" is not a finite, non-negative number with a decimal point");
  refused(row, "17.25", "-17.25", "column time_us_median");
  refused(row, "17.25", "nan", "column time_us_median");
  refused(row, "17.25", "1e999", "column time_us_median");
  refused(row, "17.25", "17.25us", "column time_us_median");
  refused(row, "4001", "4001.0", "a.csv:2: column samples: \"4001.0\" is not an integer");
  refused(row, "4001", "99999999999999999999", "column samples");
  refused(row, ",true,", ",TRUE,", "column outputs_verified: \"TRUE\" is not true or false");
  refused(row, ",pass,", ",passed,", "column status");
  refused(row, "page_straddling", "page_stradling", "page_straddling");  // the nearest known value
  refused(row, ",7,2048,", ",8,2048,", "column case_id");
  refused(row, "seed=7", "seed=8", "column case: ");
  refused(row, "\n2,r1", "\n1,r1", "a.csv:2: column schema_version: 1 under the header of version 2");
  refused(row, "\n2,r1", "\n3,r1", "a.csv:2: column schema_version: 3 under the header of version 2");
}

TEST_CASE("a report of an older schema is read, its missing columns are missing") {
  auto row = with_common<ThroughputRow>();
  row.schema_version = 1;
  row.power_w_median = 300;
  std::vector<std::string> columns = header<ThroughputRow>(), cells = to_cells(row);
  columns.resize(schema_widths<ThroughputRow>()[0]);
  cells.resize(columns.size());
  const auto report = parse_report<ThroughputRow>(csv_line(columns) + csv_line(cells), "a.csv");
  REQUIRE(report.rows.size() == 1);
  CHECK(report.rows[0].kernel == row.kernel);
  CHECK_FALSE(report.rows[0].power_w_median.has_value());
}

TEST_CASE("headers: a prefix that was a version is known, all else refused") {
  const std::vector<std::string> newest{"a", "b", "c", "d"};
  const size_t widths[] = {2, 4};
  const auto refuse = [&](std::vector<std::string> found, const std::string& why) {
    CHECK_THROWS_WITH(schema_of(found, newest, widths, "f.csv"), ContainsSubstring(why));
  };
  CHECK(schema_of({"a", "b"}, newest, widths, "f.csv") == 1);
  CHECK(schema_of(newest, newest, widths, "f.csv") == 2);
  refuse({"a", "b", "c"}, "f.csv:1: 3 columns, the schema versions known have 2, 4");
  refuse({"a", "b", "c", "d", "e"}, "f.csv:1: written by a newer version of the tool (column 5 is \"e\")");
  refuse({"b", "a"}, "f.csv:1: column 1 is \"b\", expected \"a\" (columns in another order");
  refuse({"a;b;c;d"}, "separated by ';'");
  refuse({"x", "y"}, "(not a report of this kind)");
  CHECK_THROWS_WITH(parse_report<SampleRow>(csv_line(header<AccuracyRow>()), "f.csv"),
                    ContainsSubstring("f.csv:1: column 3 is \"started_utc\", expected \"arch\""));
  CHECK_THROWS_WITH(parse_report<SampleRow>("", "f.csv"), ContainsSubstring("f.csv: is empty"));
  CHECK_THROWS_WITH(parse_report<SampleRow>("schema_ver", "f.csv"), ContainsSubstring("f.csv: is empty"));
  CHECK(parse_report<SampleRow>(kSamples + "\n", "f.csv").rows.empty());
}

TEST_CASE("rows go to a file and come back; a torn row is left out") {
  char name[] = "/tmp/smla_record_test_XXXXXX";
  const std::string folder = ::mkdtemp(name);
  SampleRow row;
  row.case_id = "c0123456789abcdef";
  row.kernel = "k";
  row.time_us = 12.5;
  {
    ReportWriter<SampleRow> writer(folder);
    for (int i = 0; i < 3; ++i) {
      row.sample = i;
      writer.append(row);
    }
    CHECK(writer.path() == folder + "/samples.csv");
  }
  auto report = read_report<SampleRow>(folder + "/samples.csv");
  REQUIRE(report.rows.size() == 3);
  CHECK(report.rows[2].sample == 2);
  CHECK(report.rows[2].time_us == 12.5);
  CHECK(report.at(2) == folder + "/samples.csv:4: ");
  const std::string text = read_text_file(folder + "/samples.csv");
  write_text_file(folder + "/samples.csv", text.substr(0, text.size() - 3));
  report = read_report<SampleRow>(folder + "/samples.csv");
  CHECK(report.torn);
  CHECK(report.rows.size() == 2);
  std::filesystem::remove_all(folder);
}
