#include "sim/validate/table_words.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>

#include "sim/json_object.h"
#include "sim/scenario/preset.h"
#include "sim/validate/row.h"

namespace sim {
namespace {

struct Entry {
  std::string meaning;
  Names names;
};
using Entries = std::vector<Entry>;

const Entries& entries_of(std::string_view list) {
  static const auto all = [] {
    const std::filesystem::path path = preset_directory() / "table_words.json";
    const Json json = parse_json(preset_text(path), path.string());
    JsonObject file(json, path.string());
    file.text("description");
    std::map<std::string, Entries, std::less<>> lists;
    for (const auto& [key, value] : json.items()) {
      if (key == "description") continue;
      for (const std::vector<std::string>& words : file.lists_of_texts(key)) {
        if (words.size() < 2) file.fail(key, "must list a meaning and its names in each entry");
        lists[key].push_back({words.front(), names_of(std::span(words).subspan(1))});
      }
    }
    return lists;
  }();
  const auto found = all.find(list);
  if (found == all.end())
    throw PresetError("table_words.json: field \"" + std::string(list) + "\" is missing");
  return found->second;
}

}  // namespace

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::vector<std::string> words_in(std::string_view text) {
  std::istringstream words{std::string(text)};
  return {std::istream_iterator<std::string>(words), {}};
}

Names names_of(std::span<const std::string> texts) {
  Names names;
  for (const std::string& text : texts) names.push_back(words_in(text));
  return names;
}

bool is_named(const Names& names, std::string_view cell) {
  return std::ranges::any_of(names, [&](const std::vector<std::string>& words) {
    return std::ranges::all_of(words, [&](const std::string& word) { return cell.find(word) != cell.npos; });
  });
}

std::string meaning(std::string_view list, std::string_view cell) {
  const std::string text = lower(cell);
  for (const Entry& entry : entries_of(list))
    if (is_named(entry.names, text)) return entry.meaning;
  return {};
}

std::string known_meaning(std::string_view list, std::string_view column, std::string_view cell) {
  if (cell.empty()) throw CannotPredict(std::string(column) + " is not given");
  if (std::string found = meaning(list, cell); !found.empty()) return found;
  std::string known;
  for (const Entry& entry : entries_of(list)) known += (known.empty() ? "" : ", ") + entry.meaning;
  throw CannotPredict(std::string(column) + " \"" + std::string(cell) + "\" is none of " + known);
}

std::optional<std::string> hardware_preset_of(std::string_view device) {
  std::string preset = meaning("device", device);
  return preset.empty() ? std::nullopt : std::optional(std::move(preset));
}

}  // namespace sim
