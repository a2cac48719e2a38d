// Segments of a device's memory as one piece, and apart again: what ranks exchange lies in columns of wider
// rows, or in rows of several places.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/device.h"
#include "runtime/transport.h"

namespace runtime {

// As many bytes, in segments of other lengths: one copy for all rows that lie evenly apart. std::logic_error
// where `to` is shorter.
void copy_segments(Device& device, std::span<const MutableBytes> to, std::span<const ConstBytes> from);

// Memory of a device by slot, in blocks that grow when more is asked for. What a slot had stays, since
// captured work refers to it.
class DeviceMemory {
 public:
  explicit DeviceMemory(Device& device) : device_(device) {}
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  MutableBytes slot(std::size_t number, std::size_t bytes);

 private:
  Device& device_;
  std::map<std::size_t, std::vector<MutableBytes>> blocks_;
};

}  // namespace runtime
