// The stream of a run, as a recording has it and as a child process sends it.
// Read by: sim/report/events.cpp sim/json_object.cpp
#include "sim/report/events.h"

#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  sim::Report report;
  report.source.scenario = sim::load_scenario_preset(sim::preset_names(sim::PresetKind::scenario).front());
  report.source.device = "GPU";
  report.rows.resize(2);
  report.rows[0].id = "embedding";
  report.rows[1].id = "head";
  report.memory = {{"weight", 0, {100}}};
  report.memory_timeline.resize(1);
  report.steps = {{1, 4.5, 1.25, {0.5}, 64}};
  report.tokens = {{0, 17, " the", {0.04}}};
  report.device_samples = {{{1.5}, 1755, 2619, 698.5, 61, "power cap"}};
  std::string stream;
  for (const sim::Event& event : sim::events_of(report)) stream += sim::to_ndjson(event) + "\n";
  std::string rest;
  for (const sim::Event& event :
       {sim::Event(sim::ProgressEvent{"calibrating", 3, 12, {4.5}}),
        sim::Event(sim::CheckpointEvent{50, "here"}), sim::Event(sim::ErrorEvent{"no memory", 6})})
    rest += sim::to_ndjson(event) + "\n";
  return {stream, rest};
}

void fuzz::read(std::string_view input) {
  sim::Report report;
  while (!input.empty()) {
    const std::size_t end = std::min(input.find('\n'), input.size());
    const std::string_view line = input.substr(0, end);
    input.remove_prefix(std::min(end + 1, input.size()));
    try {
      const sim::Event event = sim::event_from_ndjson(line);
      const std::string written = sim::to_ndjson(event);
      require_same(sim::to_ndjson(sim::event_from_ndjson(written)), written,
                   "an event is written as it is read");
      require(written.find('\n') == std::string::npos, "an event is one line");
      sim::apply(report, event);
    } catch (const sim::PresetError&) {  // of a line; its reader names the stream
    }
  }
  sim::step_time(report);
  sim::tokens_per_second(report);
  sim::fits(report);
}
