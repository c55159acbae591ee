// SPDX-License-Identifier: Apache-2.0
// The comparator itself with one defect planted: the self-test must notice, because some planted kernel then escapes.
#pragma once
#include <span>

#include "harness/compare_rows.h"

namespace smla {

struct ComparatorMutant {
  const char* name;
  const char* what;
  void (*defect)(const ComparedRow& row, RowStats& stats);
  const char* escapes;  // a planted kernel that gets past it: asked first
};
std::span<const ComparatorMutant> comparator_mutants();

}  // namespace smla
