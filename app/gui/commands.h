// The one list of what the desktop can do. Menus, shortcuts, the palette and the shortcut sheet are drawn
// from it.
#pragma once
#include <imgui.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace app::gui {

struct Command {
  std::string id;        // stable: "run.start"
  std::string category;  // the menu it is in: "Run"
  std::string label;     // "Start"
  std::function<void()> run;
  ImGuiKeyChord shortcut = ImGuiKey_None;
  std::function<bool()> enabled = {};        // none: always
  std::function<std::string()> detail = {};  // what it would act on, or its current value: "TP 4 -> 8"
  bool in_menu = true;                       // else in the palette only
  bool remembered = true;                    // by the palette, which lists what was used last first
  // With a value that was typed behind its words, where it takes one.
  std::function<void(const std::string& value)> take = {};
};

class Commands {
 public:
  // Throws std::logic_error where the id is taken.
  void add(Command command);
  // In the place of those whose ids begin so: at the end, where there were none.
  void replace(std::string_view beginning, std::vector<Command> commands);

  const std::vector<Command>& all() const { return commands_; }
  std::vector<std::string> categories() const;  // of what is in menus, in the order of their first command
  const Command* find(std::string_view id) const;

  // False where there is no such command or it is not enabled now. "id=value" where it takes one.
  bool invoke(std::string_view id);
  // Fires the command whose chord was pressed in this frame. Bare keys do not fire while text is being typed.
  void handle_shortcuts();

  // Most recently invoked first, then in order of registration; only those whose words hold every word of the
  // query.
  std::vector<const Command*> search(std::string_view query) const;
  // Those that take the last word of the query as their value, and hold all words before it.
  std::vector<const Command*> taking(std::string_view query) const;

 private:
  std::vector<Command> commands_;
  std::vector<std::string> recent_;
};

bool is_enabled(const Command& command);
std::string shortcut_text(ImGuiKeyChord chord);  // "Ctrl+K", empty for none

}  // namespace app::gui
