// Short runs of many scenarios on a device of this machine, each beside its prediction: how right predictions
// are, and how cost grows.
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
  // The prediction is for the machine as looks at it around and during the run found it.
  sim::Report predicted, measured;
  std::string why_not;  // a sentence, where it did not run
  // Measured over predicted time each time that it ran: how far the machine's noise alone moves it.
  std::vector<double> each_time{};
};

// A scenario of a series on the device that `like` names, of which `calibration` is. Training repeats steps
// for about `seconds`, at least five; a generation, from a prompt of any tokens, is repeated as long, at
// least three times, and the one of the median time counts. Where looks at a CPU before and after say
// that the machine became faster or slower, all of it runs again, up to three times in all; the run counts
// that it changed least in. `like` says as well what is read, if anything is, and among which ranks it runs,
// each of which calls this and the first of which has the reports that count; its steps and generations do
// not count.
SeriesRun run_of_series(sim::Scenario scenario, const sim::Calibration& calibration, sim::Seconds seconds,
                        const EventSink& sink, const std::stop_token& stop, const ShortRun& like = {});

enum class JudgedThing { step, token, operation };
// A time that was predicted and measured.
struct JudgedTime {
  JudgedThing what{};
  std::string operation;  // "forward layer.mlp.up.forward": of an operation
  sim::Seconds predicted, low, high, measured;
};
// The times of a run that ran: its step or token, then its operations that take a hundredth of it or more,
// except those that were timed only in a part of their executions, as where a GPU replays tokens.
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
  // Repeated runs: |one / the one before - 1| of measured over predicted times. A prediction
  // knows no more of a run than this says of another of the same.
  std::vector<double> repeats;
  // Runs of several ranks: predicted share of the step less the measured one.
  std::vector<double> bubbles, exposed;
  std::size_t memory_equal = 0, ran = 0, refused = 0;  // runs; equal: planned memory, to the byte
};
SeriesErrors errors_of(const std::vector<SeriesRun>& runs);

}  // namespace runtime
