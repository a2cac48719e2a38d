// Lessons: what the user has open, what was answered, and what the step shows under the scenario of the
// moment.
#pragma once
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/gui/jobs/lesson_runs.h"
#include "app/gui/panels/lessons_film.h"
#include "app/gui/panels/lessons_guesses.h"
#include "app/gui/panels/lessons_progress.h"
#include "app/gui/panels/lessons_series.h"
#include "app/gui/panels/panels.h"
#include "app/lesson/play.h"

namespace app::gui {

struct LessonRequest {
  std::shared_ptr<const lesson::Lesson> lesson;
  std::size_t step = 0;
  std::optional<sim::Scenario> scenario;                      // empty: as the step begins
  std::shared_ptr<const lesson::MeasuredRuns> measured = {};  // what the step measured; null: nothing
  bool operator==(const LessonRequest&) const = default;
};

struct LessonView {
  sim::Scenario scenario;  // that it was asked of
  lesson::ShownStep shown;
};

struct LessonsState {
  explicit LessonsState(const PanelTools& tools);
  void add_commands(Commands& commands);
  // Reads what is new or was written since; a file that is wrong has its message in its place.
  void reload();
  void open_lesson(std::size_t index);
  void go_to(std::size_t step);
  // Resets the step as if it had not been seen: for the next class.
  void reset_step();
  // The whole lesson, from its first step on.
  void begin_anew();
  // Forgets what was answered at that place, and where its films stood.
  void forget(const std::string& place);
  // Keeps the tier that a mission's step reached, if it is better than before.
  void keep(const lesson::Lesson& mission, lesson::Tier tier);
  void keep(const std::string& series, const GrowthByName& growths);
  // Takes over and keeps the results of steps that measure.
  void take_runs();
  std::shared_ptr<const lesson::MeasuredRuns> measured_of(const lesson::Lesson& lesson, std::size_t at);
  static std::string place_of(const std::string& lesson, std::size_t at);  // "cost-of-a-step/0"
  std::filesystem::path runs_folder() const { return settings.empty() ? settings : settings / "lessons"; }
  // Goes on by so many steps; presented, also past the last step to the chapter's next lesson, or back.
  void walk(int steps);
  bool can_walk(int steps) const;
  // Opens a lesson, or a class's guesses: at the end of the first lesson that they belong to.
  bool open(const std::filesystem::path& file);
  void open_guesses(const std::filesystem::path& file);
  bool open_named(std::string_view id);
  // Opens the first lesson of the list that is not done; the list itself where all are done.
  void open_first_not_done();
  void add_folder(const std::filesystem::path& folder);  // beside presets/lessons
  const lesson::Lesson* open_now() const;                // null: the list is shown

  // All steps seen, or a tier of the mission reached.
  bool is_done(const lesson::Lesson& lesson) const;
  std::size_t steps_seen(const lesson::Lesson& lesson) const;
  // The lesson beside this one in its chapter.
  std::optional<std::size_t> neighbour(int direction) const;

  struct Entry {
    std::filesystem::path file;
    std::filesystem::file_time_type written;
    std::shared_ptr<const lesson::Lesson> lesson;  // null where it is wrong
    std::string problem;
  };
  Study<LessonRequest, LessonView>& study;
  Study<GuessRequest, std::vector<GuessedQuestion>>& guessed;
  GrowthStudy& growth;
  LessonRunStudy& runs;
  std::string executable;
  std::map<std::string, std::shared_ptr<const lesson::MeasuredRuns>> measured;  // by place_of()
  const lesson::MeasuredRuns* taken_runs = nullptr;                             // the last that runs had
  std::map<std::string, FilmPlayer> players;  // by the place in a lesson, as answers
  std::filesystem::path settings;
  std::vector<Entry> entries;                  // in the order of the list
  std::vector<std::filesystem::path> folders;  // that lessons are of; what is written later shows, too
  std::vector<std::filesystem::path> opened;   // files from elsewhere
  std::optional<std::size_t> current;
  std::size_t step = 0;
  bool entering = false;     // the step's scenario is still to be made the desktop's
  bool just_opened = false;  // the lesson was opened, and neither walked through nor presented since
  bool large_type = false, notes = false;
  int presented_in = -2;  // the last frame in which it stood alone on the screen
  bool presented() const { return ImGui::GetFrameCount() - presented_in <= 1; }
  // The notes want a window of the system's own, for the lecturer's screen.
  bool notes_apart() const { return notes && presented(); }
  // The question that what stands behind it waits for, as it was drawn last.
  struct Waiting {
    std::string key;  // of the progress's answers
    std::size_t choices = 0;
    int frame = -2;
  } waiting;
  bool asks() const { return ImGui::GetFrameCount() - waiting.frame <= 1; }
  // Where the step is scrolled to when it is drawn: a question that was answered by keys, which may stand
  // below what is seen, or screens up and down. What is revealed has its height some frames after it is
  // drawn.
  struct Scroll {
    std::string question = {};  // of the progress's answers
    int frames = 0;
    float y = 0, screens = 0;
    bool to_top = false;
  } scroll;
  void scroll_to_question() { scroll = {.question = waiting.key, .frames = 4}; }
  std::size_t hints_shown = 0;
  std::shared_ptr<const ClassGuesses> class_guesses;  // null: none were opened
  LessonProgress progress;
  std::chrono::steady_clock::time_point next_look;
};

}  // namespace app::gui
