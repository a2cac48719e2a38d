// How well what was measured is known: the residuals of every fit, and which of them an operation's time
// rests on. For people; prices are cost/price.h's.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "sim/cost/calibration.h"
#include "sim/plan/plan.h"

namespace sim {

// What ships for a hardware preset, in its file's order; none where nothing does. Throws PresetError.
std::vector<FittedRows> published_fits(const std::string& hardware);
// The fits of a machine's own samples, kind by kind.
std::vector<FittedRows> fits_of(const Calibration& calibration);

// A kernel that was timed, and its time as all others of its kind have it.
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
  std::optional<double> ratio;               // times its roofline that it takes; none: no sample says
  std::vector<const KernelSample*> nearest;  // of the machine's own, the nearest first; at most kNearest
  std::vector<FittedRows> tables;  // published ones of the kernel and type, of collectives by operation
  static constexpr std::size_t kNearest = 5;
};
// By phase and id, as rows are called; nothing where the plan has no such operation. What it points to is the
// calibration's, which may be null.
std::optional<PriceTrace> trace_price(const Plan& plan, Phase phase, const std::string& operation,
                                      const Calibration* calibration);

}  // namespace sim
