#include "app/gui/lectures.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "app/gui/settings.h"

namespace app::gui {
namespace {

// Steps count from 1, as a lecturer reads them.
LecturePlace place_from_json(const nlohmann::json& json, const std::string& of) {
  LecturePlace place{.panel = json.at("panel").get<std::string>()};
  const nlohmann::json& step = json.at("step");
  if (!step.is_number_unsigned() || step == 0)
    throw std::runtime_error(of + " goes on at a step from 1 on, not " + step.dump());
  place.step = step.get<std::size_t>() - 1;
  if (json.contains("scale"))
    place.scale = std::clamp(json.at("scale").get<float>(), kLeastScale, kGreatestScale);
  return place;
}

}  // namespace

nlohmann::json to_json(const Lectures& lectures) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [lesson, place] : lectures) {
    nlohmann::json& one = json[lesson] = {{"panel", place.panel}, {"step", place.step + 1}};
    if (place.scale) one["scale"] = *place.scale;
  }
  return json;
}

Lectures lectures_from_json(const nlohmann::json& json, const std::string& file, std::string& problem) {
  Lectures lectures;
  const auto say = [&](std::string why) {
    if (problem.empty()) problem = std::move(why);
  };
  if (!json.is_object()) {
    say(file + ": lectures must be an object");
    return lectures;
  }
  for (const auto& [lesson, place] : json.items()) try {
      lectures[lesson] = place_from_json(place, file + ": the lecture \"" + lesson + "\"");
    } catch (const nlohmann::json::exception& error) {
      say(file + ": the lecture \"" + lesson + "\" must be what the window wrote: " + error.what());
    } catch (const std::exception& error) {
      say(error.what());
    }
  return lectures;
}

}  // namespace app::gui
