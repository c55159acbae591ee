// SPDX-License-Identifier: Apache-2.0
// A call as it happened: inputs, the kernel's answer and what it declared, in a safetensors file (README of harness/python, "Captures").
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cases/contract.h"
#include "harness/capture/safetensors.h"
#include "harness/worker.h"

namespace smla {

struct CapturedCall {
  std::shared_ptr<const SafeTensorsFile> file;  // its q and kv are what `in.given` points at
  Inputs in;
  Contract contract;
  std::vector<uint16_t> out;  // [T][h_q][d_v], q's type
  std::vector<float> lse;     // [T][h_q], widened, in the contract's convention; empty where the file has none
  std::string kernel;         // "" = the file does not say
};

/// Throws UsageError, one line that names the file, the tensor, and what was wanted of it. `contract_words` replace words of the file's own contract.
CapturedCall read_captured_call(const std::string& path, const std::string& contract_words = "");

/// Writes what a kernel was given and answered: every token's out and lse. Throws UsageError; a pool that is address space (pattern=far) or has more
/// than kMaxCapture_bytes is refused.
inline constexpr int64_t kMaxCapture_bytes = int64_t{4} << 30;
void write_captured_call(const std::string& path, const Inputs& in, const std::string& kernel, const RunReply& answer);

/// A cached value or query that is no number: whoever reads it has no right answer.
struct NotFinite {
  std::string where;            // "kv slot 17 channel 3"
  std::vector<int64_t> tokens;  // that read it, sorted
};
/// Of the selected rows and the queries, the first found, and all the tokens that some such value reaches.
NotFinite find_not_finite(const Inputs& in);

}  // namespace smla
