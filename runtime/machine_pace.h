// How fast this machine is at the moment, in arithmetic and in memory. Where other programs, or other guests
// of a host, share it, either changes by half within a minute, and what is timed then says little of another
// minute.
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

// A product that is bound by arithmetic. Every calibration of a CPU times it and the streams.
SingleOperation probe_of_arithmetic();

// Operations of one execution each that only stream: reads alone, as decoding does, and reads and writes, as
// optimizers do.
inline constexpr std::size_t kStreams = 2;
std::array<SingleOperation, kStreams> streams();

struct Pace {
  double arithmetic = 1;                          // seconds of the product
  std::array<double, kStreams> streams = {1, 1};  // seconds of each
};
// How many times as long as at `then`; memory: the geometric mean of the streams.
sim::Slowdown times_as_long(const Pace& now, const Pace& then);

// The pace of what was timed between two looks.
Pace between(const Pace& a, const Pace& b);

// Each part's median over the looks, of which there is at least one.
Pace median(const std::vector<Pace>& paces);

class MachinePace {
 public:
  // The streams' operands are in no cache of `last_level_cache` bytes; 0: it is not known.
  MachinePace(Device& device, sim::Bytes last_level_cache);
  // Takes some thirty milliseconds. The median of an operation's runs says what the machine can do; the mean
  // has what interrupts some of them, as it interrupts a step that lasts longer.
  Pace look(double Timing::*of_runs = &Timing::median);

 private:
  SingleOperation arithmetic_ = probe_of_arithmetic();
  std::array<SingleOperation, kStreams> streams_ = streams();
  Stopwatch stopwatch_;
};

// Arithmetic alone, in as little memory as that takes: for looks while something else runs.
class ArithmeticPace {
 public:
  explicit ArithmeticPace(Device& device);
  double look();  // Pace::arithmetic, by the mean of an operation's runs

 private:
  SingleOperation arithmetic_ = probe_of_arithmetic();
  Stopwatch stopwatch_;
};

// Memory that no cache of so many bytes holds, as far as this machine has it to spare.
sim::Bytes uncached_size(sim::Bytes last_level_cache);

// Samples that were timed at that pace each become what they would have been at the median pace, which is
// returned. There is at least one.
Pace set_to_one_pace(sim::Calibration& calibration, const std::vector<Pace>& paces);
// The samples of the operations that tell the pace become that pace itself, with which later looks are
// compared.
void tell_pace_by(const Pace& usual, sim::Calibration& calibration);

// As calibrated; empty where the calibration lacks one of the operations.
std::optional<Pace> calibrated_pace(const sim::Calibration& calibration);

}  // namespace runtime
