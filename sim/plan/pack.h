// Addresses in one arena for things whose lives are known beforehand.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/units.h"

namespace sim {

struct PackItem {
  Bytes bytes;  // a multiple of the alignment
  // Inclusive. For a recurring item: relative to each of the times at which its group begins.
  std::int64_t first = 0, last = 0;
  std::int32_t recurring = -1;  // group, or -1: lives once
  bool always = false;          // lives at all times
  Bytes offset{};               // the answer
};

// Best fit, largest first: an item goes into the smallest gap that holds it between the items placed already
// that live at the same time as it does. group_times[g]: when group g begins, ascending; groups do not
// overlap. Returns the arena's size.
Bytes pack(std::vector<PackItem>& items, const std::vector<std::vector<std::int64_t>>& group_times);

}  // namespace sim
