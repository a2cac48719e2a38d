// What `:measure` of a lesson runs: the step's scenario on this machine, once for each variant.
#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "app/lesson/lesson.h"
#include "app/lesson/situation.h"
#include "runtime/train.h"
#include "sim/report/report.h"

namespace app::lesson {

// A variant's run; or why there is none, a sentence.
struct MeasuredRun {
  std::shared_ptr<const sim::Report> report;
  std::string why_not;
};
using MeasuredRuns = std::vector<MeasuredRun>;  // by variant; fewer where it was stopped

// Null: the step measures nothing.
const Measurement* measurement_of(const Step& step);
// The place of its block in the step, and in what is shown of it.
std::size_t measurement_block(const Step& step);

// As it runs here: the program's own kernels on the CPU in fp32, with the scenario's kind of attention. Its
// hardware is this machine's where that has been measured, else nothing is known of it. What reads a text
// begins with a prompt of one token.
sim::Scenario as_measured_here(sim::Scenario scenario, const Measurement& measurement);

// Whether a report is of that scenario, on whatever hardware.
bool is_run_of(const sim::Report& report, const sim::Scenario& scenario);

// The text that perplexities are of: presets/texts/factory.txt.
std::filesystem::path text_to_read();

// Runs all variants, one after the other; this machine is calibrated before where it is not yet. The sink has
// a ProgressEvent now and then: percent of all runs, and the time left. Training repeats steps for about
// `seconds`, at least five. `told` is given each run as it ends.
MeasuredRuns measure(const Measurement& measurement, const sim::Scenario& scenario, Predictions& predictions,
                     sim::Seconds seconds, const runtime::EventSink& sink, const std::stop_token& stop,
                     const std::function<void(const MeasuredRun&)>& told = {});

}  // namespace app::lesson
