// Measures how much of a working set that is touched in turn the last cache serves. The cache's size alone
// does not say it: a cache that replaces the least recently used keeps nothing of a somewhat larger working
// set, and other programs, or other guests of a host, may hold a part of the cache.
#pragma once
#include <functional>
#include <stop_token>
#include <vector>

#include "runtime/device.h"
#include "sim/cost/calibration.h"

namespace runtime {

// Reads working sets in turn, as decoding reads weights: from a quarter of the last cache's size, which it is
// assumed to hold, to twice that size. Takes about half a second. Where a quarter is read no faster than
// memory, tries smaller sizes (largest_that_serves()). Empty where the size is not known (0), where memory is
// about as fast as any cache, and, soon, on a stop request.
std::vector<sim::CacheShare> measure_cache_shares(Device& device, sim::Bytes last_level_cache,
                                                  const std::stop_token& stop);

// What `shares_of` finds for that size, or, as long as it finds nothing, for a quarter of it. A guest is told
// its host's cache size, of which other guests may hold most (seen: 60 to 100 MB of 300 were left).
std::vector<sim::CacheShare> largest_that_serves(
    sim::Bytes cache, const std::function<std::vector<sim::CacheShare>(sim::Bytes)>& shares_of);

// The largest working set of which at most a tenth comes from memory; 0 where nothing was measured.
sim::Bytes held(const std::vector<sim::CacheShare>& shares);

// The shares, from an operation's seconds with each working set and with none of it in a cache. They ascend
// in both members. The first working set is assumed to be held by the cache.
struct ReadInTurn {
  sim::Bytes working_set;
  double seconds = 0;
};
std::vector<sim::CacheShare> cache_shares(const std::vector<ReadInTurn>& read, double seconds_from_memory);

}  // namespace runtime
