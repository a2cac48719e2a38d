// The units that bytes are written in wherever a person reads them: powers of 1024, as memory is made, or of
// 1000, as datasheets of links and disks count. Files always say theirs in their fields' names.
#pragma once
#include <array>
#include <cstddef>
#include <string_view>

namespace sim {

enum class ByteUnits { binary, decimal };
// By the unit that is seen most.
inline constexpr std::array<std::string_view, 2> kByteUnitNames = {"GiB", "GB"};
constexpr std::string_view name(ByteUnits units) {
  return kByteUnitNames[static_cast<std::size_t>(units)];
}
// "GiB = 2^30 bytes", written for a screen.
std::string_view sentence(ByteUnits units);

struct ByteUnit {
  double size;  // bytes
  const char* name;
};
using ByteScale = std::array<ByteUnit, 5>;  // ascending, from a byte

// Of the whole process and all of its threads: binary until it is told otherwise.
ByteUnits byte_units();
void write_bytes_in(ByteUnits units);
const ByteScale& byte_scale();  // of byte_units()

}  // namespace sim
