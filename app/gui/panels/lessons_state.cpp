// Where the learner is: lessons as they are found, steps, answers, and what was measured.
#include <algorithm>
#include <exception>

#include "app/cli/executable.h"
#include "app/gui/panels/lessons.h"
#include "sim/preset_error.h"

namespace app::gui {
namespace {

constexpr auto kBetweenLooks = std::chrono::seconds(1);

LessonView make_view(const LessonRequest& request, lesson::Predictions& predictions,
                     const std::function<bool()>& stopped) {
  LessonView view;
  view.scenario = request.scenario ? *request.scenario : lesson::scenario_at(*request.lesson, request.step);
  predictions.forget_if_many();
  view.shown = lesson::show(*request.lesson, request.step, view.scenario, predictions, request.measured.get(),
                            stopped);
  return view;
}

}  // namespace

LessonsState::LessonsState(const PanelTools& tools)
    : study(tools.studies.add<LessonRequest, LessonView>(
          [predictions = std::make_shared<lesson::Predictions>()](const LessonRequest& request,
                                                                  const auto& course) {
            return make_view(request, *predictions, [&course] { return course.stopped(); });
          })),
      guessed(tools.studies.add<GuessRequest, std::vector<GuessedQuestion>>(
          [](const GuessRequest& request, const auto&) {
            lesson::Predictions predictions;
            return guessed_questions(*request.lesson, *request.guesses, predictions);
          })),
      growth(tools.studies.add<SeriesQuestion, GrowthByName>(
          [](const SeriesQuestion& question, const auto& course) {
            return measure_growth(question, course);
          })),
      runs(tools.studies.add<LessonRunQuestion, lesson::MeasuredRuns>(
          [](const LessonRunQuestion& question, const auto& course) {
            return measure_step(question, course);
          })),
      executable(cli::executable_path()),
      settings(tools.settings_directory),
      folders({lesson::lesson_directory()}),
      progress(load_lesson_progress(tools.settings_directory)) {
  add_commands(tools.commands);
}

bool LessonsState::can_walk(int steps) const {
  const lesson::Lesson* const now = open_now();
  if (!now) return false;
  const auto to = static_cast<std::int64_t>(step) + steps;
  if (to >= 0 && to < static_cast<std::int64_t>(now->steps.size())) return true;
  return presented() && neighbour(steps).has_value();
}

std::optional<std::size_t> LessonsState::neighbour(int direction) const {
  const auto beside = static_cast<std::int64_t>(*current) + (direction > 0 ? 1 : -1);
  if (beside < 0 || beside >= static_cast<std::int64_t>(entries.size())) return std::nullopt;
  const auto index = static_cast<std::size_t>(beside);
  const bool same = entries[index].lesson && entries[index].lesson->chapter == open_now()->chapter;
  return same ? std::optional(index) : std::nullopt;
}

void LessonsState::walk(int steps) {
  if (!can_walk(steps)) return;
  just_opened = false;
  const auto to = static_cast<std::int64_t>(step) + steps;
  if (to >= 0 && to < static_cast<std::int64_t>(open_now()->steps.size()))
    return go_to(static_cast<std::size_t>(to));
  current = neighbour(steps);
  go_to(steps > 0 ? 0 : open_now()->steps.size() - 1);
}

void LessonsState::keep(const lesson::Lesson& mission, lesson::Tier tier) {
  const auto [known, is_new] = progress.tiers.try_emplace(mission.id, tier);
  if (!is_new && known->second >= tier) return;
  known->second = tier;
  save_lesson_progress(progress, settings);
}

void LessonsState::keep(const std::string& series, const GrowthByName& growths) {
  GrowthByName& known = progress.growth[series];
  if (known == growths || growths.empty()) return;
  known = growths;
  save_lesson_progress(progress, settings);
}

std::string LessonsState::place_of(const std::string& lesson, std::size_t at) {
  return lesson + "/" + std::to_string(at);
}

void LessonsState::take_runs() {
  const lesson::MeasuredRuns* const found = runs.result();
  if (!found || found == taken_runs) return;
  taken_runs = found;
  if (found->empty()) return;
  const std::string id = runs.request().file.stem().string();
  const std::size_t at = runs.request().step;
  measured[place_of(id, at)] = std::make_shared<const lesson::MeasuredRuns>(*found);
  if (!runs.progress().running) keep_runs(*found, runs_folder(), id, at);
}

std::shared_ptr<const lesson::MeasuredRuns> LessonsState::measured_of(const lesson::Lesson& lesson,
                                                                      std::size_t at) {
  if (!lesson::measurement_of(lesson.steps[at])) return nullptr;
  auto& known = measured[place_of(lesson.id, at)];
  if (!known) known = std::make_shared<const lesson::MeasuredRuns>(kept_runs(runs_folder(), lesson.id, at));
  return known;
}

void LessonsState::reload() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look) return;
  next_look = now + kBetweenLooks;
  std::vector<std::filesystem::path> files = lesson::lesson_files(folders);
  files.insert(files.end(), opened.begin(), opened.end());
  const std::filesystem::path shown = current && *current < entries.size() ? entries[*current].file : "";
  std::vector<Entry> fresh;
  for (const std::filesystem::path& file : files) {
    std::error_code error;
    const auto written = std::filesystem::last_write_time(file, error);
    const auto known = std::ranges::find(entries, file, &Entry::file);
    if (known != entries.end() && known->written == written) {
      fresh.push_back(*known);
      continue;
    }
    Entry entry{file, written, nullptr, {}};
    try {
      entry.lesson = std::make_shared<const lesson::Lesson>(lesson::load_lesson(file));
    } catch (const std::exception& problem) {
      entry.problem = problem.what();
    }
    fresh.push_back(std::move(entry));
  }
  // What is wrong stands first, where it is seen.
  std::ranges::stable_sort(fresh, [](const Entry& one, const Entry& other) {
    if (!one.lesson || !other.lesson) return !one.lesson && other.lesson;
    return lesson::stands_before(*one.lesson, *other.lesson);
  });
  entries = std::move(fresh);
  if (!shown.empty()) {
    const auto again = std::ranges::find(entries, shown, &Entry::file);
    if (again == entries.end())
      current.reset();
    else
      current = static_cast<std::size_t>(again - entries.begin());
  }
}

bool LessonsState::open_named(std::string_view id) {
  next_look = {};
  reload();
  const auto entry =
      std::ranges::find_if(entries, [&](const Entry& e) { return e.lesson && e.lesson->id == id; });
  if (entry == entries.end()) return false;
  open_lesson(static_cast<std::size_t>(entry - entries.begin()));
  return true;
}

std::size_t LessonsState::steps_seen(const lesson::Lesson& lesson) const {
  const auto seen = progress.steps.find(lesson.id);
  return seen == progress.steps.end() ? 0 : std::min(seen->second, lesson.steps.size());
}

bool LessonsState::is_done(const lesson::Lesson& lesson) const {
  return lesson.mission ? progress.tiers.contains(lesson.id) : steps_seen(lesson) == lesson.steps.size();
}

void LessonsState::open_first_not_done() {
  next_look = {};
  reload();
  const auto entry =
      std::ranges::find_if(entries, [&](const Entry& e) { return e.lesson && !is_done(*e.lesson); });
  if (entry == entries.end())
    current.reset();
  else
    open_lesson(static_cast<std::size_t>(entry - entries.begin()));
}

void LessonsState::add_folder(const std::filesystem::path& folder) {
  folders.push_back(folder);
  next_look = {};
}

const lesson::Lesson* LessonsState::open_now() const {
  return current && *current < entries.size() ? entries[*current].lesson.get() : nullptr;
}

void LessonsState::open_lesson(std::size_t index) {
  current = index;
  just_opened = true;
  const std::size_t seen = steps_seen(*entries[index].lesson);
  go_to(seen == 0 || seen == entries[index].lesson->steps.size() ? 0 : seen - 1);
}

void LessonsState::go_to(std::size_t to) {
  step = to;
  entering = true;
  hints_shown = 0;
  scroll = {.to_top = true};
  std::size_t& seen = progress.steps[entries[*current].lesson->id];
  seen = std::max(seen, to + 1);
  save_lesson_progress(progress, settings);
}

void LessonsState::forget(const std::string& place) {
  std::erase_if(progress.answers, [&](const auto& answer) { return answer.first.starts_with(place); });
  std::erase_if(players, [&](const auto& player) { return player.first.starts_with(place); });
}

void LessonsState::begin_anew() {
  forget(open_now()->id + "/");
  go_to(0);
}

void LessonsState::reset_step() {
  forget(place_of(open_now()->id, step) + "/");
  hints_shown = 0;
  entering = true;
  save_lesson_progress(progress, settings);
}

void LessonsState::open_guesses(const std::filesystem::path& file) {
  ClassGuesses read = load_class_guesses(file);
  next_look = {};
  reload();
  for (const auto& [place, guesses] : read.guesses)
    if (std::ranges::none_of(entries,
                             [&](const Entry& e) { return e.lesson && e.lesson->id == place.lesson; }))
      throw sim::PresetError(file.string() + ": \"" + place.lesson +
                             "\" is no lesson; `ridgepoint lesson` lists them");
  const auto entry =
      std::ranges::find_if(entries, [&](const Entry& e) { return e.lesson && read.has(e.lesson->id); });
  class_guesses = std::make_shared<const ClassGuesses>(std::move(read));
  if (entry == entries.end()) return;
  current = static_cast<std::size_t>(entry - entries.begin());
  just_opened = false;  // where the guesses are shown is where it is presented
  go_to(entry->lesson->steps.size() - 1);
}

bool LessonsState::open(const std::filesystem::path& file) {
  if (is_class_guesses(file)) {
    open_guesses(file);
    return true;
  }
  if (file.extension() != ".md") return false;
  if (std::ranges::find(opened, file) == opened.end()) opened.push_back(file);
  next_look = {};
  reload();
  const auto entry = std::ranges::find(entries, file, &Entry::file);
  if (entry == entries.end()) return false;
  current = static_cast<std::size_t>(entry - entries.begin());
  just_opened = true;
  if (entry->lesson) go_to(0);
  return true;
}

}  // namespace app::gui
