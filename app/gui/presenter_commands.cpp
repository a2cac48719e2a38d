// The presenter's mode: one panel, type that is read from the back of a room, next and back; each lecture
// goes on where it was left.
#include <algorithm>
#include <utility>

#include "app/gui/panels/lessons.h"
#include "app/gui/shell.h"

namespace app::gui {
namespace {

// The smallest type is the body's then: an em of 24.5 pixels, in a line of 29.7. Lines are as thick in
// proportion.
constexpr float kPresenterScale = 2.05f;

constexpr const char* kLessons = "lessons";  // the panel
constexpr const char* kAnew = "present.anew";

// The panel so many places on, around the end.
const PanelEntry& panel_after(std::string_view id, int places) {
  const auto all = panels();
  const auto at =
      std::find_if(all.begin(), all.end(), [&](const PanelEntry* panel) { return id == panel->id; });
  const auto count = static_cast<int>(all.size());
  const int now = at == all.end() ? 0 : static_cast<int>(at - all.begin());
  return *all[static_cast<std::size_t>((now + places + count) % count)];
}

}  // namespace

void Shell::begin_presentation() {
  const auto& lessons = panels_.state<LessonsState>();
  const lesson::Lesson* const lesson = lessons.open_now();
  const std::string panel = exported_panel().id;
  const bool is_chosen = !view_.maximised.empty() || view_.used_last != left_on_;
  presentation_ = {.scale_before = user_scale_,
                   .scale = std::max(user_scale_, kPresenterScale),
                   .lecture = lesson ? lesson->id : "",
                   .begun_on = panel};
  view_.maximised = panel;
  go_on_with_lecture(lesson ? panel == kLessons : !is_chosen);
}

void Shell::end_presentation() {
  if (!presentation_) return;
  user_scale_ = presentation_->scale_before;
  presentation_.reset();
  presenter_screen_.end();
  left_on_ = view_.used_last;
  style_is_old_ = true;
}

void Shell::go_on_with_lecture(bool on_its_panel) {
  auto& lessons = panels_.state<LessonsState>();
  const lesson::Lesson* const lesson = lessons.open_now();
  const bool fresh = std::exchange(lessons.just_opened, false);
  const auto kept = lectures_.find(presentation_->lecture);
  const std::optional<LecturePlace> place =
      kept == lectures_.end() ? std::nullopt : std::optional(kept->second);
  user_scale_ = place && place->scale ? *place->scale : presentation_->scale;
  style_is_old_ = true;
  if (!place) return;
  if (lesson && fresh) lessons.go_to(std::min(place->step, lesson->steps.size() - 1));
  if (on_its_panel && find_panel(place->panel)) view_.maximised = place->panel;
  // What was gone to by hand since is where it is presented.
  if (lesson ? lessons.step == place->step : on_its_panel) say_where_lecture_goes_on();
  // The panel of lessons gives a step its scenario, and has to be seen for that.
  if (lessons.entering && view_.maximised != kLessons)
    presentation_->panel_to_come = std::exchange(view_.maximised, kLessons);
}

void Shell::say_where_lecture_goes_on() {
  const auto& lessons = panels_.state<LessonsState>();
  const lesson::Lesson* const lesson = lessons.open_now();
  const bool is_elsewhere = view_.maximised != (lesson ? kLessons : presentation_->begun_on);
  if (!is_elsewhere && (!lesson || lessons.step == 0)) return;  // it begins there
  std::string words = "Goes on at ";
  if (lesson)
    words += "step " + std::to_string(lessons.step + 1) + " of " + std::to_string(lesson->steps.size());
  if (is_elsewhere) words.append(lesson ? ", " : "").append(exported_panel().title);
  const std::string key = shortcut_text(commands_.find(kAnew)->shortcut);
  toast_.say(words + (key.empty() ? "." : ". " + key + " begins anew."));
}

void Shell::begin_lecture_anew() {
  auto& lessons = panels_.state<LessonsState>();
  presentation_->panel_to_come.clear();
  user_scale_ = presentation_->scale;
  style_is_old_ = true;
  if (!lessons.open_now()) {
    view_.maximised = presentation_->begun_on;
    return;
  }
  lessons.begin_anew();
  view_.maximised = kLessons;
  toast_.say("The lesson begins anew, and its questions ask again.");
}

void Shell::follow_lecture() {
  if (!presentation_) return;
  const auto& lessons = panels_.state<LessonsState>();
  const lesson::Lesson* const lesson = lessons.open_now();
  presentation_->lecture = lesson ? lesson->id : "";
  if (lesson && lessons.just_opened) go_on_with_lecture(true);
  std::string& to_come = presentation_->panel_to_come;
  if (view_.maximised != kLessons)
    to_come.clear();  // another was asked for meanwhile
  else if (!to_come.empty() && !lessons.entering)
    view_.maximised = std::exchange(to_come, {});
  keep_place_of_lecture();
}

void Shell::keep_place_of_lecture() {
  const auto& lessons = panels_.state<LessonsState>();
  const bool in_lesson = lessons.open_now() != nullptr;
  if (!in_lesson && view_.maximised == kLessons) return;  // the list, where a lecture is chosen
  const LecturePlace now = {
      .panel = presentation_->panel_to_come.empty() ? view_.maximised : presentation_->panel_to_come,
      .step = in_lesson ? lessons.step : 0,
      .scale = user_scale_ == presentation_->scale ? std::nullopt : std::optional(user_scale_)};
  LecturePlace& kept = lectures_[presentation_->lecture];
  if (kept == now) return;
  kept = now;
  ++lectures_revision_;
}

void Shell::add_presenter_commands() {
  const auto add = [this](Command command) { commands_.add(std::move(command)); };
  const auto presenting = [this] { return presents(); };
  const auto present = [this] {
    if (!presents()) return begin_presentation();
    view_.maximised.clear();
    end_presentation();
  };
  add({"view.present", "View", "Present this panel", present, ImGuiKey_F11, {}, [this] {
         return std::string(exported_panel().title) + ", large; arrows go to the next and back, Esc ends it";
       }});
  const auto go = [this](int places) { view_.maximised = panel_after(view_.maximised, places).id; };
  add({"present.next", "View", "Next panel", [go] { go(1); }, ImGuiKey_RightArrow, presenting});
  add({"present.back", "View", "Previous panel", [go] { go(-1); }, ImGuiKey_LeftArrow, presenting});
  add({kAnew, "View", "Begin the lecture anew", [this] { begin_lecture_anew(); }, ImGuiKey_Home, presenting,
       [] { return std::string("at its first step, with all of its questions"); }});
  add({"present.black", "View", "Black screen until the next key", [this] { presenter_screen_.show_black(); },
       ImGuiKey_Period, presenting});
  add({"present.pointer", "View", "Pointer that the room sees",
       [this] { presenter_screen_.toggle_pointer(); }, ImGuiKey_L, presenting,
       [this] { return std::string(presenter_screen_.has_pointer() ? "on" : "off"); }});
}

}  // namespace app::gui
