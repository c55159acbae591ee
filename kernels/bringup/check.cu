// SPDX-License-Identifier: Apache-2.0
// `check`: every CUDA kernel over a list of cases against an fp64 kernel; and naive against cpu_naive, so that a wrong reading of the inputs shows
// too.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>

#include "cases/case.h"
#include "cases/suite.h"
#include "kernels/bringup/device.h"
#include "kernels/common/job.cuh"
#include "kernels/door.h"
#include "kernels/problem.h"
#include "kernels/registry.h"

namespace smla::bringup {
namespace {

__global__ void scatter_rows(uint8_t* to, const int64_t* offsets, const uint8_t* rows, int64_t row_bytes, int64_t count) {
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x)
    for (int64_t c = threadIdx.x; c < row_bytes / 2; c += blockDim.x)
      reinterpret_cast<uint16_t*>(to + offsets[i])[c] = reinterpret_cast<const uint16_t*>(rows + i * row_bytes)[c];
}

void scatter(const Buffer& to, const std::vector<int64_t>& offsets, const std::vector<uint8_t>& rows, int64_t row_bytes) {
  if (offsets.empty()) return;
  const Buffer device_offsets = Buffer::of(offsets), device_rows = Buffer::of(rows);
  scatter_rows<<<1024, 128>>>(to.get<uint8_t>(), device_offsets.get<int64_t>(), device_rows.get<uint8_t>(), row_bytes,
                              static_cast<int64_t>(offsets.size()));
  SMLA_CHECK(cudaGetLastError());
  SMLA_CHECK(cudaDeviceSynchronize());
}

/// One warp a (token, head), fp64. out [T][h_q][512], lse [T][h_q], packed.
__global__ void __launch_bounds__(128)
    reference_kernel(const __grid_constant__ cuda::Job job, bool rope_fp16, double sm_scale, double* out, double* lse) {
  using namespace cuda;
  const int64_t unit = int64_t{blockIdx.x} * 4 + threadIdx.x / 32;
  if (unit >= int64_t{job.tokens} * job.h_q) return;
  const int h = static_cast<int>(unit % job.h_q), lane = threadIdx.x & 31, pairs = job.rope ? 18 : 16;
  const Token token = token_of(job, static_cast<int>(unit / job.h_q));
  const uint8_t* q = q_row(job, token, h);
  auto half_of = [](bool fp16, const uint8_t* at) {
    const uint16_t bits = *reinterpret_cast<const uint16_t*>(at);
    return fp16 ? __half2float(__ushort_as_half(bits)) : __uint_as_float(uint32_t{bits} << 16);
  };
  auto value = [&](const uint8_t* row, int d) -> double {
    if (!job.fp8) return half_of(job.fp16, row + 2 * d);
    if (d >= 512) return half_of(rope_fp16, row + 528 + 2 * (d - 512));
    return double{e4m3_to_float(row[d])} * *reinterpret_cast<const float*>(row + 512 + 4 * (d / 128));
  };
  double query[18], acc[16] = {}, maximum = -INFINITY, sum = 0;
  for (int i = 0; i < pairs; ++i) query[i] = half_of(job.fp16, q + 2 * (lane + 32 * i));
  const int n = entries_of(job.keys, token);
  for (int e = 0; e < n; ++e) {
    const uint8_t* row = row_address(job.keys, load_entry(job.keys, list_of(job.keys, token), e), e);
    if (!row) continue;
    double dot = 0;
    for (int i = 0; i < pairs; ++i) dot += query[i] * value(row, lane + 32 * i);
    for (int o = 16; o; o >>= 1) dot += __shfl_xor_sync(~0u, dot, o);
    const double x = dot * sm_scale, now = fmax(maximum, x), change = exp(maximum - now), p = exp(x - now);
    sum = sum * change + p;
    for (int i = 0; i < 16; ++i) acc[i] = acc[i] * change + p * value(row, lane + 32 * i);
    maximum = now;
  }
  const double total = job.sink ? sum + exp(double{job.sink[h]} - maximum) : sum;
  for (int i = 0; i < 16; ++i) out[unit * 512 + lane + 32 * i] = sum > 0 ? acc[i] / total : 0;
  if (lane == 0) lse[unit] = sum > 0 ? maximum + log(sum) : -INFINITY;
}

float to_float(uint16_t bits, bool fp16) {
  if (!fp16) {
    const uint32_t wide = uint32_t{bits} << 16;
    float f;
    memcpy(&f, &wide, 4);
    return f;
  }
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float magnitude = exponent == 31 ? (mantissa ? NAN : INFINITY)
                          : exponent     ? std::ldexp(1024.f + mantissa, exponent - 25)
                                         : std::ldexp(float(mantissa), -24);
  return bits & 0x8000 ? -magnitude : magnitude;
}

struct Deviation {
  double rel_l2 = 0, worst_row = 0, lse = 0;
  int64_t at = -1;  // row (t, h) of worst_row
  bool nonfinite = false;
};

/// Compares stored outputs (strided as the problem says) with packed fp64 ones.
Deviation compare(const smla_problem& p, const std::vector<uint8_t>& out, const std::vector<uint8_t>& lse, const std::vector<double>& ref_out,
                  const std::vector<double>& ref_lse) {
  Deviation d;
  double error = 0, norm = 0;
  for (int64_t unit = 0; unit < static_cast<int64_t>(ref_lse.size()); ++unit) {
    const int64_t h = unit % p.h_q, t = unit / p.h_q, r = t / p.s_q, j = t % p.s_q;
    const uint8_t* row = out.data() + r * p.out_stride_bytes[0] + j * p.out_stride_bytes[1] + h * p.out_stride_bytes[2];
    double row_error = 0, row_norm = 0;
    for (int c = 0; c < 512; ++c) {
      uint16_t bits;
      memcpy(&bits, row + 2 * c, 2);
      const double got = to_float(bits, p.q_dtype == SMLA_FP16), want = ref_out[unit * 512 + c];
      if (!std::isfinite(got)) d.nonfinite = true;
      const double miss = std::max(0., std::fabs(got - want) - (p.q_dtype == SMLA_FP16 ? 0x1p-25 : 0));  // half a step of fp16's smallest
      row_error += miss * miss;
      row_norm += want * want;
    }
    error += row_error;
    norm += row_norm;
    const double relative = std::sqrt(row_error / (row_norm + 1e-70));
    if (!(relative <= d.worst_row)) d.worst_row = relative, d.at = unit;
    float got;
    memcpy(&got, lse.data() + r * p.lse_stride_bytes[0] + j * p.lse_stride_bytes[1] + 4 * h, 4);
    const double deviation =
        std::isinf(ref_lse[unit]) ? (got == ref_lse[unit] ? 0 : 1e9) : std::fabs(got - ref_lse[unit]) / (1 + std::fabs(ref_lse[unit]));
    if (!(deviation <= d.lse)) d.lse = deviation;
  }
  d.rel_l2 = norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
  return d;
}

struct Run {
  std::vector<uint8_t> out, lse;
  std::string error;
  bool guards_ok = true;
};

Run run(const smla_kernel& kernel, const DeviceInputs& inputs, const smla_problem& p, int workspace_fill, bool graph) {
  const TensorBytes bytes = tensor_bytes(p);
  Buffer out(bytes.out), lse(bytes.lse), workspace(static_cast<size_t>(workspace_bytes(kernel, p)) + 256);
  out.fill(0xff);
  lse.fill(0xff);
  workspace.fill(workspace_fill);
  cudaStream_t stream;
  SMLA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  SMLA_CHECK(cudaDeviceSynchronize());
  const smla_buffers io = inputs.buffers(out.get(), lse.get());
  Run result;
  result.error = prepare(kernel, p, io, workspace.get(), stream);
  cudaGraph_t captured = nullptr;
  cudaGraphExec_t executable = nullptr;
  if (graph) SMLA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  if (result.error.empty()) result.error = launch(kernel, p, io, workspace.get(), stream);
  if (graph) {
    SMLA_CHECK(cudaStreamEndCapture(stream, &captured));
    SMLA_CHECK(cudaGraphInstantiate(&executable, captured, 0));
    SMLA_CHECK(cudaGraphLaunch(executable, stream));  // the second replay finds the first one's workspace
    SMLA_CHECK(cudaMemsetAsync(out.get(), 0xff, bytes.out, stream));
    SMLA_CHECK(cudaMemsetAsync(lse.get(), 0xff, bytes.lse, stream));
    SMLA_CHECK(cudaGraphLaunch(executable, stream));
  }
  const cudaError_t status = cudaStreamSynchronize(stream);
  if (status != cudaSuccess) {
    printf("  %s: %s: the device is lost to this process\n", kernel.name, cudaGetErrorString(status));
    fflush(stdout);
    exit(1);
  }
  if (executable) cudaGraphExecDestroy(executable), cudaGraphDestroy(captured);
  SMLA_CHECK(cudaStreamDestroy(stream));
  result.out = out.read<uint8_t>();
  result.lse = lse.read<uint8_t>();
  result.guards_ok = out.guards_ok() && lse.guards_ok() && workspace.guards_ok();
  return result;
}

/// Two streams at once, each with its own outputs and workspace, several calls back to back. True if every result has `expected`'s bits.
bool two_streams(const smla_kernel& kernel, const DeviceInputs& inputs, const smla_problem& p, const Run& expected) {
  struct Lane {
    Buffer out, lse, workspace;
    cudaStream_t stream;
  };
  const TensorBytes bytes = tensor_bytes(p);
  std::vector<Lane> lanes;
  for (int i = 0; i < 2; ++i) {
    lanes.push_back({Buffer(bytes.out), Buffer(bytes.lse), Buffer(static_cast<size_t>(workspace_bytes(kernel, p)) + 256), nullptr});
    lanes[i].out.fill(0xff), lanes[i].lse.fill(0xff), lanes[i].workspace.fill(0x7f);
    SMLA_CHECK(cudaStreamCreateWithFlags(&lanes[i].stream, cudaStreamNonBlocking));
  }
  SMLA_CHECK(cudaDeviceSynchronize());
  for (int call = 0; call < 8; ++call)
    for (Lane& lane : lanes)
      if (!launch(kernel, p, inputs.buffers(lane.out.get(), lane.lse.get()), lane.workspace.get(), lane.stream).empty()) return false;
  bool same = true;
  for (Lane& lane : lanes) {
    SMLA_CHECK(cudaStreamSynchronize(lane.stream));
    same = same && lane.out.read<uint8_t>() == expected.out && lane.lse.read<uint8_t>() == expected.lse;
    SMLA_CHECK(cudaStreamDestroy(lane.stream));
  }
  return same;
}

/// cpu_naive over the same inputs, if they are small: nullopt-like empty vectors otherwise.
Run run_cpu(const Inputs& in, const DeviceInputs& inputs) {
  Run result;
  if (in.tokens() * in.c.h_q * in.c.topk > 1 << 21 || inputs.kv.bytes() > 1 << 28) return result;
  const smla_problem p = make_problem(in, 16);
  const smla_kernel& kernel = find_kernel("cpu_naive");
  if (declines(kernel, p)) return result;
  const auto q = inputs.q.read<uint8_t>(), kv = inputs.kv.read<uint8_t>(), indices = inputs.indices.read<uint8_t>();
  const TensorBytes bytes = tensor_bytes(p);
  std::vector<uint8_t> workspace(static_cast<size_t>(workspace_bytes(kernel, p)) + 256);
  result.out.assign(static_cast<size_t>(bytes.out), 0xff);
  result.lse.assign(static_cast<size_t>(bytes.lse), 0xff);
  const smla_buffers io = {sizeof(smla_buffers),
                           0,
                           q.data(),
                           kv.data(),
                           reinterpret_cast<const int32_t*>(indices.data()),
                           in.topk_length.empty() ? nullptr : in.topk_length.data(),
                           in.block_table.data(),
                           in.seq_lens.data(),
                           in.sink.empty() ? nullptr : in.sink.data(),
                           result.out.data(),
                           result.lse.data()};
  result.error = launch(kernel, p, io, workspace.data() + (256 - reinterpret_cast<uintptr_t>(workspace.data()) % 256) % 256);
  return result;
}

struct Limits {
  double rel_l2, worst_row, lse;
};
/// Coarse: enough to see a wrong kernel. The error budget of the reference room is what judges.
/// `rounded`: the kernel rounds fp8_656 rows to bf16, as its contract says: every logit of standard deviation 2 moves by about 2e-3, and in families
/// with larger ones nothing coarse can be said.
Limits limits_for(const Inputs& in, bool stored_only, bool rounded) {
  if (rounded) return in.c.values == Values::gaussian ? Limits{6e-3, 1.5e-2, 1e-2} : Limits{INFINITY, INFINITY, INFINITY};
  const bool fp16 = in.c.q_dtype == FloatType::fp16, hard = in.c.values != Values::gaussian;
  double unit = fp16 ? 4.5e-4 : 2.85e-3;  // bf16: 1.65e-3 of storing the output, and 2.3e-3 of storing P where a flat softmax puts it low in a binade
  if (fp16 && in.c.values == Values::tiny) unit = 1;  // subnormal outputs
  const double slack = hard && !stored_only ? 4 : 1;
  return {unit * slack, 2.5 * unit * slack, hard ? 1e-4 : 6e-6};
}

struct Totals {
  int cases = 0, runs = 0, bad = 0, declined = 0;
  std::map<std::string, Deviation> worst;
};

/// `once`: one launch of each, no repeats: what a tool that slows kernels down a thousand times has time for.
void check_case(const Case& c, const Variant& variant, Totals& totals, const std::string& only, bool once) {
  const Inputs in = make_inputs(c, variant);
  const DeviceInputs inputs(in);
  const std::string line = to_line(c) + (variant == Variant{} ? "" : " + " + to_word(variant));
  const int64_t units = in.tokens() * c.h_q;
  Buffer ref_out(units * 512 * 8), ref_lse(units * 8);
  const cuda::Job job = cuda::sparse_job(inputs.problem, inputs.buffers(nullptr, nullptr));
  reference_kernel<<<static_cast<unsigned>((units + 3) / 4), 128>>>(job, c.rope_dtype == FloatType::fp16, in.c.sm_scale, ref_out.get<double>(),
                                                                    ref_lse.get<double>());
  SMLA_CHECK(cudaGetLastError());
  SMLA_CHECK(cudaDeviceSynchronize());
  const auto want_out = ref_out.read<double>(), want_lse = ref_lse.read<double>();
  ++totals.cases;
  auto fail = [&](const std::string& kernel, int splits, const std::string& why) {
    ++totals.bad;
    printf("BAD  %-20s splits=%-3d %s\n       %s\n", kernel.c_str(), splits, why.c_str(), line.c_str());
    fflush(stdout);
  };
  auto judge = [&](const std::string& kernel, int splits, const Run& result, bool exact, bool rounded) {
    ++totals.runs;
    if (!result.error.empty()) return fail(kernel, splits, result.error);
    const Deviation d = compare(inputs.problem, result.out, result.lse, want_out, want_lse);
    const Limits limits = limits_for(in, exact, rounded);
    Deviation& worst = totals.worst[kernel + (rounded ? " rounded" : "") + (c.q_dtype == FloatType::fp16 ? " fp16" : " bf16")];
    if (c.values == Values::gaussian)
      worst.rel_l2 = std::max(worst.rel_l2, d.rel_l2), worst.worst_row = std::max(worst.worst_row, d.worst_row),
      worst.lse = std::max(worst.lse, d.lse);
    char text[256];
    snprintf(text, sizeof text, "rel L2 %.2e (limit %.1e), worst row %.2e at t=%lld h=%lld, lse %.1e%s", d.rel_l2, limits.rel_l2, d.worst_row,
             static_cast<long long>(d.at / c.h_q), static_cast<long long>(d.at % c.h_q), d.lse, d.nonfinite ? ", NOT FINITE" : "");
    if (d.nonfinite || !(d.rel_l2 <= limits.rel_l2) || !(d.worst_row <= limits.worst_row) || !(d.lse <= limits.lse))
      return fail(kernel, splits, text);
    if (!result.guards_ok) fail(kernel, splits, "wrote outside its buffers");
  };

  const Run cpu = run_cpu(in, inputs);
  if (!cpu.out.empty()) judge("cpu_naive", 0, cpu, true, false);
  for (const KernelEntry& entry : kernels()) {
    const smla_kernel& kernel = *entry.kernel;
    if (kernel.device != SMLA_DEVICE_CUDA || (only.empty() ? entry.group != KernelGroup::built_in : only != kernel.name)) continue;
    for (const int splits : {0, 1, 2, 7, 33}) {
      if (splits && c.num_splits) continue;
      smla_problem p = inputs.problem;
      if (!c.num_splits) p.num_splits = splits;
      if (const auto reason = declines(kernel, p)) {
        ++totals.declined;
        continue;
      }
      const Run first = run(kernel, inputs, p, 0xff, false);
      smla_contract contract{};
      if (kernel.contract) kernel.contract(&kernel, &p, &contract);
      judge(kernel.name, p.num_splits, first, false, contract.k_round != SMLA_TYPE_EXACT);
      if (once) continue;
      const Run second = run(kernel, inputs, p, 0x00, false), replayed = run(kernel, inputs, p, 0x7f, true);
      if (second.out != first.out || second.lse != first.lse) fail(kernel.name, p.num_splits, "another run, another workspace fill: other bits");
      if (replayed.out != first.out || replayed.lse != first.lse) fail(kernel.name, p.num_splits, "graph replay: other bits");
      if (!two_streams(kernel, inputs, p, first)) fail(kernel.name, p.num_splits, "two streams at once: other bits");
    }
  }
}

std::vector<std::pair<Case, Variant>> default_cases() {
  std::vector<std::pair<Case, Variant>> cases;
  auto add = [&](const std::string& line, const std::string& variant = "base") {
    try {
      cases.emplace_back(parse_line(line), parse_variant(variant));
    } catch (const UsageError& error) { printf("left out: %s: %s\n", line.c_str(), error.what()); }
  };
  for (const SuiteCase& suite_case : load_suite("quick").cases) cases.emplace_back(suite_case.c, Variant{});
  const std::string formats[] = {"", " q_dtype=fp16 kv_format=fp16", " kv_format=fp8_656", " q_dtype=fp16 kv_format=fp8_656"};
  const int heads[] = {1, 5, 8, 16, 17, 64, 128}, pages[] = {64, 1, 16, 53};
  const std::string extras[] = {"", " sink=mixed", " sink=finite topk_length=1", " sink=pinf", " sink=ninf topk_length=1"};
  int n = 0;
  for (const std::string& format : formats)
    for (const std::string_view pattern : Names<Pattern>::kAll) {
      const bool short_lists = pattern == "dense" || pattern == "short_context";
      std::string line = std::string("decode b=3 s_q=") + (n % 2 ? "2" : "1") + " h_q=" + std::to_string(heads[n % 7]) +
                         (short_lists ? " s_kv=500 topk=512" : " s_kv=2500 topk=1024") + format + " pattern=" + std::string(pattern) +
                         " page_size=" + std::to_string(pages[n % 4]) + extras[n % 5] + " seed=" + std::to_string(n + 1);
      if (pattern == "stale_tail" && line.find("topk_length") == std::string::npos) line += " topk_length=1";
      add(line, n % 3 == 1 ? "strided" : "base");
      ++n;
    }
  for (const std::string& format : formats)
    for (const int h : {8, 16, 64, 128}) {
      const std::string head = " h_q=" + std::to_string(h) + format;
      add("decode b=1 s_q=1 s_kv=4096 topk=2048" + head);
      add("decode b=9 s_q=1 s_kv=3000 topk=2048 lens=mixed" + head);
      add("decode b=2 s_q=1 s_kv=300 topk=1" + head);
      add("decode b=140 s_q=1 s_kv=600 topk=256 pattern=interleaved_invalid" + head);
      add("prefill b=2 s_q=150 s_kv=600 topk=320" + head);
      add("decode b=4 s_q=2 s_kv=1500 topk=1536 pattern=dense page_size=64 lens=mixed" + head);
      add("decode b=4 s_q=3 s_kv=700 topk=704 pattern=dense page_size=1 table=query sink=finite" + head);
      add("decode b=2 s_q=1 s_kv=1500 topk=512 page_stride_rows=70" + head);
    }
  add("decode b=2 s_q=2 h_q=8 s_kv=900 topk=256 d_qk=512");
  add("decode b=2 s_q=2 h_q=64 s_kv=900 topk=256 d_qk=512");
  add("prefill b=1 s_q=70000 h_q=1 s_kv=256 topk=16");
  return cases;
}

}  // namespace

DeviceInputs::DeviceInputs(const Inputs& in) : problem(make_problem(in, 1)) {
  set_device(problem);
  const TensorBytes bytes = tensor_bytes(problem);
  const Case& c = in.c;
  kv = Buffer(static_cast<size_t>(bytes.kv));
  kv.fill(0xff);
  q = Buffer(static_cast<size_t>(bytes.q));
  q.fill(0xff);
  indices = Buffer(static_cast<size_t>(bytes.indices));
  indices.fill(0x01);  // gaps hold a slot that looks valid
  std::vector<int64_t> offsets;
  std::vector<uint8_t> rows(in.selected.size() * in.row_bytes);
  for (size_t i = 0; i < in.selected.size(); ++i) {
    const int64_t slot = in.selected[i];
    offsets.push_back(slot / c.page_size * problem.page_stride_bytes + slot % c.page_size * in.row_bytes);
    kv_row(in, slot, rows.data() + i * in.row_bytes);
  }
  scatter(kv, offsets, rows, in.row_bytes);
  offsets.clear();
  rows.assign(static_cast<size_t>(in.tokens() * c.h_q * c.d_qk * 2), 0);
  for (int64_t t = 0; t < in.tokens(); ++t)
    for (int h = 0; h < c.h_q; ++h) {
      q_row(in, t, h, reinterpret_cast<uint16_t*>(rows.data() + (t * c.h_q + h) * c.d_qk * 2));
      offsets.push_back(t / c.s_q * problem.q_stride_bytes[0] + t % c.s_q * problem.q_stride_bytes[1] + h * problem.q_stride_bytes[2]);
    }
  scatter(q, offsets, rows, 2 * c.d_qk);
  offsets.clear();
  rows.resize(in.indices.size() * 4);
  memcpy(rows.data(), in.indices.data(), rows.size());
  for (int64_t t = 0; t < in.tokens(); ++t)
    offsets.push_back(t / c.s_q * problem.indices_stride_bytes[0] + t % c.s_q * problem.indices_stride_bytes[1]);
  scatter(indices, offsets, rows, 4 * int64_t{c.topk});
  topk_length = Buffer::of(in.topk_length);
  block_table = Buffer::of(in.block_table);
  seq_lens = Buffer::of(in.seq_lens);
  sink = Buffer::of(in.sink);
}

smla_buffers DeviceInputs::buffers(void* out, void* lse) const {
  return {sizeof(smla_buffers),
          0,
          q.get(),
          kv.get(),
          indices.get<int32_t>(),
          topk_length.get<int32_t>(),
          block_table.get<int32_t>(),
          seq_lens.get<int32_t>(),
          sink.get<float>(),
          out,
          lse};
}

int check_main(int argc, char** argv) {
  std::string only;
  bool once = false;
  std::vector<std::pair<Case, Variant>> cases;
  for (int i = 0; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("kernel=", 0) == 0) only = word.substr(7);
    else if (word == "once") once = true;
    else cases.emplace_back(parse_line(word), Variant{});
  }
  if (cases.empty()) cases = default_cases();
  Totals totals;
  for (const auto& [c, variant] : cases) {
    try {
      check_case(c, variant, totals, only, once);
    } catch (const UsageError& error) { printf("left out: %s: %s\n", to_line(c).c_str(), error.what()); }
  }
  printf("\n%-28s %10s %10s %10s   (values=gaussian)\n", "kernel", "rel L2", "worst row", "lse");
  for (const auto& [kernel, d] : totals.worst) printf("%-28s %10.2e %10.2e %10.1e\n", kernel.c_str(), d.rel_l2, d.worst_row, d.lse);
  printf("check: %d cases, %d runs judged, %d declined, %d BAD\n", totals.cases, totals.runs, totals.declined, totals.bad);
  return totals.bad ? 1 : 0;
}

}  // namespace smla::bringup
