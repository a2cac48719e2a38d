// How fast this machine is now beside its calibration: its pace, looked at again before a run.
#pragma once
#include <optional>
#include <string>

#include "sim/cost/calibration.h"

namespace runtime {

// Takes about half a second on as many threads as kernels have now. Empty where the calibration lacks the
// operations.
std::optional<sim::Slowdown> probe_this_machine(const sim::Calibration& calibration);

// Within sim::kSteadyWithin both ways.
bool is_steady(const sim::Slowdown& slowdown);

// "this machine is slower by 1.31 than when it was calibrated (arithmetic 1.31, memory 1.05)"
std::string slowdown_sentence(const sim::Slowdown& slowdown);

}  // namespace runtime
