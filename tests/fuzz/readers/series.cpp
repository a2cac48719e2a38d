// A series of scenarios: every point has a scenario that is written as it is read.
// Read by: sim/scenario/scenario_series.cpp
#include "sim/scenario/preset.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  return files_of("presets/series", ".json");
}

void fuzz::read(std::string_view input) {
  const sim::SeriesSet set = sim::series_from_json(input, kFile);
  require(!set.series.empty(), "a set has a series");
  for (const sim::ScenarioSeries& series : set.series) {
    require(!series.points.empty(), "a series has a point");
    require(series.claim.has_value() <= series.of_numbers, "a claim is of a number");
    const sim::Scenario& first = series.points.front().scenario;
    if (first.hardware.peak.empty()) continue;  // this machine, by name alone
    const std::string written = sim::to_json(first);
    require_same(sim::to_json(sim::scenario_from_json(written, kFile)), written,
                 "a scenario of a series is written as it is read");
  }
}
