// What lessons can do: steps, answers by keys where one is presented, and the list.
#include <imgui_internal.h>

#include "app/gui/panels/lessons.h"

namespace app::gui {
namespace {

constexpr const char* kPanelKeys = "lesson";  // who owns a key that leads on
constexpr std::size_t kLettered = 6;          // choices that a letter chooses
constexpr float kOfAScreen = .8f;             // that an arrow scrolls

}  // namespace

void LessonsState::add_commands(Commands& commands) {
  const auto add = [&](const char* id, const char* label, int steps, ImGuiKey key, bool alone) {
    commands.add(
        {.id = id,
         .category = "Lessons",
         .label = label,
         .run =
             [this, steps, key] {
               // Held, the key would also scroll the step that it leads to.
               ImGui::SetKeyOwner(key, ImHashStr(kPanelKeys), ImGuiInputFlags_LockUntilRelease);
               walk(steps);
             },
         .shortcut = key,
         // At the end of what is presented an arrow does nothing, rather than leave it.
         .enabled = [this, steps, alone] { return alone ? presented() && open_now() : can_walk(steps); },
         .in_menu = !alone});
  };
  add("lesson.next", "Next step of the lesson", 1, ImGuiKey_PageDown, false);
  add("lesson.back", "Step before", -1, ImGuiKey_PageUp, false);
  // As all that is presented is walked through, before the commands that go to another panel.
  add("lesson.present-next", "Next step of the lesson that is presented", 1, ImGuiKey_RightArrow, true);
  add("lesson.present-back", "Step before, of the lesson that is presented", -1, ImGuiKey_LeftArrow, true);
  // Presented, a question is answered by keys: letters choose, Enter locks what was chosen, or reveals.
  for (std::size_t i = 0; i < kLettered; ++i) {
    const std::string letter(1, static_cast<char>('A' + i));
    commands.add({.id = "lesson.choose-" + letter,
                  .category = "Lessons",
                  .label = "Choose " + letter + " in the lesson that is presented",
                  .run =
                      [this, i] {
                        progress.answers[waiting.key].text = std::to_string(i);
                        scroll_to_question();
                      },
                  .shortcut = static_cast<ImGuiKey>(ImGuiKey_A + static_cast<int>(i)),
                  .enabled = [this, i] { return presented() && asks() && i < waiting.choices; },
                  .in_menu = false});
  }
  const auto add_scroll = [&](const char* id, const char* label, float screens, ImGuiKey key) {
    commands.add({.id = id,
                  .category = "Lessons",
                  .label = label,
                  .run =
                      [this, screens] {
                        ImGui::NavMoveRequestCancel();  // the arrow is for the page alone
                        scroll = {.screens = screens};
                      },
                  .shortcut = key,
                  .enabled = [this] { return presented() && open_now(); },
                  .in_menu = false});
  };
  add_scroll("lesson.down", "Further down the step that is presented", kOfAScreen, ImGuiKey_DownArrow);
  add_scroll("lesson.up", "Further up the step that is presented", -kOfAScreen, ImGuiKey_UpArrow);
  commands.add({.id = "lesson.reveal",
                .category = "Lessons",
                .label = "Answer of the lesson that is presented",
                .run =
                    [this] {
                      progress.answers[waiting.key].locked = true;
                      scroll_to_question();
                      save_lesson_progress(progress, settings);
                    },
                .shortcut = ImGuiKey_Enter,
                .enabled = [this] { return presented() && asks(); },
                .in_menu = false});
  commands.add({.id = "lesson.reset",
                .category = "Lessons",
                .label = "Reset the step: its scenario, its questions",
                .run = [this] { reset_step(); },
                .shortcut = ImGuiMod_Shift | ImGuiKey_R,
                .enabled = [this] { return open_now() != nullptr; }});
  commands.add({.id = "lesson.learn",
                .category = "Lessons",
                .label = "Learn: the first lesson that is not done",
                .run =
                    [this, &commands] {
                      open_first_not_done();
                      commands.invoke("panel.lessons");
                    },
                .detail = [] { return std::string("in the order of the list, where it was left"); }});
  commands.add({.id = "lesson.open",
                .category = "Lessons",
                .label = "Open lesson",
                .run =
                    [this, &commands] {
                      current.reset();
                      commands.invoke("panel.lessons");
                    },
                .detail = [] { return std::string("the list, or a lesson's name behind it: complexity"); },
                .take =
                    [this, &commands](const std::string& name) {
                      if (open_named(name)) commands.invoke("panel.lessons");
                    }});
  commands.add({.id = "lesson.notes",
                .category = "Lessons",
                .label = "Notes for the lecturer",
                .run = [this] { notes = !notes; },
                .shortcut = ImGuiMod_Shift | ImGuiKey_N,
                .enabled = [this] { return open_now() != nullptr; }});
}

}  // namespace app::gui
