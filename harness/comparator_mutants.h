// SPDX-License-Identifier: Apache-2.0
// The comparator itself with one defect planted: the self-test must notice, because some planted kernel then escapes.
#pragma once
#include <span>

#include "harness/compare_rows.h"

namespace smla {

struct ComparatorMutant {
  const char* name;
  const char* what;
  ComparatorDefect defect;
};
std::span<const ComparatorMutant> comparator_mutants();

/// The comparator has this defect as long as the object lives.
class PlantedInComparator {
 public:
  explicit PlantedInComparator(ComparatorDefect defect) { plant_in_comparator(defect); }
  ~PlantedInComparator() { plant_in_comparator(nullptr); }
  PlantedInComparator(const PlantedInComparator&) = delete;
};

}  // namespace smla
