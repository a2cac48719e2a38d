#include "sim/scenario/scenario_series.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "sim/scenario/overrides.h"
#include "sim/scenario/scenario_json.h"

namespace sim {
namespace {

constexpr std::size_t kMostPoints = 1000;  // of a series: each is a run

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Fields that vary together: the paths of one key, and its values.
struct Axis {
  std::vector<std::string> paths;
  std::vector<Json> values;
};

Axis axis_from(JsonObject& vary, const std::string& key) {
  Axis axis;
  std::istringstream paths(key);
  for (std::string path; std::getline(paths, path, ',');) {
    const std::size_t first = path.find_first_not_of(' ');
    if (first == std::string::npos) vary.fail(key, "must name fields, by commas");
    axis.paths.push_back(path.substr(first, path.find_last_not_of(' ') + 1 - first));
  }
  const Json& values = vary.at(key);
  if (!values.is_array() || values.empty()) vary.fail(key, "must be a list of values, as [1, 2, 4]");
  axis.values.assign(values.begin(), values.end());
  return axis;
}

void add_points(ScenarioSeries& series, const Scenario& base, const std::vector<Axis>& axes,
                JsonObject& object) {
  std::size_t points = 1;
  for (const Axis& axis : axes) {
    points *= axis.values.size();
    if (points > kMostPoints)
      object.fail("vary", "must have at most " + std::to_string(kMostPoints) + " combinations");
  }
  for (std::size_t i = 0; i < points; ++i) {
    SeriesPoint point;
    std::vector<Override> overrides;
    std::size_t rest = i, block = points;
    for (const Axis& axis : axes) {  // the last one varies fastest
      block /= axis.values.size();
      const Json& value = axis.values[rest / block];
      rest %= block;
      for (const std::string& path : axis.paths) overrides.push_back({path, value.dump()});
      point.at += (point.at.empty() ? "" : ", ") + text_of(value);
      if (series.of_numbers) point.x = value.get<double>();
    }
    point.scenario = with_overrides(base, overrides, object.file() + ": " + object.field("vary"));
    series.points.push_back(std::move(point));
  }
}

GrowthClaim claim_from(JsonObject object) {
  GrowthClaim claim;
  if (object.has_value("time")) claim.time = object.number("time");
  if (object.has_value("memory")) claim.memory = object.number("memory");
  claim.says = object.text("says");
  claim.source = object.text("source");
  claim.why_apart = object.text("why_apart", "");
  object.finish();
  return claim;
}

Scenario base_from(JsonObject& object) {
  const Json& said = object.at("scenario");
  if (!said.is_string()) return scenario_from(object.object("scenario"));
  try {
    return load_scenario_preset(said.get<std::string>());
  } catch (const PresetError& error) {
    object.fail("scenario", error.what());
  }
}

ScenarioSeries one_series_from(JsonObject object) {
  ScenarioSeries series;
  series.name = object.text("name");
  Scenario base = base_from(object);
  std::vector<Override> overrides;
  if (object.has("set"))
    for (const auto& [path, value] : object.at("set").items()) overrides.push_back({path, value.dump()});
  base = with_overrides(base, overrides, object.file() + ": " + object.field("set"));
  std::vector<Axis> axes;
  if (object.has("vary")) {
    JsonObject vary = object.object("vary");
    for (const auto& [key, values] : object.at("vary").items()) {
      axes.push_back(axis_from(vary, key));
      series.varied += (series.varied.empty() ? "" : ", ") + key;
    }
  }
  series.of_numbers = axes.size() == 1 && std::ranges::all_of(axes.front().values, [](const Json& value) {
                        return value.is_number();
                      });
  if (object.has("claim")) {
    if (!series.of_numbers)
      object.fail("claim", "is of the growth with one number: \"vary\" must have one field");
    series.claim = claim_from(object.object("claim"));
  }
  add_points(series, base, axes, object);
  object.finish();
  return series;
}

}  // namespace

SeriesSet series_from(JsonObject object) {
  SeriesSet set;
  set.title = object.text("title");
  object.text("source");
  for (JsonObject& series : object.objects("series"))
    set.series.push_back(one_series_from(std::move(series)));
  if (set.series.empty()) object.fail("series", "must have at least one");
  object.finish();
  return set;
}

SeriesSet series_from_json(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  return series_from(JsonObject(json, file));
}

std::size_t SeriesSet::points() const {
  std::size_t points = 0;
  for (const ScenarioSeries& one : series) points += one.points.size();
  return points;
}

std::optional<double> power_of_growth(const std::vector<double>& x, const std::vector<double>& y) {
  double n = 0, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!(x[i] > 0) || !(y[i] > 0)) continue;
    const double a = std::log(x[i]), b = std::log(y[i]);
    n += 1, sum_x += a, sum_y += b, sum_xx += a * a, sum_xy += a * b;
  }
  const double spread = n * sum_xx - sum_x * sum_x;
  if (n < 2 || !(spread > 1e-12)) return std::nullopt;
  return (n * sum_xy - sum_x * sum_y) / spread;
}

}  // namespace sim
