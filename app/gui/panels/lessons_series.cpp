#include "app/gui/panels/lessons_series.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <variant>

#include "app/gui/jobs/child_process.h"
#include "app/gui/jobs/progress_words.h"
#include "sim/report/events.h"

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

std::string growth_to_json(const GrowthByName& growths) {
  nlohmann::json all = nlohmann::json::array();
  for (const auto& [name, growth] : growths) {
    nlohmann::json one = nlohmann::json::object();
    const auto put = [&](const char* key, std::optional<double> exponent) {
      if (exponent) one[key] = *exponent;
    };
    put("time_predicted", growth.time_predicted);
    put("time_measured", growth.time_measured);
    put("memory_predicted", growth.memory_predicted);
    put("memory_measured", growth.memory_measured);
    all.push_back({{"name", name}, {"growth", std::move(one)}});
  }
  return nlohmann::json{{"series", std::move(all)}}.dump();
}

GrowthByName measure_growth(const SeriesQuestion& question, const GrowthStudy::Course& course) {
  std::string json;
  run_to_end(
      {question.executable, "measure", question.series, "--stream"},
      [&](std::string_view line) {
        try {
          const sim::Event event = sim::event_from_ndjson(line);
          if (const auto* progress = std::get_if<sim::ProgressEvent>(&event))
            course.report(progress->done, progress->of, words_of(*progress));
        } catch (const std::exception&) {  // the result, which is no event, stands in the last line
          json = line;
        }
      },
      [&] { return course.stopped(); });
  if (course.stopped()) return {};
  return growth_from_json(json);
}

}  // namespace app::gui
