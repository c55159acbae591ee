// SPDX-License-Identifier: Apache-2.0
// What the device at hand can do at best, measured when asked: what times are held against.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace smla {

struct Common;

struct Peak {
  std::string name;  // with its unit: read_gbps
  double value = 0;
  std::string how;  // what was measured, of how many the best
};

struct Peaks {
  std::vector<Peak> all;
  std::string source;  // in one line, for peak_source
  /// 0 = not measured.
  double operator[](const std::string& name) const;
  /// Best rate of products in 16-bit types (a CPU: of fp32), and of reading memory. 0 = not measured.
  double matrix_tflops() const;
  double read_gbps() const { return (*this)["read_gbps"]; }
};

/// `device`: "cpu" or "cuda". A GPU's are measured by a process of its own (`smla worker --gpu-peaks=ORDINAL`): about 2 s.
Peaks measure_peaks(const std::string& device, int ordinal, int threads);

/// Replaces FOLDER/peaks.csv: the run, the device, and one line a peak.
void write_peaks(const std::string& folder, const Common& run, const Peaks& peaks);

/// Of `entries` products of a key with h_q heads and of so many bytes that must be read: the least time, and which of the two it is.
struct Roof {
  double us = 0;
  std::string bound;  // compute | memory; "" where neither peak is known
};
Roof roof_of(const Peaks& peaks, int64_t flops, int64_t bytes, bool cold, double matrix_factor = 1);

}  // namespace smla
