// How cost grows on this machine: a series of runs, in a process of its own, as exponents of growth.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "app/gui/jobs/study.h"

namespace app::gui {

struct SeriesQuestion {
  std::string executable, series;
  bool operator==(const SeriesQuestion&) const = default;
};
// Exponents of one series: predicted for the machine as its probe found it, and measured.
struct SeriesGrowth {
  std::optional<double> time_predicted, time_measured, memory_predicted, memory_measured;
  bool operator==(const SeriesGrowth&) const = default;
};
using GrowthByName = std::map<std::string, SeriesGrowth>;  // of each series of the set
using GrowthStudy = Study<SeriesQuestion, GrowthByName>;

std::string power_text(double exponent);  // "1.93"

// What `ridgepoint measure --format json` wrote. Throws std::runtime_error where it is no such text.
GrowthByName growth_from_json(std::string_view json);
// As much of it as growth_from_json() reads.
std::string growth_to_json(const GrowthByName& growth);
// Runs it. Throws std::runtime_error, a sentence.
GrowthByName measure_growth(const SeriesQuestion& question, const GrowthStudy::Course& course);

}  // namespace app::gui
