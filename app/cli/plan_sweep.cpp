#include "app/cli/plan_sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "app/cli/exit_code.h"
#include "app/cli/flags.h"
#include "runtime/error.h"
#include "sim/format.h"
#include "sim/json_object.h"

namespace app::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kSweepSchemaVersion = 1;

// The flags that a sweep may vary beside the scenario's fields.
struct PartFlag {
  std::string_view name;
  std::optional<std::string> ScenarioFlags::*value;
};
constexpr std::array<PartFlag, 5> kPartFlags{{
    {"scenario", &ScenarioFlags::scenario},
    {"model", &ScenarioFlags::model},
    {"hardware", &ScenarioFlags::hardware},
    {"implementation", &ScenarioFlags::implementation},
    {"workload", &ScenarioFlags::workload},
}};
constexpr std::string_view kDevices = "gpus";

const sim::AnyField* field_of_flag(std::string_view flag) {
  const auto fields = sim::all_fields();
  const auto found = std::ranges::find(fields, flag, &sim::AnyField::flag);
  return flag.empty() || found == fields.end() ? nullptr : &*found;
}

std::vector<std::string_view> known_flags() {
  std::vector<std::string_view> names;
  for (const PartFlag& part : kPartFlags) names.push_back(part.name);
  names.push_back(kDevices);
  for (const sim::AnyField& field : sim::all_fields())
    if (!field.flag.empty()) names.push_back(field.flag);
  return names;
}

// A value as a user would type it.
std::string typed(const std::string& path, const std::string& field, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  throw runtime::InputError(
      fmt::format("{} {}: values are texts, numbers, true or false, not {}", path, field, sim::shown(value)));
}

std::vector<std::pair<std::string, std::vector<std::string>>> read_fields(const std::string& path) {
  const Json json = sim::parse_json(read_file(path), path);
  if (!json.is_object())
    throw runtime::InputError(
        fmt::format("{} is no JSON object; ridgepoint schema sweep says what it holds", path));
  if (!json.contains("schema_version") || json["schema_version"] != kSweepSchemaVersion)
    throw runtime::InputError(fmt::format("{} schema_version: must be {}", path, kSweepSchemaVersion));
  if (!json.contains("vary") || !json["vary"].is_object() || json["vary"].empty())
    throw runtime::InputError(
        fmt::format("{} vary: must be an object with a list of values for each flag that varies", path));
  for (const auto& [key, ignored] : json.items())
    if (key != "schema_version" && key != "vary")
      throw runtime::InputError(
          fmt::format("{} {}: is not known; there are schema_version and vary", path, sim::excerpt(key)));
  std::vector<std::pair<std::string, std::vector<std::string>>> fields;
  for (const auto& [name, values] : json["vary"].items()) {
    const std::string field = "vary." + name;
    const std::vector<std::string_view> known = known_flags();
    if (std::ranges::find(known, name) == known.end())
      throw runtime::InputError(fmt::format("{} {}: is not known; there are {}", path, sim::excerpt(field),
                                            fmt::join(known, ", ")));
    if (!values.is_array() || values.empty())
      throw runtime::InputError(fmt::format("{} {}: must be a list of at least one value", path, field));
    auto& list = fields.emplace_back(name, std::vector<std::string>()).second;
    std::set<std::string> seen;
    for (const Json& value : values) {
      std::string text = typed(path, field, value);
      if (!seen.insert(text).second)
        throw runtime::InputError(fmt::format("{} {}: \"{}\" is there twice; each value is searched once",
                                              path, field, sim::excerpt(text)));
      list.push_back(std::move(text));
    }
  }
  return fields;
}

}  // namespace

std::string text_of(const Variation& variation) {
  std::string text;
  for (const auto& [field, value] : variation) text += (text.empty() ? "" : ", ") + field + ' ' + value;
  return text;
}

std::vector<Variation> read_sweep(const std::string& path) {
  constexpr std::size_t kMost = 100'000;
  std::vector<Variation> variations{{}};
  for (const auto& [field, values] : read_fields(path)) {
    if (variations.size() * values.size() > kMost)
      throw runtime::InputError(fmt::format("{} vary: makes more than {} searches", path, kMost));
    std::vector<Variation> further;
    for (const Variation& before : variations)
      for (const std::string& value : values) {
        further.push_back(before);
        further.back().emplace_back(field, value);
      }
    variations = std::move(further);
  }
  return variations;
}

void apply(const Variation& variation, ScenarioFlags& flags) {
  for (const auto& [name, value] : variation) {
    for (const PartFlag& part : kPartFlags)
      if (part.name == name) flags.*part.value = value;
    if (const sim::AnyField* field = field_of_flag(name)) flags.type(*field, value);
    if (name != kDevices) continue;
    flags.gpus.emplace();
    if (!sim::parse_count(value, *flags.gpus))
      throw UsageError(fmt::format("{} takes a whole number, as 8, 8k or 1.5M: \"{}\" is none", name, value));
  }
}

std::string sweep_schema() {
  const auto list_of = [](const Json& type) {
    return Json{{"type", "array"}, {"minItems", 1}, {"uniqueItems", true}, {"items", {{"type", type}}}};
  };
  Json fields = Json::object();
  for (const std::string_view name : known_flags()) {
    const sim::AnyField* const field = field_of_flag(name);
    const auto is = [&](sim::AnyField::Kind kind) { return field && field->kind == kind; };
    Json type = "string";
    if (name == kDevices || is(sim::AnyField::Kind::number)) type = {"integer", "string"};
    if (is(sim::AnyField::Kind::fraction)) type = {"number", "string"};
    if (is(sim::AnyField::Kind::toggle)) type = {"boolean", "string"};
    fields[std::string(name)] = list_of(type);
  }
  const Json schema = {
      {"type", "object"},
      {"required", {"schema_version", "vary"}},
      {"additionalProperties", false},
      {"properties",
       {{"schema_version", {{"const", kSweepSchemaVersion}}},
        {"vary",
         {{"type", "object"},
          {"minProperties", 1},
          {"additionalProperties", false},
          {"description",
           "values of flags of ridgepoint plan; every combination is searched, the last field fastest"},
          {"properties", fields}}}}}};
  return schema.dump();
}

}  // namespace app::cli
