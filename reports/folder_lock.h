// SPDX-License-Identifier: Apache-2.0
// One run at a time writes into a folder.
#pragma once
#include <string>

namespace smla {

/// Held from construction to destruction, by the file `.lock` in the folder. The lock goes with the process, however that ends; the file stays.
class FolderLock {
 public:
  /// Throws UsageError: another process holds it (named), or the folder cannot be written.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace smla
