// The residuals of every fit to measurements, and the fits that an operation's time rests on. This is for
// people to read; cost/price.h makes the prices.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "sim/cost/calibration.h"
#include "sim/plan/plan.h"

namespace sim {

// The fits that ship with a hardware preset, in its file's order; none where it has none. Throws PresetError.
std::vector<FittedRows> published_fits(const std::string& hardware);
// The fits of a machine's own samples, kind by kind.
std::vector<FittedRows> fits_of(const Calibration& calibration);

// A kernel that was timed, and its time as predicted from all other samples.
struct HeldOut {
  const KernelSample* sample = nullptr;  // of the calibration
  Seconds predicted;
};
std::vector<HeldOut> held_out(const Calibration& calibration);

// "M 512, N 768, K 768", "4 x 128 tokens, 12 heads of 64", ...: the dimensions that a kernel's kind has.
std::string shape_text(const KernelSample& sample);

// Where an operation's time comes from, from the row on screen to the rows that were measured.
struct PriceTrace {
  KernelSample shape;                        // that is looked up
  Roofline best;                             // at the hardware's peaks
  std::optional<double> ratio;               // time over roofline time; none: no sample of the kind
  std::vector<const KernelSample*> nearest;  // the machine's own samples, nearest first; at most kNearest
  std::vector<FittedRows> tables;  // published ones of the kernel and type, of collectives by operation
  static constexpr std::size_t kNearest = 5;
};
// Finds the operation by phase and id, as in a report's rows; empty where the plan has none. `nearest` points
// into the calibration, which may be null and must outlive the result.
std::optional<PriceTrace> trace_price(const Plan& plan, Phase phase, const std::string& operation,
                                      const Calibration* calibration);

}  // namespace sim
