// The memories that an operation's operands can come from: on the chip, the device's, the host's. Each has a
// bandwidth, and so a roof of its own. The data, with sources, is in presets/memory_levels.json; memories
// that a preset of hardware describes stand in that preset alone.
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

// The levels, the fastest first, each with the bandwidth of all multiprocessors together. The device's own
// memory is one of them. Levels without known data are left out: measured hardware has no caches here. Throws
// PresetError where the file cannot be read.
std::vector<MemoryLevel> memory_levels(const Hardware& hardware);
// The levels that a file's text has for a hardware preset, for tests and other files.
std::vector<MemoryLevel> levels_on_chip(std::string_view json, const std::string& file,
                                        std::string_view hardware);

}  // namespace sim
