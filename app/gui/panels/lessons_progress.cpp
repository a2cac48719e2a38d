#include "app/gui/panels/lessons_progress.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/cli/flags.h"
#include "runtime/formats/set_aside.h"
#include "sim/file_text.h"
#include "sim/foreign_text.h"

namespace app::gui {
namespace {

constexpr const char* kProgressFile = "lessons.json";
constexpr const char* kNoProgress = "lessons begin at their first step";

}  // namespace

LessonProgress load_lesson_progress(const std::filesystem::path& directory) {
  LessonProgress progress;
  if (directory.empty()) return progress;
  const std::filesystem::path path = directory / kProgressFile;
  std::optional<std::string> content;
  try {
    content = sim::file_text(path);
  } catch (const std::exception& error) {  // a disk that fails, a file that does not end
    runtime::set_aside(path, error.what(), kNoProgress);
  }
  if (!content) return progress;
  const nlohmann::json file =
      sim::nested_too_deep(*content) ? nlohmann::json() : nlohmann::json::parse(*content, nullptr, false);
  if (!file.is_object()) {
    runtime::set_aside(path, path.string() + " must be a JSON object", kNoProgress);
    return progress;
  }
  if (const auto steps = file.find("steps"); steps != file.end() && steps->is_object())
    for (const auto& [id, seen] : steps->items())
      if (seen.is_number_unsigned()) progress.steps[id] = seen.get<std::size_t>();
  if (const auto tiers = file.find("missions"); tiers != file.end() && tiers->is_object())
    for (const auto& [id, tier] : tiers->items())
      if (const auto known =
              std::ranges::find(lesson::kTiers, tier.is_string() ? tier.get<std::string>() : "");
          known != lesson::kTiers.end())
        progress.tiers[id] = static_cast<lesson::Tier>(known - lesson::kTiers.begin());
  if (const auto growth = file.find("growth"); growth != file.end() && growth->is_object())
    for (const auto& [series, measured] : growth->items()) try {
        progress.growth[series] = growth_from_json(measured.dump());
      } catch (const std::exception&) {  // it can be measured again
      }
  if (const auto answers = file.find("answers"); answers != file.end() && answers->is_object())
    for (const auto& [id, text] : answers->items())
      if (text.is_string()) progress.answers[id] = {text.get<std::string>(), true};
  return progress;
}

void save_lesson_progress(const LessonProgress& progress, const std::filesystem::path& directory) {
  if (directory.empty()) return;
  nlohmann::json file = {{"steps", progress.steps}, {"answers", nlohmann::json::object()}};
  for (const auto& [id, tier] : progress.tiers)
    file["missions"][id] = lesson::kTiers[static_cast<std::size_t>(tier)];
  for (const auto& [series, measured] : progress.growth)
    if (!measured.empty()) file["growth"][series] = nlohmann::json::parse(growth_to_json(measured));
  for (const auto& [id, answer] : progress.answers)
    if (answer.locked) file["answers"][id] = answer.text;
  try {
    std::filesystem::create_directories(directory);
    cli::write_file((directory / kProgressFile).string(), file.dump(2));
  } catch (const std::exception&) {
    // A lesson goes on where nothing can be kept.
  }
}

int score_of(const LessonProgress& progress) {
  int score = 0;
  for (const auto& [id, tier] : progress.tiers) score += static_cast<int>(tier) + 1;
  return score;
}

}  // namespace app::gui
