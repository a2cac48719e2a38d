// A run on this machine's CPU whose pace is looked at before it, while it lasts and after it. Where other
// programs share a machine, half a second before a run of a minute says little of that minute: what is
// expected of the run is judged by the machine as it was meanwhile.
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
  // `before`: what a probe of this machine found just now, as the run is predicted; `predicted`: how long its
  // steps or tokens take beside each other, at any pace. The run has as many threads as kernels have now.
  WatchedRun(const sim::Calibration& calibration, const sim::Slowdown& before, sim::Report predicted,
             EventSink sink);

  // For train() or generate(): passes events on. Between steps or tokens it looks at arithmetic, for at most
  // a fiftieth of the run's time and in little memory; at the end of a run of more than a second at
  // memory, too, for half a second. The end that is passed on says how fast the machine was meanwhile.
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
// where that is the pace before it, but for noise.
std::string meanwhile_sentence(const sim::Slowdown& before, const sim::Slowdown& meanwhile);

}  // namespace runtime
