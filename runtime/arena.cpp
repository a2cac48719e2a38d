#include "runtime/arena.h"

#include <algorithm>
#include <stdexcept>

namespace runtime {

Arena::Arena(Device& device, sim::Bytes size)
    : device_(device), size_(size), memory_(device.allocate(size)) {}

Arena::~Arena() {
  device_.release(memory_, size_);
}

void Arena::touch(sim::Bytes offset, sim::Bytes bytes) {
  const sim::Bytes end = offset + bytes;
  if (offset.value < 0 || end > size_) throw std::out_of_range("an operand lies outside the arena");
  high_water_ = std::max(high_water_, end);
}

}  // namespace runtime
