// How fast this machine is at the moment, in arithmetic and in memory. Other programs, or other guests of a
// host, may share it. Then either speed changes by half within a minute, and what is timed in one minute says
// little about the next.
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "runtime/device.h"
#include "runtime/single_operation.h"
#include "runtime/stopwatch.h"
#include "sim/cost/calibration.h"

namespace runtime {

// A product that is bound by arithmetic. Every calibration of a CPU times it and probe_of_memory().
SingleOperation probe_of_arithmetic();

// A product of one row, which only reads its weights from memory, as decoding does. An optimizer's step,
// which writes as well, tells less: on a rented EPYC it took 0.3 or 0.5 ms by what had run before, while
// nothing else changed.
SingleOperation probe_of_memory();

struct Pace {
  double arithmetic = 1;  // seconds of the product
  double memory = 1;      // seconds of the stream
};
// Time at pace `now` over time at pace `then`.
sim::Slowdown times_as_long(const Pace& now, const Pace& then);

// The pace of what was timed between two looks.
Pace between(const Pace& a, const Pace& b);

// Each part's median over the looks, of which there is at least one.
Pace median(const std::vector<Pace>& paces);

class MachinePace {
 public:
  // The stream's operands are in no cache of `last_level_cache` bytes; 0: it is not known.
  MachinePace(Device& device, sim::Bytes last_level_cache);
  // Takes about 30 ms. The median of an operation's runs says what the machine can do. The mean includes
  // interruptions of some runs, which a longer step suffers as well.
  Pace look(double Timing::*of_runs = &Timing::median);

 private:
  SingleOperation arithmetic_ = probe_of_arithmetic();
  SingleOperation memory_ = probe_of_memory();
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

// An amount of memory that a cache of this size cannot hold, as far as this machine has it to spare.
sim::Bytes uncached_size(sim::Bytes last_level_cache);

// Sample i was timed at paces[i]. Changes each sample to what it would have been at the median pace, and
// returns that pace. There is at least one pace.
Pace set_to_one_pace(sim::Calibration& calibration, const std::vector<Pace>& paces);
// The samples of the operations that tell the pace become that pace itself, with which later looks are
// compared.
void tell_pace_by(const Pace& usual, sim::Calibration& calibration);

// As calibrated; empty where the calibration lacks one of the operations.
std::optional<Pace> calibrated_pace(const sim::Calibration& calibration);

}  // namespace runtime
