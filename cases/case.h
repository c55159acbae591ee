// SPDX-License-Identifier: Apache-2.0
// A case is one line: it parses, prints, names, filters and reruns itself.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cases/words.h"

namespace smla {

/// One fully expanded case. Keys, order and defaults are those of the case line (cases/README.md); each is a CSV column.
struct Case {
  PassKind pass_kind = PassKind::decode;
  int32_t b = 1, s_q = 1, h_q = 8, s_kv = 4096, topk = 2048;  // always printed
  int32_t d_qk = 576, d_v = 512;
  FloatType q_dtype = FloatType::bf16;
  KvFormat kv_format = KvFormat::bf16;
  Scales scales = Scales::arbitrary;
  FloatType rope_dtype = FloatType::bf16;  // default: q_dtype
  int32_t page_size = 64;
  int32_t page_stride_rows = 64;  // default: page_size
  TableKind table = TableKind::request;
  Lens lens = Lens::full;
  bool topk_length = false;
  SinkKind sink = SinkKind::none;
  float sm_scale = 0.0625f;  // 256^-0.5
  int32_t num_splits = 0;
  Pattern pattern = Pattern::scattered;
  std::string pattern_file;  // of pattern=file:PATH, an array of positions (cases/index_file.h)
  Values values = Values::gaussian;
  int32_t needle0 = 0;
  uint64_t seed = 1;

  int64_t tokens() const { return int64_t{b} * s_q; }  // T
  bool operator==(const Case&) const = default;
};

/// Parses a case line; `model=` and `tp=` are expanded. Checks it (validate). Throws UsageError naming the key and the nearest known one.
Case parse_line(std::string_view line);
/// The canonical line: pass kind, b s_q h_q s_kv topk, then only what differs from the default. parse_line(to_line(c)) == c.
std::string to_line(const Case& c);
/// Every key written out, in order. case_id is its hash.
std::string to_full_line(const Case& c);
/// "c" + 16 hex digits: FNV-1a 64 of "case_format=1 " + to_full_line.
std::string case_id(const Case& c);
/// Throws UsageError if the case contradicts itself (a `needle` fp8 case without scales=pow2, sm_scale <= 0, ...): its one line says which keys and
/// why.
void validate(const Case& c);
/// Keys of a case line in order, as CSV columns: pass_kind b s_q ... seed.
const std::vector<std::string>& case_keys();
/// The value of one key as text, always written out. Throws UsageError for an unknown key.
std::string case_value(const Case& c, std::string_view key);

}  // namespace smla
