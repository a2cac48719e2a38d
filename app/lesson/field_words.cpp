#include "app/lesson/field_words.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>

#include "sim/format.h"
#include "sim/scenario/fields.h"

namespace app::lesson {

std::string field_words(std::string_view path) {
  std::string words(path.substr(path.rfind('.') + 1));  // a part alone has no dot: "model"
  std::ranges::replace(words, '_', ' ');
  // The same words with capitals, where they begin with the field's label: "KV cache", "ZeRO stage".
  const sim::AnyField* const field = sim::field_at(path);
  if (!field || words.size() < field->label.size()) return words;
  const auto small = [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); };
  const std::size_t length = field->label.size();
  const bool ends_there = words.size() == length || words[length] == ' ';
  if (ends_there && std::ranges::equal(words.substr(0, length), field->label, {}, {}, small))
    words.replace(0, length, field->label);
  return words;
}

std::string axis_words(std::string_view path) {
  const sim::AnyField* const field = sim::field_at(path);
  const bool in_tokens = field && field->unit == sim::FieldUnit::tokens;
  const std::string words = field_words(path);
  return words + (in_tokens && !words.ends_with("tokens") ? ", tokens" : "");
}

std::string value_words(const std::string& value) {
  if (value == "true") return "yes";
  if (value == "false") return "no";
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
  return error == std::errc() && end == value.data() + value.size() ? sim::format_count(count) : value;
}

std::string change_words(const Changes& changes) {
  std::string words;
  for (const sim::Override& change : changes)
    words += (words.empty() ? "" : ", ") + field_words(change.path) + " " + value_words(change.value);
  return words;
}

}  // namespace app::lesson
