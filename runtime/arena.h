// The one allocation of a run: everything that the plan's operations touch lies in it, at planned offsets.
#pragma once
#include <cstddef>

#include "runtime/device.h"
#include "sim/units.h"

namespace runtime {

// Owns the memory; neither copied nor moved, since bound operations hold addresses in it.
class Arena {
 public:
  Arena(Device& device, sim::Bytes size);  // zeroed; throws DeviceError
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  std::byte* at(sim::Bytes offset) const { return memory_ + offset.value; }
  sim::Bytes size() const { return size_; }

  // Notes that an operation uses [offset, offset + bytes). Throws std::out_of_range beyond the end.
  void touch(sim::Bytes offset, sim::Bytes bytes);
  // The highest end of what was touched.
  sim::Bytes high_water() const { return high_water_; }

  // Has all of it in memory from now on; otherwise a part is from when it is first used.
  void make_resident() { device_.make_resident(memory_, size_); }
  sim::Bytes resident() const { return device_.resident(memory_, size_); }

 private:
  Device& device_;
  sim::Bytes size_, high_water_;
  std::byte* memory_;
};

}  // namespace runtime
