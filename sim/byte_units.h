// The units in which bytes are written wherever a person reads them: powers of 1024, as memory is made, or
// powers of 1000, as datasheets of links and disks count. Files always name the unit in their fields' names.
#pragma once
#include <array>
#include <string_view>

#include "sim/enum_names.h"

namespace sim {

enum class ByteUnits { binary, decimal };
// Each choice is named by its most frequent unit.
template <>
inline constexpr std::array<std::string_view, 2> kOtherWords<ByteUnits>{"GiB", "GB"};
// "GiB = 2^30 bytes", written for a screen.
std::string_view sentence(ByteUnits units);

struct ByteUnit {
  double size;  // bytes
  const char* name;
};
using ByteScale = std::array<ByteUnit, 5>;  // ascending, from a byte

// The units that all threads of the process write in: binary until it is told otherwise.
ByteUnits byte_units();
void write_bytes_in(ByteUnits units);
const ByteScale& byte_scale();  // of byte_units()

}  // namespace sim
