#include "app/cli/plan_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "app/cli/exit_code.h"
#include "app/cli/flags.h"
#include "runtime/error.h"
#include "sim/format.h"

namespace app::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kSweepSchemaVersion = 1;

// Flags that a sweep may vary, and where their values go.
struct TextField {
  std::string_view name;
  std::optional<std::string> ScenarioFlags::*value;
};
constexpr std::array<TextField, 11> kTextFields{{
    {"scenario", &ScenarioFlags::scenario},
    {"model", &ScenarioFlags::model},
    {"hardware", &ScenarioFlags::hardware},
    {"implementation", &ScenarioFlags::implementation},
    {"workload", &ScenarioFlags::workload},
    {"dtype", &ScenarioFlags::dtype},
    {"optimizer", &ScenarioFlags::optimizer},
    {"recompute", &ScenarioFlags::recompute},
    {"schedule", &ScenarioFlags::schedule},
    {"weights-dtype", &ScenarioFlags::weights_dtype},
    {"kv-dtype", &ScenarioFlags::kv_dtype},
}};

struct CountField {
  std::string_view name;
  std::optional<std::int64_t> ScenarioFlags::*value;
  bool binary_k = false;
};
constexpr std::array<CountField, 13> kCountFields{{
    {"gpus", &ScenarioFlags::gpus},
    {"tp", &ScenarioFlags::tensor_parallel},
    {"pp", &ScenarioFlags::pipeline_parallel},
    {"cp", &ScenarioFlags::context_parallel},
    {"ep", &ScenarioFlags::expert_parallel},
    {"vpp", &ScenarioFlags::virtual_pipeline},
    {"zero", &ScenarioFlags::zero_stage},
    {"micro-batch", &ScenarioFlags::micro_batch},
    {"global-batch", &ScenarioFlags::global_batch},
    {"batch-size", &ScenarioFlags::batch_size},
    {"seq-len", &ScenarioFlags::seq_len, true},
    {"prompt-length", &ScenarioFlags::prompt_length, true},
    {"max-new-tokens", &ScenarioFlags::max_new_tokens, true},
}};

std::string known_fields() {
  std::string names;
  for (const TextField& field : kTextFields) names += (names.empty() ? "" : ", ") + std::string(field.name);
  for (const CountField& field : kCountFields) names += ", " + std::string(field.name);
  return names;
}

bool is_known(std::string_view name) {
  const auto named = [&](const auto& field) { return field.name == name; };
  return std::any_of(kTextFields.begin(), kTextFields.end(), named) ||
         std::any_of(kCountFields.begin(), kCountFields.end(), named);
}

// A value as it would be typed.
std::string typed(const std::string& path, const std::string& field, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return value.dump();
  throw runtime::InputError(
      fmt::format("{} {}: values are texts or whole numbers, not {}", path, field, value.dump()));
}

std::vector<std::pair<std::string, std::vector<std::string>>> read_fields(const std::string& path) {
  const Json json = Json::parse(read_file(path), nullptr, false);
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
          fmt::format("{} {}: is not known; there are schema_version and vary", path, key));
  std::vector<std::pair<std::string, std::vector<std::string>>> fields;
  for (const auto& [name, values] : json["vary"].items()) {
    const std::string field = "vary." + name;
    if (!is_known(name))
      throw runtime::InputError(
          fmt::format("{} {}: is not known; there are {}", path, field, known_fields()));
    if (!values.is_array() || values.empty())
      throw runtime::InputError(fmt::format("{} {}: must be a list of at least one value", path, field));
    auto& list = fields.emplace_back(name, std::vector<std::string>()).second;
    for (const Json& value : values) list.push_back(typed(path, field, value));
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
    for (const TextField& field : kTextFields)
      if (field.name == name) flags.*field.value = value;
    for (const CountField& field : kCountFields) {
      if (field.name != name) continue;
      std::int64_t count = 0;
      if (!sim::parse_count(value, count, field.binary_k))
        throw UsageError(
            fmt::format("{} takes a whole number, as 8, 8k or 1.5M: \"{}\" is none", name, value));
      flags.*field.value = count;
    }
  }
}

std::string sweep_schema() {
  const Json texts = {{"type", "array"}, {"minItems", 1}, {"items", {{"type", "string"}}}};
  const Json counts = {{"type", "array"}, {"minItems", 1}, {"items", {{"type", {"integer", "string"}}}}};
  Json fields = Json::object();
  for (const TextField& field : kTextFields) fields[std::string(field.name)] = texts;
  for (const CountField& field : kCountFields) fields[std::string(field.name)] = counts;
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
