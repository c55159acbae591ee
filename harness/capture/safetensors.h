// SPDX-License-Identifier: Apache-2.0
// Safetensors files: 8 bytes of header length, a JSON header, tensors back to back. Strict: what the header says must fit the file exactly.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace smla {

struct SafeTensor {
  std::string name, dtype;  // BF16 F16 F32 I32 U8 ...
  std::vector<int64_t> shape;
  std::span<const uint8_t> bytes;  // not aligned
};
struct SafeTensors {
  std::vector<SafeTensor> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  /// Null where there is none.
  const SafeTensor* find(const std::string& name) const;
};

/// Throws UsageError, one line that begins with `origin`: a header that is cut short, too long or no JSON; an unknown dtype; a shape that is not as
/// many bytes as its offsets say; offsets that overlap, leave a hole or leave the file; a name that stands there twice.
SafeTensors parse_safetensors(std::span<const uint8_t> file, const std::string& origin);

/// A file in memory as long as it lives.
class SafeTensorsFile {
 public:
  explicit SafeTensorsFile(const std::string& path);
  ~SafeTensorsFile();
  SafeTensorsFile(const SafeTensorsFile&) = delete;
  const SafeTensors& content() const { return content_; }

 private:
  void* base_ = nullptr;
  size_t bytes_ = 0;
  SafeTensors content_;
};

/// Whole or not at all: written beside `path` first. Tensors begin at multiples of 8 bytes if their sizes are. Throws UsageError.
void write_safetensors(const std::string& path, const SafeTensors& content);

}  // namespace smla
