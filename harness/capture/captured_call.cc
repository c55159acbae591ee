// SPDX-License-Identifier: Apache-2.0
#include "harness/capture/captured_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "cases/steps.h"
#include "reference/decode.h"
#include "reference/oracle.h"

namespace smla {
namespace {

using Shape = std::vector<int64_t>;

template <class T>
std::vector<T> copied(const SafeTensor& tensor) {
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(T));
  return values;
}

class Reader {
 public:
  Reader(const std::string& path, CapturedCall& call) : path_(path), call_(call), content_(call.file->content()) {}

  void read(const std::string& contract_words) {
    Case& c = call_.in.c;
    const SafeTensor &q = needed("q", {"BF16", "F16"}), &kv = needed("kv", {"BF16", "F16", "U8", "I8", "F8_E4M3"}),
                     &indices = needed("indices", {"I32"}), &out = needed("out", {"BF16", "F16"});
    require(q.shape.size() == 4, "q", "has shape {}, [b][s_q][h_q][d_qk] is wanted", q.shape);
    c.b = dimension("q", q.shape[0]);
    c.s_q = dimension("q", q.shape[1]);
    c.h_q = dimension("q", q.shape[2]);
    c.d_qk = dimension("q", q.shape[3]);
    require(c.d_qk == 576 || c.d_qk == 512, "q", "has d_qk={}, 576 or 512 is wanted", c.d_qk);
    c.q_dtype = q.dtype == "BF16" ? FloatType::bf16 : FloatType::fp16;
    require(int64_t{c.b} * c.s_q <= std::numeric_limits<int32_t>::max(), "q", "has {} tokens", int64_t{c.b} * c.s_q);
    read_metadata();
    read_pool(kv);
    require(indices.shape.size() == 3 && indices.shape[0] == c.b && indices.shape[1] == c.s_q, "indices", "has shape {}, [{}][{}][topk] is wanted",
            indices.shape, c.b, c.s_q);
    c.topk = dimension("indices", indices.shape[2]);
    call_.in.indices = copied<int32_t>(indices);
    read_small_tensors();
    require(out.dtype == q.dtype, "out", "has dtype {}, q's {} is wanted", out.dtype, q.dtype);
    require(out.shape == Shape{c.b, c.s_q, c.h_q, c.d_v}, "out", "has shape {}, {} is wanted", out.shape, Shape{c.b, c.s_q, c.h_q, c.d_v});
    call_.out = copied<uint16_t>(out);
    call_.in.given.q = q.bytes.data();
    call_.in.values = value_spec(c);
    describe(call_.in);
    read_contract(contract_words);
    read_lse();
  }

 private:
  template <class... Args>
  void require(bool holds, const std::string& tensor, fmt::format_string<Args...> text, Args&&... args) const {
    if (!holds) throw UsageError(fmt::format("{}: {}: ", path_, tensor) + fmt::format(text, std::forward<Args>(args)...));
  }
  int32_t dimension(const std::string& tensor, int64_t n) const {
    require(n > 0 && n <= std::numeric_limits<int32_t>::max(), tensor, "has a dimension of {}", n);
    return static_cast<int32_t>(n);
  }
  const SafeTensor* optional(const std::string& name, const std::vector<std::string>& dtypes) const {
    const SafeTensor* tensor = content_.find(name);
    if (tensor != nullptr)
      require(std::find(dtypes.begin(), dtypes.end(), tensor->dtype) != dtypes.end(), name, "has dtype {}, {} is wanted", tensor->dtype,
              fmt::join(dtypes, " or "));
    return tensor;
  }
  const SafeTensor& needed(const std::string& name, const std::vector<std::string>& dtypes) const {
    const SafeTensor* tensor = optional(name, dtypes);
    require(tensor != nullptr, name, "is not in the file");
    return *tensor;
  }
  const std::string* text(const std::string& key) const {
    const auto found = content_.metadata.find(key);
    return found == content_.metadata.end() ? nullptr : &found->second;
  }
  template <class T>
  void number(const std::string& key, T& value) const {
    const std::string* word = text(key);
    if (word == nullptr) return;
    const auto [end, error] = std::from_chars(word->data(), word->data() + word->size(), value);
    require(error == std::errc() && end == word->data() + word->size(), "metadata " + key, "'{}' is no number of its kind", *word);
  }
  template <class E>
  void word(const std::string& key, E& value) const {
    try {
      if (const std::string* given = text(key)) value = parse_enum<E>("metadata " + key, *given);
    } catch (const UsageError& error) { throw UsageError(fmt::format("{}: {}", path_, error.what())); }
  }

  void read_metadata() {
    Case& c = call_.in.c;
    require(text("sm_scale") != nullptr, "metadata sm_scale", "is missing: what q.k was multiplied by");
    number("sm_scale", c.sm_scale);
    require(std::isfinite(c.sm_scale) && c.sm_scale > 0, "metadata sm_scale", "{} is no positive number", c.sm_scale);
    number("num_splits", c.num_splits);
    require(c.num_splits >= 0, "metadata num_splits", "{} is negative", c.num_splits);
    word("pass_kind", c.pass_kind);
    c.rope_dtype = c.q_dtype;
    word("rope_dtype", c.rope_dtype);
    if (const std::string* kernel = text("kernel")) call_.kernel = *kernel;
  }

  /// [num_pages][page_size][row], or as FlashMLA has it [num_pages][page_size][1][row].
  void read_pool(const SafeTensor& kv) {
    Inputs& in = call_.in;
    Case& c = in.c;
    Shape shape = kv.shape;
    if (shape.size() == 4 && shape[2] == 1) shape.erase(shape.begin() + 2);
    require(shape.size() == 3, "kv", "has shape {}, [num_pages][page_size][row] is wanted", kv.shape);
    in.num_pages = dimension("kv", shape[0]);
    c.page_size = c.page_stride_rows = dimension("kv", shape[1]);
    const bool bytes = kv.dtype != "BF16" && kv.dtype != "F16";
    c.kv_format = bytes ? KvFormat::fp8_656 : kv.dtype == "BF16" ? KvFormat::bf16 : KvFormat::fp16;
    const KvFormat by_dtype = c.kv_format;
    word("kv_format", c.kv_format);
    require(c.kv_format == by_dtype, "kv", "has dtype {}, which is not kv_format={} of the metadata", kv.dtype, name_of(c.kv_format));
    require(bytes || name_of(c.kv_format) == name_of(c.q_dtype), "kv", "has dtype {}, a 16-bit cache has q's type", kv.dtype);
    require(!bytes || c.d_qk == 576, "kv", "rows of 656 bytes hold 576 values, q has {}", c.d_qk);
    in.row_bytes = row_bytes(c.kv_format, c.d_qk);
    const int64_t row = bytes ? in.row_bytes : c.d_qk;
    require(shape[2] == row, "kv", "has rows of {}, {} is wanted", shape[2], row);
    in.num_slots = in.num_pages * c.page_size;
    require(in.num_slots <= std::numeric_limits<int32_t>::max(), "kv", "has {} slots, more than an int32 index can name", in.num_slots);
    in.page_stride_bytes = c.page_size * in.row_bytes;
    in.given.kv = kv.bytes.data();
  }

  void read_small_tensors() {
    Inputs& in = call_.in;
    Case& c = in.c;
    const auto vector = [&]<class T>(const char* name, const char* dtype, const Shape& shape, std::vector<T>& values) {
      const SafeTensor* tensor = optional(name, {dtype});
      if (tensor == nullptr) return false;
      require(tensor->shape == shape, name, "has shape {}, {} is wanted", tensor->shape, shape);
      values = copied<T>(*tensor);
      return true;
    };
    c.topk_length = vector("topk_length", "I32", {c.b, c.s_q}, in.topk_length);
    if (vector("sink", "F32", {c.h_q}, in.sink)) c.sink = SinkKind::mixed;
    const int32_t all = static_cast<int32_t>(in.num_slots);
    if (vector("seq_lens", "I32", {c.b}, in.seq_lens)) {
      for (int32_t length : in.seq_lens) require(length >= 0, "seq_lens", "holds {}", length);
    } else {
      in.seq_lens.assign(static_cast<size_t>(c.b), all);
    }
    c.s_kv = std::max(1, *std::max_element(in.seq_lens.begin(), in.seq_lens.end()));
    if (const SafeTensor* table = optional("block_table", {"I32"})) {
      require(table->shape.size() == 2 && (table->shape[0] == c.b || table->shape[0] == c.tokens()), "block_table",
              "has shape {}, [{} or {}][pages] is wanted", table->shape, c.b, c.tokens());
      in.table_rows = dimension("block_table", table->shape[0]);
      in.max_pages = dimension("block_table", table->shape[1]);
      c.table = table->shape[0] == c.b ? TableKind::request : TableKind::query;
      in.block_table = copied<int32_t>(*table);
    }
    for (float sink : in.sink) require(!std::isnan(sink), "sink", "holds a NaN");
  }

  void read_contract(const std::string& words) {
    const std::string* of_file = text("contract");
    try {
      call_.contract = parse_contract(words, of_file != nullptr ? parse_contract(*of_file) : Contract());
    } catch (const UsageError& error) { throw UsageError(fmt::format("{}: {}", path_, error.what())); }
  }

  void read_lse() {
    const Case& c = call_.in.c;
    const SafeTensor* lse = optional("lse", {"F32", "BF16"});
    if (lse == nullptr) {
      call_.contract.lse_dtype = LseType::none;
      return;
    }
    require(lse->shape == Shape{c.b, c.s_q, c.h_q}, "lse", "has shape {}, {} is wanted", lse->shape, Shape{c.b, c.s_q, c.h_q});
    call_.contract.lse_dtype = lse->dtype == "F32" ? LseType::f32 : LseType::bf16;
    if (lse->dtype == "F32") call_.lse = copied<float>(*lse);
    else
      for (uint16_t bits : copied<uint16_t>(*lse)) call_.lse.push_back(std::bit_cast<float>(uint32_t{bits} << 16));
  }

  const std::string& path_;
  CapturedCall& call_;
  const SafeTensors& content_;
};

template <class T>
std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

CapturedCall read_captured_call(const std::string& path, const std::string& contract_words) {
  CapturedCall call;
  call.file = std::make_shared<SafeTensorsFile>(path);
  Reader(path, call).read(contract_words);
  return call;
}

void write_captured_call(const std::string& path, const Inputs& in, const std::string& kernel, const RunReply& answer) {
  const Case& c = in.c;
  if (c.pattern == Pattern::far) throw UsageError(fmt::format("{}: pattern=far: its pool is address space, not memory to be written", path));
  const int64_t pool_bytes = in.num_slots * in.row_bytes;
  if (pool_bytes > kMaxCapture_bytes)
    throw UsageError(fmt::format("{}: the pool has {} MiB, at most {} are written", path, pool_bytes >> 20, kMaxCapture_bytes >> 20));
  std::vector<uint8_t> kv(static_cast<size_t>(pool_bytes));
  auto next = in.selected.begin();
  for (int64_t slot = 0; slot < in.num_slots; ++slot) {
    uint8_t* row = kv.data() + slot * in.row_bytes;
    if (next != in.selected.end() && *next == slot) kv_row(in, slot, row), ++next;
    else poison_row(in, slot, row);
  }
  std::vector<uint16_t> q(static_cast<size_t>(in.tokens() * c.h_q * c.d_qk));
  for (int64_t t = 0; t < in.tokens(); ++t)
    for (int32_t h = 0; h < c.h_q; ++h) q_row(in, t, h, &q[static_cast<size_t>((t * c.h_q + h) * c.d_qk)]);
  std::vector<uint16_t> narrow_lse;
  for (float value : answer.lse) narrow_lse.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));

  const std::string q_type = c.q_dtype == FloatType::bf16 ? "BF16" : "F16";
  const bool is_16_bit = c.kv_format == KvFormat::bf16 || c.kv_format == KvFormat::fp16;
  SafeTensors content;
  const auto add = [&](const std::string& name, const std::string& dtype, Shape shape, std::span<const uint8_t> bytes) {
    if (!bytes.empty()) content.tensors.push_back({name, dtype, std::move(shape), bytes});
  };
  add("q", q_type, {c.b, c.s_q, c.h_q, c.d_qk}, bytes_of(q));
  add("kv", is_16_bit ? q_type : "U8", {in.num_pages, c.page_size, is_16_bit ? c.d_qk : in.row_bytes}, kv);
  add("indices", "I32", {c.b, c.s_q, c.topk}, bytes_of(in.indices));
  add("topk_length", "I32", {c.b, c.s_q}, bytes_of(in.topk_length));
  add("block_table", "I32", {in.table_rows, in.max_pages}, bytes_of(in.block_table));
  add("seq_lens", "I32", {c.b}, bytes_of(in.seq_lens));
  add("sink", "F32", {c.h_q}, bytes_of(in.sink));
  add("out", q_type, {c.b, c.s_q, c.h_q, c.d_v}, bytes_of(answer.out));
  if (answer.contract.lse_dtype == LseType::bf16) add("lse", "BF16", {c.b, c.s_q, c.h_q}, bytes_of(narrow_lse));
  else add("lse", "F32", {c.b, c.s_q, c.h_q}, bytes_of(answer.lse));
  content.metadata = {{"pass_kind", std::string(name_of(c.pass_kind))}, {"sm_scale", fmt::format("{}", c.sm_scale)},
                      {"kv_format", std::string(name_of(c.kv_format))}, {"rope_dtype", std::string(name_of(c.rope_dtype))},
                      {"num_splits", std::to_string(c.num_splits)},     {"kernel", kernel},
                      {"contract", contract_words(answer.contract)},    {"case", to_line(c)}};
  write_safetensors(path, content);
}

NotFinite find_not_finite(const Inputs& in) {
  NotFinite found;
  const auto first_of = [](const std::vector<double>& values) {
    return std::find_if(values.begin(), values.end(), [](double x) { return !std::isfinite(x); }) - values.begin();
  };
  std::vector<uint8_t> bytes(static_cast<size_t>(in.row_bytes));
  std::vector<double> values(static_cast<size_t>(in.c.d_qk));
  std::vector<int32_t> bad;
  for (int32_t slot : in.selected) {
    kv_row(in, slot, bytes.data());
    decode_row(in.c, bytes.data(), values.data());
    const auto at = first_of(values);
    if (at == std::ssize(values)) continue;
    if (bad.empty())
      found.where = fmt::format("kv slot {} (page {}) channel {} is {}", slot, slot / in.c.page_size, at, values[static_cast<size_t>(at)]);
    bad.push_back(slot);
  }
  std::vector<uint16_t> bits(values.size());
  for (int64_t t = 0; t < in.tokens(); ++t) {
    bool reached = false;
    if (!bad.empty())
      for (int32_t slot : valid_slots(in, t)) reached |= std::binary_search(bad.begin(), bad.end(), slot);
    for (int32_t h = 0; h < in.c.h_q && !reached; ++h) {
      q_row(in, t, h, bits.data());
      decode16(bits.data(), in.c.q_dtype, std::ssize(bits), values.data());
      const auto at = first_of(values);
      reached = at != std::ssize(values);
      if (reached && found.where.empty())
        found.where = fmt::format("q b={} s_q={} h={} channel {} is {}", t / in.c.s_q, t % in.c.s_q, h, at, values[static_cast<size_t>(at)]);
    }
    if (reached) found.tokens.push_back(t);
  }
  return found;
}

}  // namespace smla
