// Operations timed alone into a calibration's samples; those that other programs disturbed are timed again.
#pragma once
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/stopwatch.h"
#include "runtime/train.h"
#include "sim/cost/calibration.h"

namespace runtime {

// Operands of an operation rotate through memory, as a model's layers do, and small and large models differ
// in which cache they still find their weights in. So each operation is timed over two working sets: one that
// stays in the last cache, of this size at most, and one that no cache holds.
inline constexpr sim::Bytes kCachedRotation{64 << 20};

struct Sampling {
  sim::Bytes memory, rotation;  // the stopwatch's
  // Of the CPU that kernels run on: where other programs want more of its cores than these leave, an
  // operation is timed a second time when all are through, and the shorter time counts. 0: kernels run
  // elsewhere.
  int threads = 0;
  std::string what;  // progress is told as
};

// Appends to calibration.samples, and sets cores_used_by_others to the mean over what was sampled so far.
// Ends early with what there is on a stop request. Returns the best rate of arithmetic seen, in FLOP/s.
double sample_kernels(const std::vector<SingleOperation>& operations, Stopwatch& stopwatch,
                      const Sampling& sampling, const EventSink& sink, const std::stop_token& stop,
                      sim::Calibration& calibration);

}  // namespace runtime
