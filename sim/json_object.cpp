#include "sim/json_object.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace sim {
namespace {

// "line 3, column 14" of a byte offset, counted from 1.
std::string place(std::string_view text, std::size_t byte) {
  std::size_t line = 1, column = 1;
  for (std::size_t i = 0; i + 1 < byte && i < text.size(); ++i) {
    ++column;
    if (text[i] == '\n') ++line, column = 1;
  }
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

std::vector<std::string> texts_in(const JsonObject& object, std::string_view key, const Json& value) {
  const bool all_texts =
      value.is_array() && std::ranges::all_of(value, [](const Json& v) { return v.is_string(); });
  if (!all_texts) object.fail(key, "must be an array of words");
  return value.get<std::vector<std::string>>();
}

}  // namespace

std::string shown(const Json& value) {
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr std::size_t kLongest = 40;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

Json parse_json(std::string_view text, const std::string& file) {
  if (const std::optional<std::size_t> byte = nested_too_deep(text))
    throw PresetError(file + ": is nested too deeply at " + place(text, *byte));
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    throw PresetError(file + ": not valid JSON at " + place(text, error.byte));
  } catch (const Json::out_of_range&) {
    throw PresetError(file + ": not valid JSON: the number at " + place(text, number_beyond_double(text)) +
                      " is beyond what a double holds, 1.8e308");
  }
}

JsonObject::JsonObject(const Json& json, std::string file, std::string path)
    : json_(json), file_(std::move(file)), path_(std::move(path)) {
  if (!json_.is_object())
    throw PresetError(file_ + ": " + (path_.empty() ? "the file" : "field \"" + excerpt(path_) + "\"") +
                      " must be an object in braces, but is " + shown(json_));
}

std::string JsonObject::field(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

void JsonObject::fail(std::string_view key, const std::string& what) const {
  throw FieldError(file_, excerpt(field(key)), what);
}

bool JsonObject::has(std::string_view key) {
  asked_.emplace_back(key);
  return json_.contains(asked_.back());
}

bool JsonObject::has_value(std::string_view key) {
  return has(key) && !json_.at(asked_.back()).is_null();
}

const Json& JsonObject::at(std::string_view key) {
  asked_.emplace_back(key);
  const auto found = json_.find(asked_.back());
  if (found == json_.end()) fail(key, "is missing");
  return *found;
}

std::string JsonObject::text(std::string_view key) {
  const Json& value = at(key);
  if (!value.is_string()) fail(key, "must be a text in quotes, but is " + shown(value));
  return value.get<std::string>();
}

std::int64_t JsonObject::integer(std::string_view key) {
  const Json& value = at(key);
  const bool fits = !value.is_number_unsigned() ||
                    value.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  if (!value.is_number_integer() || !fits)
    fail(key, "must be a whole number below 2^63, but is " + shown(value));
  return value.get<std::int64_t>();
}

double JsonObject::number(std::string_view key) {
  const Json& value = at(key);
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!value.is_number()) fail(key, "must be a number, but is " + shown(value));
  return value.get<double>();
}

bool JsonObject::boolean(std::string_view key) {
  const Json& value = at(key);
  if (!value.is_boolean()) fail(key, "must be true or false, but is " + shown(value));
  return value.get<bool>();
}

JsonObject JsonObject::object(std::string_view key) {
  return {at(key), file_, field(key)};
}

std::vector<JsonObject> JsonObject::objects(std::string_view key) {
  const Json& value = at(key);
  if (!value.is_array()) fail(key, "must be an array in brackets, but is " + shown(value));
  std::vector<JsonObject> elements;
  elements.reserve(value.size());
  for (std::size_t i = 0; i < value.size(); ++i)
    elements.emplace_back(value[i], file_, field(key) + "[" + std::to_string(i) + "]");
  return elements;
}

std::vector<std::string> JsonObject::texts(std::string_view key) {
  return texts_in(*this, key, at(key));
}

std::vector<std::vector<std::string>> JsonObject::lists_of_texts(std::string_view key) {
  const Json& value = at(key);
  if (!value.is_array()) fail(key, "must be an array of arrays of words, but is " + shown(value));
  std::vector<std::vector<std::string>> lists;
  for (const Json& list : value) lists.push_back(texts_in(*this, key, list));
  return lists;
}

std::string JsonObject::text(std::string_view key, const std::string& otherwise) {
  return has(key) ? text(key) : otherwise;
}
std::int64_t JsonObject::integer(std::string_view key, std::int64_t otherwise) {
  return has(key) ? integer(key) : otherwise;
}
double JsonObject::number(std::string_view key, double otherwise) {
  return has(key) ? number(key) : otherwise;
}
bool JsonObject::boolean(std::string_view key, bool otherwise) {
  return has(key) ? boolean(key) : otherwise;
}

int JsonObject::small_integer(std::string_view key, int otherwise) {
  const std::int64_t value = integer(key, std::int64_t{otherwise});
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max())
    fail(key, "must be a whole number below 2^31, but is " + std::to_string(value));
  return static_cast<int>(value);
}

std::optional<double> JsonObject::quantity(std::string_view stem, std::span<const UnitSuffix> suffixes) {
  std::optional<double> value;
  for (const UnitSuffix& unit : suffixes) {
    const std::string key = std::string(stem) + std::string(unit.suffix);
    if (!has(key)) continue;
    if (value) fail(key, "is given twice, in two units");
    if (at(key).is_null()) fail(key, "must be a number, but is null");
    value = number(key) * unit.size;
  }
  return value;
}

void JsonObject::finish() const {
  for (const auto& [key, value] : json_.items()) {
    if (std::ranges::find(asked_, key) != asked_.end()) continue;
    std::string hint;
    if (const auto near = nearest(key, asked_); !near.empty())
      hint = "; did you mean \"" + near.front() + "\"?";
    fail(key, "is not known here" + hint);
  }
}

void put_quantity(Json& json, std::string_view stem, double value, std::span<const UnitSuffix> suffixes) {
  for (const UnitSuffix& unit : suffixes) {
    const double scaled = value / unit.size;
    if (scaled * unit.size != value && unit.size != 1) continue;
    json[std::string(stem) + std::string(unit.suffix)] = scaled;
    return;
  }
}

std::vector<std::string> nearest(std::string_view typed, const std::vector<std::string>& candidates) {
  std::vector<std::pair<std::size_t, std::string>> scored;
  for (const std::string& candidate : candidates) {
    const bool part = typed.size() >= 2 && candidate.find(typed) != std::string::npos;
    const std::size_t distance = edit_distance(typed, candidate);
    if (part || distance <= std::max<std::size_t>(2, candidate.size() / 3))
      scored.emplace_back(distance, candidate);
  }
  std::ranges::stable_sort(scored, [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (auto& [distance, candidate] : scored) names.push_back(std::move(candidate));
  return names;
}

}  // namespace sim
