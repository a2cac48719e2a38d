// Where each lecture was left: the presenter's mode goes on there, in a later session, too.
#pragma once
#include <cstddef>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace app::gui {

struct LecturePlace {
  std::string panel;                          // that was shown large, by its id
  std::size_t step = 0;                       // of the lesson
  std::optional<float> scale = std::nullopt;  // of the interface; empty: the presenter's own
  bool operator==(const LecturePlace&) const = default;
};

// By the lesson's id; "" while no lesson was open.
using Lectures = std::map<std::string, LecturePlace>;

nlohmann::json to_json(const Lectures& lectures);
// Leaves out what cannot be read; `problem` is then a sentence about the first such part.
Lectures lectures_from_json(const nlohmann::json& json, const std::string& file, std::string& problem);

}  // namespace app::gui
