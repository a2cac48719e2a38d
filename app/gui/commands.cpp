#include "app/gui/commands.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace app::gui {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

// As people read it.
std::string words_of(const Command& command) {
  return command.category + " " + command.label;
}

// Plain keys, and those with Shift alone, are letters while a text field has the keyboard.
bool is_typing(ImGuiKeyChord chord) {
  const ImGuiKey key = static_cast<ImGuiKey>(chord & ~ImGuiMod_Mask_);
  const bool function_key = key >= ImGuiKey_F1 && key <= ImGuiKey_F24;
  return !(chord & (ImGuiMod_Ctrl | ImGuiMod_Alt | ImGuiMod_Super)) && !function_key;
}

}  // namespace

bool has_words(const std::string& text, std::string_view query) {
  const std::string haystack = lower(text), needles = lower(query);
  for (std::size_t begin = 0; begin < needles.size();) {
    const std::size_t end = std::min(needles.find(' ', begin), needles.size());
    if (haystack.find(needles.substr(begin, end - begin)) == std::string::npos) return false;
    begin = end + 1;
  }
  return true;
}

bool has_words(const Command& command, std::string_view query) {
  return has_words(words_of(command) + " " + command.id, query);
}

void Commands::add(Command command) {
  if (find(command.id)) throw std::logic_error("two commands are called " + command.id);
  set_key(command);
  commands_.push_back(std::move(command));
}

void Commands::replace(std::string_view beginning, std::vector<Command> commands) {
  const auto is_old = [beginning](const Command& c) { return c.id.starts_with(beginning); };
  const auto place = std::find_if(commands_.begin(), commands_.end(), is_old) - commands_.begin();
  std::erase_if(commands_, is_old);
  for (Command& command : commands) set_key(command);
  commands_.insert(commands_.begin() + place, std::make_move_iterator(commands.begin()),
                   std::make_move_iterator(commands.end()));
}

std::vector<std::string> Commands::categories() const {
  std::vector<std::string> result;
  for (const Command& command : commands_)
    if (command.in_menu && std::find(result.begin(), result.end(), command.category) == result.end())
      result.push_back(command.category);
  return result;
}

const Command* Commands::find(std::string_view id) const {
  const auto found =
      std::find_if(commands_.begin(), commands_.end(), [id](const Command& c) { return c.id == id; });
  return found == commands_.end() ? nullptr : &*found;
}

bool Commands::invoke(std::string_view id) {
  const std::size_t mark = id.find('=');
  const std::string name(id.substr(0, mark));
  const Command* command = find(name);
  if (!command || !is_enabled(*command)) return false;
  recent_.erase(std::remove(recent_.begin(), recent_.end(), name), recent_.end());
  if (command->remembered) recent_.insert(recent_.begin(), name);
  // Which may replace commands.
  const auto run = command->run;
  const auto take = command->take;
  if (mark == std::string_view::npos || !take)
    run();
  else
    take(std::string(id.substr(mark + 1)));
  return true;
}

void Commands::handle_shortcuts() {
  if (keys_are_held_) return;
  const bool typing = ImGui::GetIO().WantTextInput;
  for (const Command& command : commands_) {
    if (command.shortcut == ImGuiKey_None || (typing && is_typing(command.shortcut))) continue;
    // Commands share a key where one can be done at a time.
    if (!ImGui::IsKeyChordPressed(command.shortcut) || !is_enabled(command)) continue;
    invoke(command.id);
    return;
  }
}

std::vector<const Command*> Commands::search(std::string_view query) const {
  std::vector<const Command*> found;
  for (const Command& command : commands_)
    if (has_words(command, query)) found.push_back(&command);
  const auto recency = [this](const Command* command) {
    return std::find(recent_.begin(), recent_.end(), command->id) - recent_.begin();
  };
  // Those that say it before those whose id alone does.
  const auto place = [&](const Command* command) {
    return std::pair(!has_words(words_of(*command), query), recency(command));
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const Command* a, const Command* b) { return place(a) < place(b); });
  return found;
}

std::vector<const Command*> Commands::taking(std::string_view query) const {
  const std::size_t last = query.find_last_of(' ');
  std::vector<const Command*> found;
  if (last == std::string_view::npos || last + 1 == query.size()) return found;
  for (const Command& command : commands_)
    if (command.take && is_enabled(command) && has_words(command, query.substr(0, last)))
      found.push_back(&command);
  return found;
}

// Gives a new command its key.
void Commands::set_key(Command& command) const {
  command.shipped = command.shortcut;
  if (const auto own = own_.find(command.id); own != own_.end()) command.shortcut = own->second;
}

void Commands::bind(const std::string& id, ImGuiKeyChord chord) {
  ++revision_;
  own_[id] = chord;
  for (Command& command : commands_) {
    if (command.id != id) continue;
    command.shortcut = chord;
    if (chord == command.shipped) own_.erase(id);
  }
}

void Commands::bind_as_shipped(const std::string& id) {
  ++revision_;
  own_.erase(id);
  for (Command& command : commands_)
    if (command.id == id) command.shortcut = command.shipped;
}

std::map<std::string, std::string> Commands::own_keys() const {
  std::map<std::string, std::string> keys;
  for (const auto& [id, chord] : own_) keys[id] = shortcut_text(chord);
  return keys;
}

void Commands::take_own_keys(const std::map<std::string, std::string>& keys) {
  own_.clear();
  for (Command& command : commands_) command.shortcut = command.shipped;
  for (const auto& [id, words] : keys)
    if (const auto chord = chord_of(words)) bind(id, *chord);
}

std::vector<const Command*> Commands::sharing(std::string_view id, ImGuiKeyChord chord) const {
  std::vector<const Command*> others;
  for (const Command& command : commands_)
    if (chord != ImGuiKey_None && command.id != id && command.shortcut == chord) others.push_back(&command);
  return others;
}

bool is_enabled(const Command& command) {
  return !command.enabled || command.enabled();
}

namespace {

struct Modifier {
  ImGuiKey key;
  std::string_view name;
};
constexpr Modifier kModifiers[] = {
    {ImGuiMod_Ctrl, "Ctrl+"}, {ImGuiMod_Shift, "Shift+"}, {ImGuiMod_Alt, "Alt+"}, {ImGuiMod_Super, "Super+"}};

// As it is printed on the key.
std::string key_text(ImGuiKey key) {
  switch (key) {
    case ImGuiKey_Equal:
      return "+";
    case ImGuiKey_Minus:
      return "-";
    case ImGuiKey_Escape:
      return "Esc";
    default:
      return ImGui::GetKeyName(key);
  }
}

// Visits all keys of a keyboard except modifiers.
template <class Use>
void for_each_key(const Use& use) {
  for (int key = ImGuiKey_NamedKey_BEGIN; key < ImGuiKey_GamepadStart; ++key)
    if (key < ImGuiKey_LeftCtrl || key > ImGuiKey_RightSuper) use(static_cast<ImGuiKey>(key));
}

}  // namespace

std::string shortcut_text(ImGuiKeyChord chord) {
  if (chord == ImGuiKey_None) return "";
  std::string text;
  for (const Modifier& modifier : kModifiers)
    if (chord & modifier.key) text += modifier.name;
  return text + key_text(static_cast<ImGuiKey>(chord & ~ImGuiMod_Mask_));
}

std::optional<ImGuiKeyChord> chord_of(std::string_view text) {
  if (text.empty()) return ImGuiKey_None;
  ImGuiKeyChord chord = ImGuiKey_None;
  for (const Modifier& modifier : kModifiers)
    if (text.size() > modifier.name.size() && text.starts_with(modifier.name)) {
      chord |= modifier.key;
      text.remove_prefix(modifier.name.size());
    }
  std::optional<ImGuiKeyChord> found;
  for_each_key([&](ImGuiKey key) {
    if (!found && key_text(key) == text) found = chord | key;
  });
  return found;
}

std::optional<ImGuiKeyChord> pressed_chord() {
  std::optional<ImGuiKeyChord> pressed;
  for_each_key([&](ImGuiKey key) {
    if (!pressed && ImGui::IsKeyPressed(key, false)) pressed = ImGui::GetIO().KeyMods | key;
  });
  return pressed;
}

}  // namespace app::gui
