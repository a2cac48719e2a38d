// The last cache before memory, as Linux describes it, and a way to drop bytes from all caches.
#pragma once
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>

#include "sim/units.h"

namespace runtime {

// The total size of the highest-level caches that these CPUs reach. Each cache counts once: a chip may have
// several, each shared by a group of cores. For one of `ranks` ranks that compute at once: of each cache, the
// share that its CPUs are of the cache's, but at least 1 / ranks, as other CPUs may be idle.
// Reads cpuN/cache/indexM below `cpus`; empty where it does not say.
std::optional<sim::Bytes> last_level_cache(std::span<const int> numbers, int ranks = 1,
                                           const std::filesystem::path& cpus = "/sys/devices/system/cpu");

// What the processor itself says; 0: it does not.
sim::Bytes cache_by_processor();

// The same for the CPUs that this process may run on, or from cache_by_processor(); 0: not known.
sim::Bytes last_level_cache(int ranks = 1);

// Writes these bytes back and drops them from all caches, so that they come from memory the next time. Does
// nothing on processors that give programs no such instruction.
void drop_from_caches(std::span<const std::byte> bytes);

}  // namespace runtime
