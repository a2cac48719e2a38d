// ridgepoint schema: the shape of what is read and written, as JSON Schema. It is derived from values that
// the program itself writes, so that schema and program always agree.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/command.h"
#include "app/cli/flags.h"
#include "app/cli/plan_sweep.h"
#include "sim/cost/predict.h"
#include "sim/report/events.h"
#include "sim/scenario/fields.h"
#include "sim/scenario/preset.h"

namespace app::cli {

namespace {

using Json = nlohmann::ordered_json;

Json schema_of(const Json& value) {
  if (value.is_object()) {
    Json properties = Json::object();
    for (const auto& [key, member] : value.items()) properties[key] = schema_of(member);
    return {{"type", "object"}, {"properties", properties}};
  }
  if (value.is_array()) {
    Json schema = {{"type", "array"}};
    if (!value.empty()) schema["items"] = schema_of(value.front());
    return schema;
  }
  if (value.is_string()) return {{"type", "string"}};
  if (value.is_boolean()) return {{"type", "boolean"}};
  if (value.is_number_integer()) return {{"type", "integer"}};
  if (value.is_number()) return {{"type", "number"}};
  return Json::object();  // null: any value
}

sim::Scenario example_scenario() {
  sim::Scenario scenario;
  scenario.model = sim::load_model_preset("tiny-llama");
  scenario.hardware = sim::load_hardware_preset("h100-sxm");
  scenario.implementation = sim::load_implementation_preset("ridgepoint");
  scenario.workload.seq_len = scenario.model.max_position_embeddings;
  // Files leave these types out where they equal the workload's own.
  sim::Workload& w = scenario.workload;
  w.kv_dtype = w.dtype;
  sim::for_each_stored_type([&](const auto& field) { w.*field.member = w.dtype; });
  return scenario;
}

// A report with one of everything that it may hold.
sim::Report example_report() {
  sim::Report report = sim::predict(example_scenario());
  report.steps.push_back({1, 5.5, 1.25, sim::Seconds{0.25}, 1024, 2.5, 40.5});
  report.tokens.push_back({0, 17, "the", sim::Seconds{0.25}, 2.5});
  report.device_samples.push_back({sim::Seconds{0.25}, 1755.5, 2619.5, 698.5, 61.5, "power cap"});
  return report;
}

Json event_schema(const sim::Report& report) {
  const std::vector<sim::Event> events = {
      sim::BeginEvent{report.source, 100},
      sim::ProgressEvent{"calibrating", 3, 12, sim::Seconds{4.5}},
      report.steps.front(),
      report.tokens.front(),
      report.rows.front(),
      report.memory.front(),
      report.memory_timeline.front(),
      sim::CheckpointEvent{50, "checkpoint"},
      report.device_samples.front(),
      sim::RankTimelineEvent{7, 0, 8, {sim::TimelineSlot{}}},
      sim::OperationTimelineEvent{7,
                                  0,
                                  8,
                                  sim::Seconds{0.25},
                                  {{{"layer.mlp.up.forward", sim::Phase::forward}}, {sim::OperationSpan{}}}},
      sim::StepMemoryEvent{1, {}, sim::Seconds{0.25}, sim::Bytes{1 << 30}, {report.memory_timeline.front()}},
      sim::EndEvent{.step_time = report.step_time,
                    .step_low = report.step_low,
                    .step_high = report.step_high,
                    .message = "",
                    .slowdown = report.source.slowdown},
      sim::ErrorEvent{"", 6}};
  Json kinds = Json::array();
  for (const sim::Event& event : events) {
    const Json line = Json::parse(sim::to_ndjson(event));
    Json kind = schema_of(line);
    kind["properties"]["event"] = {{"const", line["event"]}};
    kinds.push_back(std::move(kind));
  }
  return {{"oneOf", std::move(kinds)}};
}

ExitCode schema(const std::string& of) {
  Json result;
  if (of == "scenario")
    result = schema_of(Json::parse(sim::to_json(example_scenario())));
  else if (of == "report")
    result = schema_of(Json::parse(sim::to_json(example_report())));
  else if (of == "event")
    result = event_schema(example_report());
  else if (of == "sweep")
    result = Json::parse(sweep_schema());
  else
    throw UsageError(
        fmt::format("schema is of a scenario, a report, an event or a sweep, not of \"{}\"", of));
  Json document = {
      {"$schema", "https://json-schema.org/draft/2020-12/schema"},
      {"title", "Ridgepoint " + of + ", schema version " + std::to_string(sim::kReportSchemaVersion)}};
  document.update(result);
  fmt::print("{}\n", document.dump(2));
  return ExitCode::fine;
}

}  // namespace

void add_schema(CLI::App& program, Invocation& invocation) {
  const auto of = std::make_shared<std::string>();
  CLI::App* command = program.add_subcommand(
      "schema", describe("Print the JSON Schema of scenarios, reports, a run's events or a sweep.",
                         {"ridgepoint schema report", "ridgepoint schema scenario", "ridgepoint schema event",
                          "ridgepoint schema sweep"}));
  command->add_option("OF", *of, "scenario, report, event or sweep")->required();
  command->callback([of, &invocation] { invocation.run = [of] { return schema(*of); }; });
}

}  // namespace app::cli
