// The last cache before memory, as Linux describes it, and what no cache shall hold.
#pragma once
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>

#include "sim/units.h"

namespace runtime {

// What the caches of the highest level hold that these CPUs reach, each cache counted once: cores of one chip
// may share several of them in groups. As one of `ranks` ranks that compute at once: its part of each cache,
// as large as its CPUs are a part of those that share it, or the one of all ranks where others are idle.
// Reads cpuN/cache/indexM below `cpus`; empty where it does not say.
std::optional<sim::Bytes> last_level_cache(std::span<const int> numbers, int ranks = 1,
                                           const std::filesystem::path& cpus = "/sys/devices/system/cpu");

// What the processor itself says; 0: it does not.
sim::Bytes cache_by_processor();

// The cache of the CPUs that this process may run on, as one of so many ranks; 0: nobody knows.
sim::Bytes last_level_cache(int ranks = 1);

// What the caches hold of these bytes is written back and forgotten: they come from memory the next time.
// Does nothing on processors that let no program say so.
void drop_from_caches(std::span<const std::byte> bytes);

}  // namespace runtime
