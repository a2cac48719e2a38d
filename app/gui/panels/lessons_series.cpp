#include "app/gui/panels/lessons_series.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "app/gui/jobs/child_process.h"

namespace app::gui {

std::string power_text(double exponent) {
  return fmt::format("{:.2f}", exponent);
}

GrowthByName growth_from_json(std::string_view json) {
  const nlohmann::json file = nlohmann::json::parse(json, nullptr, false);
  if (!file.is_object() || !file.contains("series") || !file["series"].is_array())
    throw std::runtime_error("The series of runs ended without its result.");
  GrowthByName growths;
  for (const nlohmann::json& series : file["series"]) {
    const nlohmann::json growth = series.value("growth", nlohmann::json::object());
    const auto exponent = [&](const char* key) {
      return growth.contains(key) ? std::optional(growth[key].get<double>()) : std::nullopt;
    };
    growths[series.value("name", "")] = {exponent("time_predicted"), exponent("time_measured"),
                                         exponent("memory_predicted"), exponent("memory_measured")};
  }
  return growths;
}

GrowthByName measure_growth(const SeriesQuestion& question, const GrowthStudy::Course& course) {
  std::string json;
  run_to_end(
      {question.executable, "measure", question.series, "--format", "json"},
      [&json](std::string_view line) { json.append(line).append("\n"); }, [&] { return course.stopped(); });
  if (course.stopped()) return {};
  return growth_from_json(json);
}

}  // namespace app::gui
