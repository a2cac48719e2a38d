// Runs what `:measure` of a lesson asks for: the step's scenario on this machine, once for each variant.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
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

// The step's measurement; null where the step measures nothing.
const Measurement* measurement_of(const Step& step);
// The index of the measurement's block in the step, and in the shown step.
std::size_t measurement_block(const Step& step);

// Whether the measurement asks for the quantity.
bool asks_for(const Measurement& measurement, std::string_view quantity);

// The scenario as it runs here: the program's own kernels on the CPU, with the scenario's kind of attention,
// in fp32 unless the variants differ in their type. Its hardware is this machine's where that was measured;
// otherwise nothing is known of it. A measurement that reads a text begins with a prompt of one token.
sim::Scenario as_measured_here(sim::Scenario scenario, const Measurement& measurement);

// Whether a report is of that scenario, on whatever hardware.
bool is_run_of(const sim::Report& report, const sim::Scenario& scenario);

// The text on which perplexity is measured: presets/texts/factory.txt.
std::filesystem::path text_to_read();

inline constexpr std::int64_t kLearningSteps = 100;

// Runs all variants, one after the other; first calibrates this machine if it is not calibrated. The sink
// gets a ProgressEvent now and then: percent of all runs, and the time left. Training repeats steps for about
// `seconds`, at least five steps; where it asks for the loss, each variant trains for kLearningSteps steps,
// on the same tokens from the same weights. `told` is called with each run as it ends.
MeasuredRuns measure(const Measurement& measurement, const sim::Scenario& scenario, Predictions& predictions,
                     sim::Seconds seconds, const runtime::EventSink& sink, const std::stop_token& stop,
                     const std::function<void(const MeasuredRun&)>& told = {});

}  // namespace app::lesson
