#include "app/lesson/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <utility>

#include "app/cli/flags.h"
#include "runtime/measured_series.h"
#include "runtime/model_source.h"
#include "runtime/this_machine.h"
#include "sim/cost/predict.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"

namespace app::lesson {
namespace {

using Clock = std::chrono::steady_clock;

bool reads_text(const Measurement& measurement) {
  return asks_for(measurement, "perplexity");
}

bool differs_in_type(const Measurement& measurement) {
  return std::ranges::any_of(measurement.variants, [](const Variant& variant) {
    return std::ranges::any_of(variant.changes,
                               [](const auto& change) { return change.path == "workload.dtype"; });
  });
}

// A pretrained model with the scenario's shape. Other models have no weights that could judge a text.
runtime::ModelSource reader_of(const sim::Model& model) {
  std::string names;
  for (const runtime::PretrainedModel& known : runtime::pretrained_models()) {
    runtime::ModelSource source = runtime::open_model(known.name);
    sim::Model alike = model;
    alike.name = source.model.name;
    alike.source = source.model.source;
    // Files store this value in single precision.
    if (static_cast<float>(alike.norm_eps) == static_cast<float>(source.model.norm_eps))
      alike.norm_eps = source.model.norm_eps;
    if (alike == source.model) return source;
    names += (names.empty() ? "" : ", ") + known.name;
  }
  throw std::runtime_error(fmt::format(
      "perplexity is of a model with trained weights, and {} has none here; those of the shape of {} do",
      model.name, names));
}

// Reports twice a second how far all runs are.
class Course {
 public:
  Course(std::size_t runs, const runtime::EventSink& sink) : runs_(runs), sink_(sink) {}

  void begin(std::size_t run, const std::string& name) {
    run_ = run;
    name_ = name;
    planned_ = seen_ = 0;
    tell();
  }
  void hear(const sim::Event& event) {
    if (const auto* begun = std::get_if<sim::BeginEvent>(&event)) {
      planned_ = begun->planned;
      seen_ = 0;
    }
    if (std::holds_alternative<sim::StepResult>(event) || std::holds_alternative<sim::TokenResult>(event))
      ++seen_;
    if (Clock::now() - told_ > std::chrono::milliseconds(500)) tell();
  }

 private:
  void tell() {
    told_ = Clock::now();
    // Progress never goes back when a run is repeated.
    const double part =
        planned_ > 0 ? std::min(1.0, static_cast<double>(seen_) / static_cast<double>(planned_)) : 0;
    share_ = std::max(share_, (static_cast<double>(run_) + part) / static_cast<double>(runs_));
    const double spent = std::chrono::duration<double>(told_ - begun_).count();
    if (sink_)
      sink_(sim::ProgressEvent{
          fmt::format("{}run {} of {}", name_.empty() ? "" : name_ + ", ", run_ + 1, runs_),
          std::llround(100 * share_),
          100,
          {share_ > 0 ? spent / share_ * (1 - share_) : 0}});
  }

  const std::size_t runs_;
  const runtime::EventSink& sink_;
  const Clock::time_point begun_ = Clock::now();
  Clock::time_point told_;
  std::size_t run_ = 0;
  std::string name_;
  std::int64_t planned_ = 0, seen_ = 0;
  double share_ = 0;
};

}  // namespace

const Measurement* measurement_of(const Step& step) {
  for (const Block& block : step.blocks)
    if (const auto* measurement = std::get_if<Measurement>(&block)) return measurement;
  return nullptr;
}

std::size_t measurement_block(const Step& step) {
  const auto found = std::ranges::find_if(
      step.blocks, [](const Block& block) { return std::holds_alternative<Measurement>(block); });
  return static_cast<std::size_t>(found - step.blocks.begin());
}

bool asks_for(const Measurement& measurement, std::string_view quantity) {
  return std::ranges::any_of(measurement.quantities,
                             [&](const Expression& asked) { return asked.names(quantity); });
}

sim::Scenario as_measured_here(sim::Scenario scenario, const Measurement& measurement) {
  const sim::AttentionKind attention = scenario.implementation.attention;
  scenario.implementation = sim::load_implementation_preset("ridgepoint");
  scenario.implementation.attention = attention;
  if (!differs_in_type(measurement)) scenario.workload.dtype = sim::DType::fp32;
  if (reads_text(measurement)) scenario.workload.prompt_length = 1;
  const auto here = runtime::cached_this_machine();
  scenario.hardware = here ? here->hardware : sim::Hardware{};
  return scenario;
}

bool is_run_of(const sim::Report& report, const sim::Scenario& scenario) {
  sim::Scenario ran = report.source.scenario;
  ran.hardware = scenario.hardware;
  return ran == scenario;
}

std::filesystem::path text_to_read() {
  return sim::preset_directory() / "texts" / "factory.txt";
}

MeasuredRuns measure(const Measurement& measurement, const sim::Scenario& scenario, Predictions& predictions,
                     sim::Seconds seconds, const runtime::EventSink& sink, const std::stop_token& stop,
                     const std::function<void(const MeasuredRun&)>& told) {
  const sim::Calibration here = runtime::this_machine(sink, stop);
  std::optional<runtime::ModelSource> reader;
  runtime::ShortRun like;
  if (reads_text(measurement)) {
    reader = reader_of(scenario.model);
    like.reader = &*reader;
    like.text = reader->tokenizer->encode(cli::read_file(text_to_read().string()), true);
  }
  if (asks_for(measurement, "loss")) like.learning_steps = kLearningSteps;
  MeasuredRuns runs;
  Course course(measurement.variants.size(), sink);
  for (const Variant& variant : measurement.variants) {
    if (stop.stop_requested()) break;
    course.begin(runs.size(), variant.label);
    const sim::Scenario one =
        as_measured_here(predictions.changed(scenario, variant.changes, "the measurement"), measurement);
    runtime::SeriesRun run = runtime::run_of_series(
        one, here, seconds, [&course](const sim::Event& event) { course.hear(event); }, stop, like);
    if (stop.stop_requested()) break;  // a half measured run is not shown
    if (run.why_not.empty())
      runs.push_back({std::make_shared<const sim::Report>(std::move(run.measured)), {}});
    else
      runs.push_back({nullptr, run.why_not});
    if (told) told(runs.back());
  }
  return runs;
}

}  // namespace app::lesson
