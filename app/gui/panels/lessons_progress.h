// What a learner has seen, answered, reached and measured, kept between starts.
#pragma once
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>

#include "app/gui/panels/lessons_series.h"
#include "app/lesson/lesson.h"

namespace app::gui {

struct LessonAnswer {
  std::string text;  // a choice's number, or what was typed
  bool locked = false;
};
struct LessonProgress {
  std::map<std::string, std::size_t> steps;     // of a lesson: those that were seen
  std::map<std::string, lesson::Tier> tiers;    // of a mission: the best that was reached
  std::map<std::string, GrowthByName> growth;   // that was measured, by the series set
  std::map<std::string, LessonAnswer> answers;  // "cost-of-a-step/0/2": lesson, step, block
};
// A mission scores a point for bronze, two for silver, three for gold.
int score_of(const LessonProgress& progress);
LessonProgress load_lesson_progress(const std::filesystem::path& directory);
void save_lesson_progress(const LessonProgress& progress, const std::filesystem::path& directory);

}  // namespace app::gui
