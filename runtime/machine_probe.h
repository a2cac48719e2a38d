// How fast this machine is now beside its calibration: its pace, looked at again before a run.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/machine_pace.h"
#include "sim/cost/calibration.h"

namespace runtime {

// Takes about half a second on as many threads as kernels have now. Empty where the calibration lacks the
// operations.
std::optional<sim::Slowdown> probe_this_machine(const sim::Calibration& calibration);

// Of a run, from the looks before, while and after it: the median over those while it lasted and the nearest
// one on either side. The looks around a run are more than those in it, and it may have been another machine.
// Without any in it, over all. At least one look of any.
Pace pace_of_run(std::span<const Pace> before, std::span<const Pace> during, std::span<const Pace> after);

// The machine's pace around a run and while it lasts, between its steps or tokens. What interrupts a run
// comes and goes within seconds, and two looks at its ends miss most of it. The median over looks stands
// beside the run's median step: a look or a step that was interrupted moves neither. Takes as much memory as
// uncached_size() says.
class MachineProbe {
 public:
  // Of a machine of as many threads as kernels have now. Without the operations in the calibration, or
  // without one, all looks find it as fast as calibrated.
  explicit MachineProbe(const sim::Calibration& calibration);

  sim::Slowdown look();         // for half a second, before and after a run: what these looks found
  void begin();                 // a run, which the last look() was before
  void look_once_in_a_while();  // at most every tenth of a second; the run waits meanwhile
  // Of the run that the last look() was after, by pace_of_run().
  sim::Slowdown of_run() const;

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<Pace> calibrated_;
  std::unique_ptr<Device> device_;
  std::optional<MachinePace> machine_;
  std::vector<Pace> before_, during_, after_;
  Clock::time_point last_;
};

// Within sim::kSteadyWithin both ways.
bool is_steady(const sim::Slowdown& slowdown);

// "this machine is slower by 1.31 than when it was calibrated (arithmetic 1.31, memory 1.05)"
std::string slowdown_sentence(const sim::Slowdown& slowdown);

}  // namespace runtime
