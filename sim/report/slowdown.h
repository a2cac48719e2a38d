// How many times as long a machine takes now as when it was calibrated, because other programs share it or
// its clock has changed: 1 is as calibrated, 2 twice as long, 0.5 half.
#pragma once

namespace sim {

// A smaller factor either way is noise: such a machine counts as being as fast as when it was calibrated.
inline constexpr double kSteadyWithin = 1.1;

struct Slowdown {
  double arithmetic = 1;  // what is bound by arithmetic, and what an operation costs before its work begins
  double memory = 1;      // what is bound by memory's bandwidth
  // Half the width of the 90 % band of either factor, as a share of it. Default: nine tenths of a uniform
  // distribution over what counts as steady.
  double error = 0.9 * (kSteadyWithin - 1);

  bool operator==(const Slowdown&) const = default;
};

}  // namespace sim
