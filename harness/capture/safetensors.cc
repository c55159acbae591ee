// SPDX-License-Identifier: Apache-2.0
#include "harness/capture/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "cases/words.h"
#include "reports/text.h"

namespace smla {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr int kMaxDepth = 4;                       // of the JSON: file, tensor, shape
constexpr const char* kMetadata = "__metadata__";

struct DType {
  std::string_view name;
  uint64_t bytes;
};
constexpr DType kDTypes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"U16", 2}, {"I16", 2}, {"F16", 2},
                             {"BF16", 2}, {"U32", 4}, {"I32", 4}, {"F32", 4},     {"U64", 8},     {"I64", 8}, {"F64", 8}};

/// Text of a file in a message: one line, not too long.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, 60));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return out + (text.size() > 60 ? "..." : "");
}

class Parser {
 public:
  Parser(std::span<const uint8_t> file, const std::string& origin) : file_(file), origin_(origin) {}

  SafeTensors parse() {
    require(file_.size() >= 8, "is no safetensors file: it has {} bytes, the header's length alone takes 8", file_.size());
    uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | file_[static_cast<size_t>(i)];
    require(length <= kMaxHeaderBytes, "is no safetensors file: it says that its header has {} bytes", length);
    require(length <= file_.size() - 8, "is cut short: its header has {} bytes, the file {}", length, file_.size());
    const json header = parse_json({reinterpret_cast<const char*>(file_.data()) + 8, length});
    data_ = file_.subspan(8 + length);
    require(header.is_object(), "its header is no JSON object");
    SafeTensors content;
    for (const auto& [name, value] : header.items()) {
      if (name == kMetadata) content.metadata = metadata(value);
      else content.tensors.push_back(tensor(name, value));
    }
    lay_out(content.tensors);
    return content;
  }

 private:
  template <class... Args>
  void require(bool holds, fmt::format_string<Args...> text, Args&&... args) const {
    if (!holds) throw UsageError(origin_ + ": " + fmt::format(text, std::forward<Args>(args)...));
  }

  json parse_json(std::string_view text) const {
    std::set<std::string> names;
    const auto watch = [&](int depth, json::parse_event_t event, json& value) {
      require(depth <= kMaxDepth, "its header is nested too deeply");
      if (event == json::parse_event_t::key && depth == 1)
        require(names.insert(value.get<std::string>()).second, "tensor '{}' stands in its header twice", shown(value.get<std::string>()));
      return true;
    };
    try {
      return json::parse(text, watch);
    } catch (const json::exception& error) { require(false, "its header is no JSON: {}", shown(error.what())); }
    return {};
  }

  std::map<std::string, std::string> metadata(const json& value) const {
    require(value.is_object(), "{} is no object of texts", kMetadata);
    std::map<std::string, std::string> out;
    for (const auto& [key, text] : value.items()) {
      require(text.is_string(), "{}: '{}' is no text", kMetadata, shown(key));
      out[key] = text.get<std::string>();
    }
    return out;
  }

  uint64_t whole_number(const std::string& name, const json& value, const char* what) const {
    require(value.is_number_unsigned(), "tensor '{}': {} is no whole number from 0", shown(name), what);
    return value.get<uint64_t>();
  }

  SafeTensor tensor(const std::string& name, const json& value) const {
    const std::string called = shown(name);
    require(value.is_object() && value.contains("dtype") && value.contains("shape") && value.contains("data_offsets"),
            "tensor '{}' has not dtype, shape and data_offsets", called);
    const json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
    require(dtype.is_string(), "tensor '{}': dtype is no text", called);
    require(shape.is_array() && shape.size() <= 8, "tensor '{}': shape is no list of at most 8 numbers", called);
    require(offsets.is_array() && offsets.size() == 2, "tensor '{}': data_offsets is no pair", called);
    SafeTensor out{name, dtype.get<std::string>(), {}, {}};
    const auto* known = std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const DType& d) { return d.name == out.dtype; });
    require(known != std::end(kDTypes), "tensor '{}': unknown dtype '{}'", called, shown(out.dtype));
    uint64_t bytes = known->bytes;
    bool fits = true;
    for (const json& n : shape) {
      const uint64_t size = whole_number(name, n, "a size in its shape");
      fits &= size <= uint64_t{1} << 62 && !__builtin_mul_overflow(bytes, size, &bytes);
      out.shape.push_back(static_cast<int64_t>(size));
    }
    const uint64_t begin = whole_number(name, offsets[0], "an offset"), end = whole_number(name, offsets[1], "an offset");
    require(begin <= end && end <= data_.size(),
            "tensor '{}': bytes {} to {} are not in the {} bytes of data: the file is cut short, or not what it says", called, begin, end,
            data_.size());
    require(fits && bytes == end - begin, "tensor '{}': {} of its shape and dtype are not the {} bytes of its data_offsets", called,
            fits ? fmt::format("the {} bytes", bytes) : "the bytes", end - begin);
    out.bytes = data_.subspan(begin, end - begin);
    return out;
  }

  /// In the order of their bytes, without a hole.
  void lay_out(std::vector<SafeTensor>& tensors) const {
    std::stable_sort(tensors.begin(), tensors.end(), [](const SafeTensor& a, const SafeTensor& b) {
      return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
    });
    const uint8_t* at = data_.data();
    for (const SafeTensor& tensor : tensors) {
      require(tensor.bytes.data() >= at, "tensor '{}' begins inside of the one before it: their bytes overlap", shown(tensor.name));
      require(tensor.bytes.data() == at, "there are {} bytes before tensor '{}' that belong to none", tensor.bytes.data() - at, shown(tensor.name));
      at += tensor.bytes.size();
    }
    require(at == data_.data() + data_.size(), "there are {} bytes behind its last tensor", data_.data() + data_.size() - at);
  }

  std::span<const uint8_t> file_, data_;
  const std::string& origin_;
};

[[noreturn]] void failed(const std::string& path, const char* what) { throw UsageError(fmt::format("{}: {}: {}", path, what, std::strerror(errno))); }

}  // namespace

const SafeTensor* SafeTensors::find(const std::string& name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const SafeTensor& tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

SafeTensors parse_safetensors(std::span<const uint8_t> file, const std::string& origin) { return Parser(file, origin).parse(); }

SafeTensorsFile::SafeTensorsFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) failed(path, "cannot be read");
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    throw UsageError(path + ": is no file");
  }
  bytes_ = static_cast<size_t>(info.st_size);
  if (bytes_ > 0) {
    void* base = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (base == MAP_FAILED) {
      close(fd);
      failed(path, "cannot be mapped");
    }
    base_ = base;
  }
  close(fd);
  try {
    content_ = parse_safetensors({static_cast<const uint8_t*>(base_), bytes_}, path);
  } catch (...) {
    if (base_ != nullptr) munmap(base_, bytes_);
    throw;
  }
}
SafeTensorsFile::~SafeTensorsFile() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

void write_safetensors(const std::string& path, const SafeTensors& content) {
  json header = json::object();
  if (!content.metadata.empty()) header[kMetadata] = content.metadata;
  size_t at = 0;
  for (const SafeTensor& tensor : content.tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {at, at + tensor.bytes.size()}}};
    at += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(uint64_t{text.size()} >> (8 * i));
  std::vector<std::string_view> pieces = {length, text};
  for (const SafeTensor& tensor : content.tensors) pieces.emplace_back(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  write_file(path, pieces);
}

}  // namespace smla
