// Every field of a scenario as a command of the palette: "recompute full", "sequence 4k".
#include "app/gui/shell.h"
#include "sim/format.h"
#include "sim/scenario/fields.h"

namespace app::gui {
namespace {

std::string capitalised(std::string_view words) {
  std::string text(words);
  if (!text.empty()) text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text;
}

}  // namespace

void Shell::add_field_commands() {
  using Kind = sim::AnyField::Kind;
  for (const sim::AnyField& field : sim::all_fields()) {
    if (field.label.empty() || field.kind == Kind::text) continue;
    const auto set = [this, &field](const std::string& value) {
      sim::Scenario next = document().scenario();
      const std::string before = field.text(next);
      if (!field.set(next, value))
        return toast_.say(capitalised(field.label) + " takes " + field.accepted() + ", not " + value + ".");
      edit(std::string(field.label) + " " + before + " \u2192 " + field.text(next), std::move(next));
    };
    const auto applies = [this, &field] { return !field.applies || field.applies(document().scenario()); };
    const auto add = [&](std::string id, std::string label, std::function<void()> run, auto take) {
      commands_.add({.id = std::move(id),
                     .category = capitalised(field.part),
                     .label = std::move(label),
                     .run = std::move(run),
                     .enabled = applies,
                     .detail = [this, &field] { return "now " + field.text(document().scenario()); },
                     .in_menu = false,
                     .take = take});
    };
    const std::string id = "set." + field.path(), label(field.label);
    const auto ask = [this, &field] {
      toast_.say("Type its value behind it: " + std::string(field.label) + " takes " + field.accepted() +
                 ".");
    };
    add(id, label, ask, field.kind == Kind::word ? nullptr : std::function<void(const std::string&)>(set));
    for (const std::string_view word : field.words)
      if (field.kind == Kind::word)
        add(
            id + "." + std::string(word), label + " " + std::string(word),
            [set, word] { set(std::string(word)); }, nullptr);
  }
}

}  // namespace app::gui
