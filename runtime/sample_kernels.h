// Operations timed alone into a calibration's samples; those that other programs disturbed are timed again.
#pragma once
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/machine_pace.h"
#include "runtime/stopwatch.h"
#include "runtime/timed_pieces.h"
#include "runtime/train.h"
#include "sim/cost/calibration.h"

namespace runtime {

// Cores that others take from our threads, beyond which what is timed was disturbed: a desktop at rest stays
// below.
inline constexpr double kDisturbance = 0.15;

struct Sampling {
  sim::Bytes memory, rotation;  // the stopwatch's
  // Kernels run on so many threads of the CPU. What is timed, an operation or a run, while other programs
  // want more of its cores than these leave is timed once more when all are through. 0: kernels run
  // elsewhere.
  int threads = 0;
  // How often sample_kernels() times all operations, one pass after the other, each in another order.
  // A neighbour slows whatever is timed within the same seconds, and one pass is over by then.
  int passes = 1;
  // Behind each of them, so many more over what streams from memory: such operations are short, and their
  // times differ most from one second to the next.
  int passes_of_streams = 0;
  // Where the device's power limit holds back whatever follows much arithmetic: a pause of so many times what
  // such an operation took.
  int rest = 0;
  std::string what;  // progress is told as
  // Looked at between operations where kernels run on a CPU, and what it was for each of calibration.samples.
  MachinePace* pace = nullptr;
  std::vector<Pace>* paces = nullptr;
  // Where not null, what they know is not timed again, and what is timed joins them.
  TimedPieces* pieces = nullptr;
};

// The typical time of what was timed once or more often: the median of those that others did not disturb,
// the shortest where they disturbed all.
TimedSample typical(std::vector<TimedSample> times);

// Appends to calibration.samples, and sets cores_used_by_others to the mean over what was sampled so far.
// Ends early with what there is on a stop request. Returns the best rate of arithmetic seen, of a product, in
// FLOP/s.
double sample_kernels(const std::vector<SingleOperation>& operations, Stopwatch& stopwatch,
                      const Sampling& sampling, const EventSink& sink, const std::stop_token& stop,
                      sim::Calibration& calibration);

}  // namespace runtime
