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

bool holds_words(const std::string& text, std::string_view query) {
  const std::string haystack = lower(text), needles = lower(query);
  for (std::size_t begin = 0; begin < needles.size();) {
    const std::size_t end = std::min(needles.find(' ', begin), needles.size());
    if (haystack.find(needles.substr(begin, end - begin)) == std::string::npos) return false;
    begin = end + 1;
  }
  return true;
}

// As people read it.
std::string words_of(const Command& command) {
  return command.category + " " + command.label;
}

bool matches(const Command& command, std::string_view query) {
  return holds_words(words_of(command) + " " + command.id, query);
}

// Plain keys, and those with Shift alone, are letters while a text field has the keyboard.
bool is_typing(ImGuiKeyChord chord) {
  const ImGuiKey key = static_cast<ImGuiKey>(chord & ~ImGuiMod_Mask_);
  const bool function_key = key >= ImGuiKey_F1 && key <= ImGuiKey_F24;
  return !(chord & (ImGuiMod_Ctrl | ImGuiMod_Alt | ImGuiMod_Super)) && !function_key;
}

}  // namespace

void Commands::add(Command command) {
  if (find(command.id)) throw std::logic_error("two commands are called " + command.id);
  commands_.push_back(std::move(command));
}

void Commands::replace(std::string_view beginning, std::vector<Command> commands) {
  const auto is_old = [beginning](const Command& c) { return c.id.starts_with(beginning); };
  const auto place = std::find_if(commands_.begin(), commands_.end(), is_old) - commands_.begin();
  std::erase_if(commands_, is_old);
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
    if (matches(command, query)) found.push_back(&command);
  const auto recency = [this](const Command* command) {
    return std::find(recent_.begin(), recent_.end(), command->id) - recent_.begin();
  };
  // Those that say it before those whose id alone does.
  const auto place = [&](const Command* command) {
    return std::pair(!holds_words(words_of(*command), query), recency(command));
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
    if (command.take && is_enabled(command) && matches(command, query.substr(0, last)))
      found.push_back(&command);
  return found;
}

bool is_enabled(const Command& command) {
  return !command.enabled || command.enabled();
}

std::string shortcut_text(ImGuiKeyChord chord) {
  if (chord == ImGuiKey_None) return "";
  std::string text;
  if (chord & ImGuiMod_Ctrl) text += "Ctrl+";
  if (chord & ImGuiMod_Shift) text += "Shift+";
  if (chord & ImGuiMod_Alt) text += "Alt+";
  const ImGuiKey key = static_cast<ImGuiKey>(chord & ~ImGuiMod_Mask_);
  switch (key) {
    case ImGuiKey_Equal:
      return text + "+";
    case ImGuiKey_Minus:
      return text + "-";
    case ImGuiKey_Escape:
      return text + "Esc";
    default:
      return text + ImGui::GetKeyName(key);
  }
}

}  // namespace app::gui
