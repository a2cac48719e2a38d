// Every kernel of the CPU timed alone, over the sizes that plans have: what this-machine's predictions rest
// on.
#pragma once
#include <stop_token>
#include <string>

#include "runtime/train.h"
#include "sim/cost/calibration.h"

namespace runtime {

// About 20 s on two cores. Each kernel runs through Device::run, as the executor runs it, on operands that
// rotate through more memory than the upper caches hold. Ends early, with what there is, on a stop request.
sim::Calibration calibrate_cpu(const EventSink& sink, const std::stop_token& stop, int threads);

// What a calibration is valid for: another version's kernels may be faster.
std::string kernels_version();

}  // namespace runtime
