#include "sim/scenario/overrides.h"

#include <algorithm>

#include "sim/scenario/fields.h"
#include "sim/scenario/scenario_json.h"

namespace sim {
namespace {

Json value_of(const std::string& text) {
  if (nested_too_deep(text)) return Json(text);  // too deep for a value of ours: its field refuses the text
  Json value = Json::parse(text, nullptr, false);
  return value.is_discarded() ? Json(text) : value;
}

std::string text_of(const Json& value) {
  if (!value.is_string()) return value.dump();
  const std::string& text = value.get_ref<const std::string&>();
  return Json::accept(text) ? value.dump() : text;
}

// A quantity has one unit, so its value in another unit is erased.
void erase_other_units(Json& object, const std::string& key) {
  const auto erase_others = [&](std::span<const UnitSuffix> suffixes) {
    for (const UnitSuffix& said : suffixes) {
      if (!key.ends_with(said.suffix)) continue;
      const std::string stem = key.substr(0, key.size() - said.suffix.size());
      for (const UnitSuffix& other : suffixes)
        if (other.suffix != said.suffix) object.erase(stem + std::string(other.suffix));
    }
  };
  erase_others(unit_suffixes::rate);
  erase_others(unit_suffixes::bandwidth);
  erase_others(unit_suffixes::memory);
  erase_others(unit_suffixes::short_time);
}

void set(Json& object, const std::string& path, Json value) {
  const std::size_t dot = path.find('.');
  const std::string key = path.substr(0, dot);
  if (dot != std::string::npos) {
    if (!object.contains(key) || !object[key].is_object()) object[key] = Json::object();
    return set(object[key], path.substr(dot + 1), std::move(value));
  }
  erase_other_units(object, key);
  if (value.is_null())
    object.erase(key);
  else
    object[key] = std::move(value);
}

void compare(const std::string& path, const Json& from, const Json& to, std::vector<Override>& found) {
  if (from == to) return;
  const auto has_path_in_key = [](const Json& object) {
    return std::ranges::any_of(object.items(), [](const auto& item) {
      return item.key().empty() || item.key().find('.') != std::string::npos;
    });
  };
  if (!from.is_object() || !to.is_object() || has_path_in_key(from) || has_path_in_key(to)) {
    found.push_back({path, text_of(to)});
    return;
  }
  const auto at = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  // First the fields that go: a quantity may come back in another unit.
  for (const auto& [key, value] : from.items())
    if (!to.contains(key)) found.push_back({at(key), "null"});
  for (const auto& [key, value] : to.items()) {
    if (from.contains(key))
      compare(at(key), from[key], value, found);
    else
      found.push_back({at(key), text_of(value)});
  }
}

}  // namespace

Scenario with_overrides(const Scenario& scenario, const std::vector<Override>& overrides,
                        const std::string& said_by) {
  if (overrides.empty()) return scenario;
  Json json = json_of(scenario);
  for (const Override& o : overrides) {
    constexpr std::ptrdiff_t kDeepestPath = 10;  // "implementation.serving.field" has 3 parts
    if (std::ranges::count(o.path, '.') >= kDeepestPath)
      throw PresetError(said_by + ": field \"" + excerpt(o.path) + "\" is not known here");
    // The path may name a field without its part.
    for (const AnyField& field : all_fields())
      if (field.name == o.path)
        throw PresetError(said_by + ": field \"" + o.path + "\" is not known here; " + field.path() + " is");
    set(json, o.path, value_of(o.value));
  }
  return scenario_from(JsonObject(json, said_by));
}

Override whole(const Scenario& scenario, const std::string& part) {
  return {part, text_of(json_of(scenario)[part])};
}

std::vector<Override> overrides(const Scenario& from, const Scenario& to) {
  std::vector<Override> found;
  compare("", json_of(from), json_of(to), found);
  return found;
}

}  // namespace sim
