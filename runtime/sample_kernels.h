// Operations timed alone into a calibration's samples; those that other programs disturbed are timed again.
#pragma once
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/machine_pace.h"
#include "runtime/stopwatch.h"
#include "runtime/timed_pieces.h"
#include "runtime/train.h"
#include "sim/cost/calibration.h"

namespace runtime {

// A timing was disturbed if other programs took more than this many cores from our threads. A desktop at rest
// stays below.
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
  // How many more passes follow each of them over operations that only stream from memory. These are short,
  // and their times differ most from one second to the next.
  int passes_of_streams = 0;
  // The pause after an operation with much arithmetic, as a multiple of its time. It is for devices whose
  // power limit slows down what follows such an operation.
  int rest = 0;
  std::string what;  // the name under which progress is reported
  // Looked at between operations where kernels run on a CPU, and what it was for each of calibration.samples.
  MachinePace* pace = nullptr;
  std::vector<Pace>* paces = nullptr;
  // If not null: pieces in it are not timed again, and newly timed ones are added.
  TimedPieces* pieces = nullptr;
};

// The typical time of what was timed once or more often: the median of those that others did not disturb,
// the shortest where they disturbed all.
TimedSample typical(std::vector<TimedSample> times);

// Gives each of them the median of their paces: for what was timed in one pass. A single look at the machine
// is off by more than its pace changes within most passes. Streams from memory, timed twice, differed by 23 %
// where each time was related to the looks beside it, and by 13 % where none was (two cores of a rented
// EPYC). Between passes, and between kernels in one type and in another, half a minute goes by, and the pace
// counts.
void share_pace(std::span<TimedSample* const> of_pass);

// Appends to calibration.samples, and sets cores_used_by_others to the mean over what was sampled so far.
// Ends early with what there is on a stop request.
void sample_kernels(const std::vector<SingleOperation>& operations, Stopwatch& stopwatch,
                    const Sampling& sampling, const EventSink& sink, const std::stop_token& stop,
                    sim::Calibration& calibration);

// Raises each type's peak to the rate of its fastest product among the samples.
void raise_peaks(sim::Calibration& calibration);

}  // namespace runtime
