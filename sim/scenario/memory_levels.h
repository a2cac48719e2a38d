// The memories that an operation's operands can come from, each with a bandwidth and so with a roof of its
// own: on the chip, the device's, the host's. Data with sources, presets/memory_levels.json; what a preset of
// hardware says itself stands there alone.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "sim/scenario/hardware.h"
#include "sim/units.h"

namespace sim {

struct MemoryLevel {
  std::string name;  // "L2"
  BytesPerSecond bandwidth;
  std::string source;
};

// The levels, the fastest first, each with the bandwidth of all multiprocessors together; the device's own
// memory is among them. Levels that nobody has told are left out: hardware that was measured has no caches
// here. Throws PresetError where the file cannot be read.
std::vector<MemoryLevel> memory_levels(const Hardware& hardware);
// What is in the file, as text, for tests and other files.
std::vector<MemoryLevel> levels_on_chip(std::string_view json, const std::string& file,
                                        std::string_view hardware);

}  // namespace sim
