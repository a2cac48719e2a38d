#include "app/gui/jobs/lesson_runs.h"

#include <exception>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "app/cli/flags.h"
#include "app/gui/jobs/child_process.h"
#include "app/gui/jobs/passed_file.h"
#include "app/gui/jobs/progress_words.h"
#include "runtime/formats/set_aside.h"
#include "sim/file_text.h"
#include "sim/json_object.h"
#include "sim/report/events.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

std::filesystem::path file_of(const std::filesystem::path& folder, const std::string& lesson,
                              std::size_t step) {
  return folder / (lesson + "-" + std::to_string(step + 1) + ".json");
}

}  // namespace

lesson::MeasuredRuns measure_step(const LessonRunQuestion& question, const LessonRunStudy::Course& course) {
  const PassedFile file("lesson.json", sim::to_json(question.scenario));
  lesson::MeasuredRuns runs;
  sim::Report report;
  run_to_end(
      {question.executable, "lesson", question.file.string(), "--measure", "--stream", "--step",
       std::to_string(question.step + 1), "--scenario", file.path()},
      [&](std::string_view line) {
        try {
          const sim::Event event = sim::event_from_ndjson(line);
          if (const auto* progress = std::get_if<sim::ProgressEvent>(&event))
            return course.report(progress->done, progress->of, words_of(*progress));
          if (const auto* refusal = std::get_if<sim::ErrorEvent>(&event)) {
            runs.push_back({nullptr, refusal->message});
            return course.show(runs);
          }
          if (std::holds_alternative<sim::BeginEvent>(event)) report = {};
          sim::apply(report, event);
          if (!std::holds_alternative<sim::EndEvent>(event)) return;
          runs.push_back({std::make_shared<const sim::Report>(std::exchange(report, {})), {}});
          course.show(runs);
        } catch (const std::exception&) {  // a word of a library: the end says whether it failed
        }
      },
      [&] { return course.stopped(); });
  return runs;
}

void keep_runs(const lesson::MeasuredRuns& runs, const std::filesystem::path& folder,
               const std::string& lesson, std::size_t step) {
  if (folder.empty()) return;
  nlohmann::json all = nlohmann::json::array();
  for (const lesson::MeasuredRun& run : runs)
    all.push_back(run.report ? nlohmann::json::parse(sim::to_json(*run.report, -1))
                             : nlohmann::json(run.why_not));
  try {
    std::filesystem::create_directories(folder);
    cli::write_file(file_of(folder, lesson, step).string(), all.dump());
  } catch (const std::exception&) {
    // A lesson goes on where nothing can be kept.
  }
}

lesson::MeasuredRuns kept_runs(const std::filesystem::path& folder, const std::string& lesson,
                               std::size_t step) {
  lesson::MeasuredRuns runs;
  if (folder.empty()) return runs;
  const std::filesystem::path path = file_of(folder, lesson, step);
  try {
    const std::optional<std::string> text = sim::file_text(path);
    if (!text) return runs;
    for (const sim::Json& run : sim::parse_json(*text, path.string()))
      if (run.is_string())
        runs.push_back({nullptr, run.get<std::string>()});
      else
        runs.push_back(
            {std::make_shared<const sim::Report>(sim::report_from_json(run.dump(), path.string())), {}});
  } catch (const std::exception& error) {
    runtime::set_aside(path, error.what(), "the step can be measured again");
    return {};
  }
  return runs;
}

}  // namespace app::gui
