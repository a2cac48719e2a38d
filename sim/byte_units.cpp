#include "sim/byte_units.h"

#include <atomic>

#include "sim/units.h"

namespace sim {
namespace {

std::atomic<ByteUnits> written_in = ByteUnits::binary;

constexpr ByteScale kBinary{{{1, "B"}, {kKiB, "KiB"}, {kMiB, "MiB"}, {kGiB, "GiB"}, {kGiB * 1024, "TiB"}}};
constexpr ByteScale kDecimal{{{1, "B"}, {1e3, "kB"}, {1e6, "MB"}, {1e9, "GB"}, {1e12, "TB"}}};

}  // namespace

std::string_view sentence(ByteUnits units) {
  return units == ByteUnits::binary ? "GiB = 2\u00b3\u2070 bytes" : "GB = 10\u2079 bytes";
}

ByteUnits byte_units() {
  return written_in;
}

void write_bytes_in(ByteUnits units) {
  written_in = units;
}

const ByteScale& byte_scale() {
  return byte_units() == ByteUnits::binary ? kBinary : kDecimal;
}

}  // namespace sim
