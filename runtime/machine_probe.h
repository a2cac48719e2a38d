// How fast this machine is now beside its calibration: its pace, looked at again before a run.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/machine_pace.h"
#include "sim/cost/calibration.h"
#include "sim/report/events.h"
#include "sim/report/report.h"

namespace runtime {

// Takes about half a second on as many threads as kernels have now. Empty where the calibration lacks the
// operations.
std::optional<sim::Slowdown> probe_this_machine(const sim::Calibration& calibration);

// The measured over the predicted time of a step, or of a token after the first. Each token has its own
// prediction, because without a KV cache each takes longer than the one before. Empty for other events, and
// for what is not predicted.
std::optional<double> times_as_predicted(const sim::Event& event, const sim::Report& predicted);

// The part of a run between two looks: the machine's pace, and for each of its steps or tokens the measured
// over the predicted time.
struct Stretch {
  std::vector<double> times;
  Pace pace;
};

// The stretches of a run, from its steps or tokens and the looks between them.
class Stretches {
 public:
  void begin();  // anew, after the last look
  void ended(double times_as_predicted);
  void looked(const Pace& now);
  const std::vector<Stretch>& all() const { return all_; }

 private:
  std::optional<Pace> last_;
  std::vector<double> times_;  // of steps or tokens since the last look
  std::vector<Stretch> all_;
};

// The pace that belongs to a run's median step. Where a machine changes between two speeds within seconds, a
// run has steps of both, and the median of all looks may be of the other one. So each stretch says how its
// pace and the mean time of its steps go together: a look's pace is a mean as well, which interruptions
// lengthen. The mean over stretches, but for the least and the greatest, is scaled to the median time of all
// steps, by which a run is judged. At least one stretch.
Pace pace_of_run(const std::vector<Stretch>& stretches);
// The sim::Slowdown::error of that pace. With eight stretches or more it is the error of their mean, by the
// normal distribution. Fewer say little. Then it follows from the deciles of the looks around the run, as if
// the looks during it scattered like these, and is at least the error where nothing is known.
double error_of_run(const std::vector<Stretch>& stretches, const std::vector<Pace>& around);

// The machine's pace around a run and while it lasts, between its steps or tokens. What interrupts a run
// comes and goes within seconds, and two looks at its ends miss most of it. Takes as much memory as
// uncached_size() says.
class MachineProbe {
 public:
  // Probes the machine with as many threads as kernels have now. If the calibration is empty or lacks the
  // operations, all looks find the machine as fast as calibrated.
  explicit MachineProbe(const sim::Calibration& calibration);

  sim::Slowdown look();  // for half a second, before and after a run; gives what these looks found
  void begin();          // a run begins; the last look() was the one before it
  // A step or token has ended that took so many times as long as predicted. Looks once, at most every tenth
  // of a second; the run waits meanwhile.
  void ended(double times_as_predicted);
  // The slowdown during the run that the last look() came after, by pace_of_run(). If no stretch of the run
  // was seen, it is that of the median of the looks around the run.
  sim::Slowdown of_run() const;

 private:
  using Clock = std::chrono::steady_clock;
  void looked(const Pace& now);

  std::optional<Pace> calibrated_;
  std::unique_ptr<Device> device_;
  std::optional<MachinePace> machine_;
  std::vector<Pace> around_;  // before the run, and after it
  Stretches stretches_;
  Clock::time_point last_;
};

// Whether arithmetic and memory are both slower or faster by less than a factor of sim::kSteadyWithin.
bool is_steady(const sim::Slowdown& slowdown);

// "this machine is slower by 1.31 than when it was calibrated (arithmetic 1.31, memory 1.05)"
std::string slowdown_sentence(const sim::Slowdown& slowdown);

}  // namespace runtime
