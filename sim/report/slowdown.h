// How much longer than when it was calibrated a machine takes now, because other programs share it or its
// clock is another one: 1 is as calibrated, 2 twice as long, 0.5 half.
#pragma once

namespace sim {

// Less than this either way is noise: such a machine is called as fast as when it was calibrated.
inline constexpr double kSteadyWithin = 1.1;

struct Slowdown {
  double arithmetic = 1;  // what is bound by arithmetic, and what an operation costs before its work begins
  double memory = 1;      // what is bound by memory's bandwidth
  // Half of the 90 % band of either, as a share of it. Where nothing says more, nine tenths of an even
  // distribution over what counts as steady.
  double error = 0.9 * (kSteadyWithin - 1);

  bool operator==(const Slowdown&) const = default;
};

}  // namespace sim
