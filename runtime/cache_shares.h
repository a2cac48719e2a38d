// How the last cache serves what is touched in turn, as measured. A cache that replaces what was used least
// recently keeps nothing of a working set that is somewhat larger than itself, and other programs, or other
// guests of a host, may hold a part of it: its size alone does not say what comes from memory.
#pragma once
#include <functional>
#include <stop_token>
#include <vector>

#include "runtime/device.h"
#include "sim/cost/calibration.h"

namespace runtime {

// Working sets from a quarter of the last cache, which it is taken to hold, to twice its size, read in turn
// as decoding reads weights; takes about half a second. Where a quarter is read no faster than memory, again
// of largest_that_serves(). Empty where the size is not known (0), or where memory is about as fast as any
// cache. Also empty, and soon, on a stop request.
std::vector<sim::CacheShare> measure_cache_shares(Device& device, sim::Bytes last_level_cache,
                                                  const std::stop_token& stop);

// What `shares_of` finds of that cache, or, while it finds nothing, of a quarter of it: a guest is told the
// size that its host's cache has, of which other guests may hold most (seen: 60 to 100 MB of 300 were left).
std::vector<sim::CacheShare> largest_that_serves(
    sim::Bytes cache, const std::function<std::vector<sim::CacheShare>(sim::Bytes)>& shares_of);

// The largest working set that is found in the cache again, nearly all of it; 0 where nothing was measured.
sim::Bytes held(const std::vector<sim::CacheShare>& shares);

// From seconds of an operation over each working set, and where none of it is in a cache: ascending in both
// members, the first working set taken to be held.
struct ReadInTurn {
  sim::Bytes working_set;
  double seconds = 0;
};
std::vector<sim::CacheShare> cache_shares(const std::vector<ReadInTurn>& read, double seconds_from_memory);

}  // namespace runtime
