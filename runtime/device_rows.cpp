#include "runtime/device_rows.h"

#include <algorithm>
#include <cstdint>

#include "runtime/segments.h"

namespace runtime {
namespace {

// Joins one piece of the copy to those before, if it continues their rows.
bool continues(RowsCopy& rows, const RowsCopy& next) {
  if (next.width != rows.width) return false;
  const auto to_stride = static_cast<std::int64_t>(next.to - rows.to),
             from_stride = static_cast<std::int64_t>(next.from - rows.from);
  if (rows.rows == 1) {
    // Rows go forward, and do not overlap.
    if (to_stride < rows.width || from_stride < rows.width) return false;
    rows.to_stride = to_stride;
    rows.from_stride = from_stride;
  } else if (to_stride != rows.rows * rows.to_stride || from_stride != rows.rows * rows.from_stride) {
    return false;
  }
  ++rows.rows;
  return true;
}

}  // namespace

void copy_segments(Device& device, std::span<const MutableBytes> to, std::span<const ConstBytes> from) {
  RowsCopy rows{};
  const auto flush = [&] {
    if (rows.width > 0 && rows.to != rows.from) device.copy_rows(rows);
    rows = {};
  };
  for_each_piece(to, from, [&](MutableBytes into, ConstBytes from_here) {
    const auto width = static_cast<std::int64_t>(from_here.size());
    const RowsCopy piece{into.data(), from_here.data(), width, width, width, 1};
    if (rows.width == 0 || !continues(rows, piece)) {
      flush();
      rows = piece;
    }
  });
  flush();
}

DeviceMemory::~DeviceMemory() {
  for (const auto& [number, blocks] : blocks_)
    for (const MutableBytes block : blocks)
      device_.release(block.data(), {static_cast<std::int64_t>(block.size())});
}

MutableBytes DeviceMemory::slot(std::size_t number, std::size_t bytes) {
  std::vector<MutableBytes>& blocks = blocks_[number];
  if (blocks.empty() || blocks.back().size() < bytes)
    blocks.emplace_back(device_.allocate({static_cast<std::int64_t>(bytes)}), bytes);
  return blocks.back().first(bytes);
}

}  // namespace runtime
