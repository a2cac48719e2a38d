// What a step of a lesson measures on this machine, in a process of its own.
#pragma once
#include <filesystem>
#include <string>

#include "app/gui/jobs/study.h"
#include "app/lesson/measure.h"

namespace app::gui {

struct LessonRunQuestion {
  std::string executable;      // this program
  std::filesystem::path file;  // of the lesson
  std::size_t step = 0;        // from 0
  sim::Scenario scenario;      // that the step has now
  bool operator==(const LessonRunQuestion&) const = default;
};
using LessonRunStudy = Study<LessonRunQuestion, lesson::MeasuredRuns>;

// Throws std::runtime_error, a sentence. Cancelled: what ended until then.
lesson::MeasuredRuns measure_step(const LessonRunQuestion& question, const LessonRunStudy::Course& course);

// What is kept of a step between starts: a file of `folder`, by the lesson's name and the step.
void keep_runs(const lesson::MeasuredRuns& runs, const std::filesystem::path& folder,
               const std::string& lesson, std::size_t step);
// None where there is no file, or one that cannot be read, which is set aside.
lesson::MeasuredRuns kept_runs(const std::filesystem::path& folder, const std::string& lesson,
                               std::size_t step);

}  // namespace app::gui
