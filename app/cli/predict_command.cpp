#include "app/cli/predict_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/this_machine.h"
#include "sim/scenario/preset.h"

namespace app::cli {

namespace {

// Quotes a word for a POSIX shell.
std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && std::ranges::all_of(word, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("-_./:=+,@").find(c) != std::string_view::npos;
  });
  if (plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string line_of(const ScenarioFlags& flags) {
  std::string line = "ridgepoint predict";
  const auto add = [&](std::string_view flag, const std::string& value) {
    // A value that begins with a dash would be read as a flag.
    line.append(fmt::format(" --{}{}{}", flag, value.starts_with('-') ? "=" : " ", quoted(value)));
  };
  const auto add_name = [&](std::string_view flag, const std::optional<std::string>& value) {
    if (value) add(flag, *value);
  };
  add_name("scenario", flags.scenario);
  add_name("model", flags.model);
  add_name("hardware", flags.hardware);
  add_name("implementation", flags.implementation);
  add_name("workload", flags.workload);
  for (const auto& [field, text] : flags.fields)
    if (field->kind == sim::AnyField::Kind::toggle)
      line.append(fmt::format(" --{}{}", text == "true" ? "" : "no-", field->flag));
    else
      add(field->flag, text);
  for (const sim::Override& o : flags.overrides) add("set", o.path + "=" + o.value);
  return line;
}

// A line always names these fields, so that people know what is predicted.
bool is_always_said(const sim::AnyField& f, const sim::Scenario& s) {
  return f.part == "workload" && f.kind != sim::AnyField::Kind::toggle && !f.optional &&
         (f.applies == nullptr ||
          ((f.applies == sim::trains || f.applies == sim::generates) && f.applies(s) &&
           f.kind == sim::AnyField::Kind::number && f.name != "weights_group"));
}

void say(const sim::AnyField& f, const sim::Scenario& target, ScenarioFlags& flags) {
  sim::Scenario read;
  const std::string text = f.text(target);
  if (!f.flag.empty() && f.set(read, text) && f.same(read, target)) flags.type(f, text);
}

// Names a part by its preset. Where its name belongs to no preset, the whole part is written out.
template <class Part, class Load>
void name_part(const Part& part, std::optional<std::string>& flag, Load load) {
  if (flag || part.name.empty()) return;
  try {
    load(part.name);
    flag = part.name;
  } catch (const std::exception&) {
    // The user chose this name: no preset has it.
  }
}

}  // namespace

ScenarioFlags named_by(const ScenarioFlags& flags) {
  ScenarioFlags names;
  names.scenario = flags.scenario;
  names.model = flags.model;
  names.hardware = flags.hardware;
  names.implementation = flags.implementation;
  names.workload = flags.workload;
  return names;
}

std::string predict_command(const sim::Scenario& scenario, ScenarioFlags flags) {
  // Without a name for its model the line must contain the whole model at once.
  if (!flags.model && !flags.scenario) flags.overrides.push_back(sim::whole(scenario, "model"));
  sim::Scenario parts = named_parts(flags).scenario;
  settle_hardware(parts, {}, {});
  const auto said = [&] { return with_fields(parts, flags); };
  const auto say_others = [&](const sim::Scenario& now) {
    for (const sim::AnyField& f : sim::all_fields())
      if (!flags.typed(f.path()) && !f.same(now, scenario)) say(f, scenario, flags);
  };
  for (const sim::AnyField& f : sim::all_fields())
    if (is_always_said(f, scenario)) say(f, scenario, flags);
  say_others(said());
  say_others(said());  // undoes side effects of other flags
  // A model of the user's own may change the defaults that the line leaves out.
  for (int round = 0; round < 2; ++round)
    for (const sim::Override& o : sim::overrides(said(), scenario)) flags.overrides.push_back(o);
  return line_of(flags);
}

std::string predict_command(const sim::Scenario& scenario) {
  ScenarioFlags names;
  name_part(scenario.model, names.model, [](const std::string& name) { return runtime::open_model(name); });
  name_part(scenario.hardware, names.hardware, [](const std::string& name) {
    if (name != sim::kThisMachine || !runtime::cached_this_machine()) sim::load_hardware_preset(name);
  });
  name_part(scenario.implementation, names.implementation, sim::load_implementation_preset);
  return predict_command(scenario, names);
}

}  // namespace app::cli
