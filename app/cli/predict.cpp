// ridgepoint predict: a scenario's report without running anything.
#include "sim/cost/predict.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/cli/command.h"
#include "app/cli/event_output.h"
#include "app/cli/interrupt.h"
#include "app/cli/predict_serving.h"
#include "app/cli/report_output.h"
#include "app/cli/run_cost.h"
#include "app/cli/scenario_flags.h"
#include "app/cli/text_table.h"
#include "sim/advise/fit.h"
#include "sim/format.h"
#include "sim/report/metrics.h"
#include "sim/serving/served_batch.h"

namespace app::cli {

namespace {

struct PredictFlags {
  ScenarioFlags scenario;
  RunCostFlags run;
  ServingFlags serving;
  std::string batch;
  Format format = Format::text;
};

TextTable changes_table(const sim::Scenario& scenario, const sim::Calibration* calibration) {
  TextTable table{{{"change", TextTable::Align::left}, {"peak"}, {"step"}, {"fits", TextTable::Align::left}},
                  {}};
  constexpr std::size_t kMost = 8;
  for (const sim::FitChange& c : sim::changes_that_fit(scenario, calibration)) {
    if (table.rows.size() == kMost) break;
    table.rows.push_back({c.change, sim::format(c.peak), sim::format(c.step), c.fits ? "yes" : "no"});
  }
  return table;
}

ExitCode predict_one(const PredictFlags& flags) {
  const InterruptSignals interrupt;
  EventOutput events({});
  const ResolvedScenario resolved = resolve_for_prediction(flags.scenario, events.sink(), interrupt.stop());
  if (interrupt.arrived()) return ExitCode::interrupted;
  if (sim::is_served(resolved.scenario))
    return predict_serving(resolved, flags.serving, flags.run, flags.format);
  if (flags.serving.traffic())
    throw UsageError(
        "traffic is served by an inference engine: --implementation vllm_0.14, tensorrt_llm_1.0, ...");
  const sim::Report report = sim::predict(resolved.scenario, pointer_to(resolved.calibration));
  fmt::print("{}", report_as(report, flags.format, run_cost_metrics(report, flags.run)));
  if (sim::fits(report)) return ExitCode::fine;
  events.progress().note("ridgepoint: this does not fit the device's memory");
  if (flags.format == Format::text && resolved.scenario.workload.task == sim::Task::train)
    fmt::print("\nSingle changes that lower the peak, those that fit first:\n{}",
               changes_table(resolved.scenario, pointer_to(resolved.calibration)).text());
  return ExitCode::constraint;
}

sim::Report predict_line(const std::string& line, const std::string& where, EventOutput& events,
                         const std::stop_token& stop) {
  sim::Scenario scenario = read_scenario(line, where);
  fill_this_machine(scenario, events.sink(), stop);
  require_valid(scenario);
  return sim::predict(scenario, pointer_to(calibration_of(scenario.hardware)));
}

// Prints one result a line, in the order of the input. A line that cannot be predicted says why in its place,
// and the first such line gives the exit code.
ExitCode predict_batch(const PredictFlags& flags) {
  const InterruptSignals interrupt;
  EventOutput events({});
  std::istringstream lines(read_file(flags.batch));
  if (flags.format != Format::json) fmt::print("{}", metrics_csv_header());
  ExitCode first_failure = ExitCode::fine;
  std::string line;
  for (int number = 1; std::getline(lines, line) && !interrupt.arrived(); ++number) {
    if (line.empty()) continue;
    const std::string where = fmt::format("{} line {}", flags.batch, number);
    try {
      const sim::Report report = predict_line(line, where, events, interrupt.stop());
      if (flags.format == Format::json)
        fmt::print("{}", report_json(report, -1));
      else
        fmt::print("{}", metrics_csv_line(report));
    } catch (const std::exception&) {
      const Failure failure = failure_of(std::current_exception());
      if (first_failure == ExitCode::fine) first_failure = failure.code;
      events.progress().note(fmt::format("ridgepoint: {}: {}", where, failure.message));
      if (flags.format == Format::json) {
        const nlohmann::ordered_json error = {
            {"line", number}, {"error", failure.message}, {"exit_code", static_cast<int>(failure.code)}};
        fmt::print("{}\n", error.dump());
      } else {
        fmt::print("{}", metrics_csv_failure(failure.message));
      }
    }
  }
  return interrupt.arrived() ? ExitCode::interrupted : first_failure;
}

}  // namespace

void add_predict(CLI::App& program, Invocation& invocation) {
  const auto flags = std::make_shared<PredictFlags>();
  CLI::App* command = program.add_subcommand(
      "predict",
      describe(
          "Predict time, memory and utilisation of a scenario, operation by operation.",
          {"ridgepoint predict --model llama-3.2-1b --hardware h100-sxm --seq-len 8k",
           "ridgepoint predict --model gpt2-124m --hardware this-machine --micro-batch 4 --seq-len 1k",
           "ridgepoint predict --model llama-3.1-8b --prompt-length 1k --max-new-tokens 256 --format json",
           "ridgepoint predict --model llama-3.1-8b --implementation vllm_0.14 --requests-per-second 10 "
           "--prompt-length 1k "
           "--max-new-tokens 200",
           "ridgepoint predict --scenario train-llama-3.1-405b-16384-h100 --tokens 15.6T --site hyperscaler",
           "ridgepoint predict --scenario my_run.json --dtype bf16 --format md",
           "ridgepoint predict --batch scenarios.ndjson --format csv"}));
  flags->scenario.add_to(*command);
  flags->run.add_to(*command);
  flags->serving.add_to(*command);
  command
      ->add_option("--batch", flags->batch,
                   "a scenario a line; results come in the same order, as csv or json")
      ->type_name("FILE");
  add_format(*command, flags->format, {Format::text, Format::json, Format::csv, Format::markdown});
  command->callback([flags, &invocation] {
    invocation.run = [flags] {
      if (flags->batch.empty()) return predict_one(*flags);
      if (flags->format == Format::markdown) throw UsageError("--batch writes csv or json");
      return predict_batch(*flags);
    };
  });
}

}  // namespace app::cli
