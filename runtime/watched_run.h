// A run on this machine's CPU, whose pace is probed before, during and after the run. Where other programs
// share a machine, half a second before a run of a minute says little about that minute. So the prediction
// is for the machine's pace during the run.
#pragma once
#include <chrono>
#include <memory>
#include <optional>

#include "runtime/device.h"
#include "runtime/machine_pace.h"
#include "runtime/machine_probe.h"
#include "runtime/train.h"
#include "sim/cost/calibration.h"
#include "sim/report/report.h"

namespace runtime {

class WatchedRun {
 public:
  // `before`: what a probe of this machine found just now; the prediction so far is for it. `predicted`: how
  // long steps or tokens take relative to each other. The run has as many threads as kernels have now.
  WatchedRun(const sim::Calibration& calibration, const sim::Slowdown& before, sim::Report predicted,
             EventSink sink);

  // A sink for train() or generate() that passes events on. Between steps or tokens it probes arithmetic, in
  // little memory and at most 2 % of the run's time. At the end of a run of more than a second it also probes
  // memory, for half a second. The end event that it passes on says how fast the machine was meanwhile.
  EventSink sink();

  // Empty where nothing more is known than before the run: it was short, interrupted, or the calibration
  // lacks the operations.
  const std::optional<sim::Slowdown>& meanwhile() const { return meanwhile_; }

 private:
  using Clock = std::chrono::steady_clock;
  void hear(const sim::Event& event);
  void look();
  sim::Slowdown over_the_run(const sim::Slowdown& after) const;

  const sim::Calibration& calibration_;
  sim::Slowdown before_;
  sim::Report predicted_;
  EventSink sink_;
  std::optional<Pace> calibrated_;
  std::unique_ptr<Device> device_;
  std::optional<ArithmeticPace> machine_;
  Stretches stretches_;
  Clock::time_point begin_ = Clock::now(), next_look_ = begin_;
  std::optional<sim::Slowdown> meanwhile_;
};

// "while it ran, arithmetic took 1.02 times as long as when this machine was calibrated, memory 1.10"; empty
// where the pace differs from that before the run by no more than noise.
std::string meanwhile_sentence(const sim::Slowdown& before, const sim::Slowdown& meanwhile);

}  // namespace runtime
