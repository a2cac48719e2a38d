// Short runs of many scenarios on a device of this machine, each beside its prediction. They show how right
// predictions are, and how cost grows.
#pragma once
#include <cstddef>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/short_run.h"
#include "runtime/train.h"
#include "sim/cost/calibration.h"
#include "sim/scenario/scenario_series.h"

namespace runtime {

struct SeriesRun {
  // The prediction is for the machine's speed that probes around and during the run found.
  sim::Report predicted, measured;
  std::string why_not;  // a sentence, where it did not run
  // Measured over predicted time of each repetition. Their spread is the machine's noise alone.
  std::vector<double> each_time{};
};

// Runs a scenario of a series on the device that `like` names; `calibration` is of that device. Training
// repeats steps for about `seconds`, at least five. A generation, from a prompt of any tokens, is repeated as
// long, at least three times, and the one of median time counts. If probes of a CPU before and after show
// that the machine became faster or slower, all of it runs again, up to three times in all. The run during
// which the machine changed least counts. `like` also names the text to read, if any, and the ranks among
// which it runs, or how long it learns, which it does once. Every rank calls this, and rank 0's reports
// count. The numbers of other steps and of generations in `like` are ignored.
SeriesRun run_of_series(sim::Scenario scenario, const sim::Calibration& calibration, sim::Seconds seconds,
                        const EventSink& sink, const std::stop_token& stop, const ShortRun& like = {});

enum class JudgedThing { step, token, operation };
// A time that was predicted and measured.
struct JudgedTime {
  JudgedThing what{};
  std::string operation;  // "forward layer.mlp.up.forward": of an operation
  sim::Seconds predicted, low, high, measured;
};
// The times of a run that took place: its step or token, then each operation that takes at least 1 % of it.
// Operations timed in only some of their executions, as where a GPU replays tokens, are left out.
std::vector<JudgedTime> judged_times(const SeriesRun& run);

// |predicted / measured - 1| over runs.
struct ErrorsOf {
  std::vector<double> errors;
  std::size_t inside_band = 0;
  double median() const;
  double p90() const;
};
struct SeriesErrors {
  ErrorsOf steps, tokens;
  ErrorsOf operations;
  // |r / (r of the run before) - 1| of each repeated run, with r = measured / predicted time. No
  // prediction can be expected to be closer to a run than a repetition of the run is.
  std::vector<double> repeats;
  // Runs of several ranks: the predicted share of the step minus the measured share.
  std::vector<double> bubbles, exposed;
  std::size_t memory_equal = 0, ran = 0, refused = 0;  // runs; equal: planned memory, to the byte
};
SeriesErrors errors_of(const std::vector<SeriesRun>& runs);

}  // namespace runtime
