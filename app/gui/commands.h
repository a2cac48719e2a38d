// The one list of what the desktop can do. Menus, shortcuts, the palette and the shortcut sheet are drawn
// from it.
#pragma once
#include <imgui.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace app::gui {

struct Command {
  std::string id;        // stable: "run.start"
  std::string category;  // its menu: "Run"
  std::string label;     // "Start"
  std::function<void()> run;
  ImGuiKeyChord shortcut = ImGuiKey_None;    // the user's own, where there is one, once it is added
  std::function<bool()> enabled = {};        // none: always
  std::function<std::string()> detail = {};  // what it would act on, or its current value: "TP 4 -> 8"
  bool in_menu = true;                       // else in the palette only
  bool remembered = true;                    // by the palette, which lists what was used last first
  // Runs the command with a value typed behind its words; only for commands that take one.
  std::function<void(const std::string& value)> take = {};
  ImGuiKeyChord shipped = ImGuiKey_None;  // set as it is added: the shortcut without the user's own
};

// The command that takes flags, as the command line does; the palette gives it texts that begin like flags.
inline constexpr std::string_view kFlagsCommand = "edit.set_flags";

class Commands {
 public:
  // Throws std::logic_error where the id is taken.
  void add(Command command);
  // Replaces the commands whose ids begin so; adds them at the end where there were none.
  void replace(std::string_view beginning, std::vector<Command> commands);

  const std::vector<Command>& all() const { return commands_; }
  std::vector<std::string> categories() const;  // of what is in menus, in the order of their first command
  const Command* find(std::string_view id) const;

  // Runs a command; "id=value" where it takes a value. False where there is none or it is not enabled now.
  bool invoke(std::string_view id);
  // Runs the command whose chord was pressed in this frame. Keys without modifiers run none while text is
  // being typed, and no key does while a new key is being asked for.
  void handle_shortcuts();
  void hold_keys(bool held) { keys_are_held_ = held; }

  // Sets the user's own key for a command, which may be added later. ImGuiKey_None: the command has no key.
  void bind(const std::string& id, ImGuiKeyChord chord);
  void bind_as_shipped(const std::string& id);
  // Keys that differ from the shipped ones, as settings keep them: by id, in the words of shortcut_text().
  std::map<std::string, std::string> own_keys() const;
  // Replaces all of the user's own keys. Words that are no key are left out.
  void take_own_keys(const std::map<std::string, std::string>& keys);
  // The other commands with this key.
  std::vector<const Command*> sharing(std::string_view id, ImGuiKeyChord chord) const;
  std::size_t revision() const { return revision_; }  // grows with every change of a key

  // Commands whose words hold every word of the query: the most recently invoked first, then in order of
  // registration.
  std::vector<const Command*> search(std::string_view query) const;
  // Commands that take the last word of the query as their value, and hold all words before it.
  std::vector<const Command*> taking(std::string_view query) const;

 private:
  void set_key(Command& command) const;

  std::vector<Command> commands_;
  std::vector<std::string> recent_;
  std::map<std::string, ImGuiKeyChord, std::less<>> own_;
  bool keys_are_held_ = false;
  std::size_t revision_ = 0;
};

bool is_enabled(const Command& command);
// Whether every word of the query, in any case, is in the text, or in the command's menu, label and id.
bool has_words(const std::string& text, std::string_view query);
bool has_words(const Command& command, std::string_view query);
std::string shortcut_text(ImGuiKeyChord chord);  // "Ctrl+K", empty for none
// The chord of such a text; nothing for words that are no key.
std::optional<ImGuiKeyChord> chord_of(std::string_view text);
// The key that was pressed in this frame, with its modifiers; nothing while none was or a modifier alone.
std::optional<ImGuiKeyChord> pressed_chord();

}  // namespace app::gui
