// How fast memory is at the moment. Where other programs, or other guests of a host, share it, its bandwidth
// changes by half within a minute, and what is timed then says little of another minute.
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "runtime/device.h"
#include "runtime/single_operation.h"
#include "runtime/stopwatch.h"
#include "sim/cost/calibration.h"

namespace runtime {

// Operations of one execution each that only stream: reads alone, as decoding does, and reads and writes, as
// optimizers do. Every calibration of a CPU times them.
inline constexpr std::size_t kStreams = 2;
std::array<SingleOperation, kStreams> streams();

using Pace = std::array<double, kStreams>;  // seconds of each stream
// How many times as long as at `then`: the geometric mean of the streams.
double times_as_long(const Pace& now, const Pace& then);

// Of what was timed between two looks.
Pace between(const Pace& a, const Pace& b);

class MemoryPace {
 public:
  // On operands that no cache of `last_level_cache` bytes holds; 0: it is not known.
  MemoryPace(Device& device, sim::Bytes last_level_cache);
  // Takes some ten milliseconds.
  Pace look();

 private:
  std::array<SingleOperation, kStreams> streams_ = streams();
  Stopwatch stopwatch_;
};

// Memory that no cache of so many bytes holds, as far as this machine has it to spare.
sim::Bytes uncached_size(sim::Bytes last_level_cache);

// Samples that were timed while memory had that pace each become what they would have been at the median
// pace, and the streams' own samples that pace, with which later looks are compared.
void set_to_one_pace(sim::Calibration& calibration, const std::vector<Pace>& paces);

// Of the streams, as calibrated; empty where the calibration lacks one.
std::optional<Pace> calibrated_pace(const sim::Calibration& calibration);

}  // namespace runtime
