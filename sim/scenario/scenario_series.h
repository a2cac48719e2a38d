// clang-format off
// Series of scenarios that differ in few fields, presets/series/NAME.json: what is predicted and measured one
// after the other, to see how right predictions are and how cost grows.
//
//   {"title": "...", "source": "...",
//    "series": [{"name": "vanilla training, deeper models",
//                "scenario": "train-gpt-10m-here",                  a scenario as in any file
//                "set": {"workload.seq_len": 256},                  fields of it by their paths, as of --set
//                "vary": {"model.num_hidden_layers": [2, 4, 8]},    all combinations; paths joined by
//                                                                   commas take one value together
//                "claim": {"time": 1, "memory": 1, "says": "O(N²L) time, O(NL) memory", "source": "..."}}]}
//
// A claim is of the exponent in the one number that is varied: time or working memory (that of the
// parameters, gradients and optimizer states left out) grow as its power; "why_apart" has the reason where
// they do not yet at these sizes.
// clang-format on
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/scenario/scenario.h"

namespace sim {

struct SeriesPoint {
  std::string at;  // "8", "8, full": the values that are varied
  double x = 0;    // the number, where one field is varied and all its values are numbers
  Scenario scenario;
};

struct GrowthClaim {
  std::optional<double> time, memory;  // exponents
  std::string says, source;
  std::string why_apart;  // the reason, where sizes that run here grow otherwise
};

struct ScenarioSeries {
  std::string name;
  std::string varied;  // "model.num_hidden_layers"; empty where nothing is
  bool of_numbers = false;
  std::vector<SeriesPoint> points;
  std::optional<GrowthClaim> claim;
};

struct SeriesSet {
  std::string title;
  std::vector<ScenarioSeries> series;
  std::size_t points() const;  // of all series: a run each
};

// Throws PresetError, one sentence that names the file and the field. Hardware stays what the scenarios say.
SeriesSet series_from_json(std::string_view json, const std::string& file);

// The exponent of a power law through points of positive numbers, by least squares in logarithms; empty for
// fewer than two different x.
std::optional<double> power_of_growth(const std::vector<double>& x, const std::vector<double>& y);

}  // namespace sim
