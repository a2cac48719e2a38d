// Configure: every choice that the prediction depends on, what is wrong with it, and what the other choice
// would buy.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "app/counted.h"
#include "app/gui/legal.h"
#include "app/gui/panels/panels.h"
#include "app/gui/presets.h"
#include "app/gui/scenario_fields.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/numbers.h"
#include "app/gui/widgets/text.h"
#include "sim/format.h"
#include "sim/plan/legality.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

// A value that a field could not take, until the next edit.
struct Refusal {
  std::string field, message;
  sim::Scenario of = {};
};

struct ScenarioState {
  explicit ScenarioState(const PanelTools& tools) : tabs(tools.tabs) {}
  const Tabs& tabs;
  std::set<std::string> folded = {"model"};  // sections
  std::set<std::string> unfolded;            // those whose rare fields are shown
  Refusal refusal;
};

// "full: -9.13 GiB, speed -31 %".
std::string effect_of(const Alternative& other, const sim::Report& now) {
  const sim::Bytes before = sim::peak_memory(now), after = sim::peak_memory(other.report);
  std::string words = other.short_label + ": ";
  if (after < before)
    words.append("\u2212").append(sim::format(before - after));
  else if (after > before)
    words.append("+").append(sim::format(after - before));
  else
    words += "same memory";
  const double rate = sim::tokens_per_second(other.report) / sim::tokens_per_second(now) - 1;
  if (std::isfinite(rate)) words.append(", ").append(unbroken("speed " + signed_percent(rate)));
  return words;
}

// Choices of so many letters are shown all at once; longer ones drop down.
bool stand_side_by_side(const std::vector<std::string_view>& choices) {
  constexpr std::size_t kMostLetters = 20;
  std::size_t letters = 0;
  for (const std::string_view choice : choices) letters += choice.size();
  return letters <= kMostLetters;
}

// A model's field has its preset's value, others that of a default scenario. Empty where it is so already.
std::optional<std::int64_t> shipped_value(const ScenarioField& field, const sim::Scenario& scenario) {
  sim::Scenario shipped;
  try {
    if (field.name.starts_with("model.")) shipped.model = load_model_choice(scenario.model.name);
  } catch (const std::exception&) {
    return std::nullopt;  // a model of the user's own
  }
  const std::int64_t value = field.read(shipped);
  return value == field.read(scenario) ? std::nullopt : std::optional(value);
}

class Form {
 public:
  explicit Form(const ContextWith<ScenarioState>& context)
      : context_(context), look_(context.look), s_(context.scenario), state_(context.state) {
    if (!state_.refusal.field.empty() && !(state_.refusal.of == s_)) state_.refusal = {};
    // The prediction's problems, not the moment's: both are the same a frame later.
    problems_ = problems_of(s_);
  }

  void section(const FieldSection& section) {
    const bool any = std::any_of(section.fields.begin(), section.fields.end(),
                                 [&](const ScenarioField& field) { return shows(field); });
    if (!any && !section.preset) return;
    ImGui::PushID(section.id);
    std::set<std::string>& folded = state_.folded;
    // What is wrong is never folded away.
    const bool wrong = std::any_of(section.fields.begin(), section.fields.end(),
                                   [&](const ScenarioField& f) { return is_wrong(f); });
    const bool folds = section.preset && any;
    bool is_folded = folds && folded.count(section.id) && !wrong;
    if (!folds) {
      form_heading(look_, section.title);
    } else if (folding_heading(look_, section.title, is_folded)) {
      is_folded ? folded.erase(section.id) : folded.insert(section.id).second;
    }
    if (section.preset) preset(section);
    if (!is_folded) fields(section);
    ImGui::PopID();
  }

  // Where something is wrong, what leads out of it at once.
  void ways_back() const {
    if (problems_.empty()) return;
    if (primary_button(look_, "Make it legal", look_.color().predicted)) context_.invoke("edit.make_legal");
    ImGui::SameLine();
    if (ImGui::Button("New")) context_.invoke("file.new");
  }

  // What no field above has said.
  void remaining_problems() {
    for (const sim::Problem& problem : problems_)
      if (!shown_.count(problem.field))
        text_wrapped(look_, TextRole::caption, look_.color().bad, in_labels(problem));
  }

 private:
  bool shows(const ScenarioField& field) const { return !field.applies || field.applies(s_); }
  bool is_wrong(const ScenarioField& field) const {
    return std::any_of(problems_.begin(), problems_.end(),
                       [&](const sim::Problem& p) { return p.field == field.name; });
  }

  // The usual ones and those that are set; the others below "more", until it is unfolded.
  void fields(const FieldSection& section) {
    bool any_more = false;
    const auto stands_out = [&](const ScenarioField& f) { return !f.rare || f.is_set(s_) || is_wrong(f); };
    for (const ScenarioField& one : section.fields) {
      if (!shows(one)) continue;
      if (stands_out(one))
        field(one);
      else
        any_more = true;
    }
    if (!any_more) return;
    std::set<std::string>& unfolded = state_.unfolded;
    const bool open = unfolded.count(section.id) > 0;
    if (folding_heading(look_, "more", !open))
      open ? unfolded.erase(section.id) : unfolded.insert(section.id).second;
    for (const ScenarioField& one : section.fields)
      if (open && shows(one) && !stands_out(one)) field(one);
  }

  FieldNote note(const ScenarioField& field) {
    shown_.insert(field.name);
    FieldNote note;
    if (field.choices.empty()) {
      note.ghosts = ghosts(field);
      // A machine's own numbers have no value that is nobody's.
      if (!field.name.starts_with("hardware."))
        note.as_shipped = [this, &field] { return shipped_value(field, s_); };
    }
    const Refusal& refusal = state_.refusal;
    if (refusal.field == field.name) note.problem = refusal.message;
    for (const sim::Problem& problem : problems_)
      if (problem.field == field.name) note.problem = in_labels(problem.message);
    if (!note.problem.empty()) {
      if (refusal.field != field.name)
        for (const std::int64_t value : accepted_values(s_, field))
          note.accepted.push_back(field.text(value));
      return note;
    }
    if (field.says) note.effect = field.says(s_);
    if (!context_.prediction.report) return note;
    for (const Alternative& other : context_.prediction.alternatives) {
      if (other.field != field.name) continue;
      if (!note.effect.empty()) note.effect += "\n";
      note.effect += effect_of(other, *context_.prediction.report);
    }
    return note;
  }

  // What it was before the last edit, and what it is in the pin that all is compared with.
  std::vector<FieldGhost> ghosts(const ScenarioField& field) const {
    const std::int64_t now = field.read(s_);
    std::vector<FieldGhost> found;
    const auto add = [&](const std::string& name, const sim::Scenario& other, ImU32 color) {
      if (field.applies && !field.applies(other)) return;
      if (const std::int64_t then = field.read(other); then != now)
        found.push_back({name + " " + field.text(then), color});
    };
    const History& history = state_.tabs.current().document.history();
    if (!history.undo.empty()) add("was", history.undo.back().other_side, look_.color().mute);
    if (const Pin* baseline = context_.pins.baseline())
      add(std::string(1, baseline->letter), baseline->scenario(), pin_color(look_, *baseline));
    return found;
  }

  void field(const ScenarioField& field) {
    const std::int64_t before = field.read(s_);
    const auto now = static_cast<std::size_t>(before);
    std::optional<std::int64_t> after;
    if (field.choices.empty()) {
      after = count_field(look_, field.label.c_str(), before, field.stepper(s_), field.style, note(field));
    } else if (field.several) {
      after =
          several_field(look_, field.label.c_str(), before, field.text(before), field.choices, note(field));
    } else if (stand_side_by_side(field.choices)) {
      after = segmented_field(look_, field.label.c_str(), now, field.choices, note(field));
    } else {
      after = choice_field(look_, field.label.c_str(), field.text(before), field.choices, note(field));
    }
    if (!after || *after == before) return;
    if (const std::string refusal = field.refuses ? field.refuses(s_, *after) : ""; !refusal.empty()) {
      state_.refusal = {field.name, refusal, s_};
      return;
    }
    sim::Scenario next = s_;
    field.write(next, *after);
    context_.edit(field.label + " " + field.text(before) + " \u2192 " + field.text(*after), std::move(next),
                  field.choices.empty() ? field.name : "");
  }

  // Through its command, which the palette and the top bar have too.
  void preset(const FieldSection& section) {
    const std::vector<std::string>& names = preset_choices(*section.preset);
    FieldNote below;
    below.effect = section.preset_says(s_);
    const std::vector<std::string_view> shown(names.begin(), names.end());
    if (const auto picked = choice_field(look_, "preset", section.preset_name(s_), shown, below))
      context_.invoke(std::string(section.id) + "." + names[*picked]);
  }

  const PanelContext& context_;
  const Look& look_;
  const sim::Scenario& s_;
  ScenarioState& state_;
  std::vector<sim::Problem> problems_;
  std::set<std::string> shown_;
};

std::string caption(const PanelContext& context) {
  const std::int64_t problems = std::ssize(problems_of(context.scenario));
  return problems == 0 ? "" : counted(problems, "problem");
}

void draw(const ContextWith<ScenarioState>& context) {
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(context.look.px(8), context.look.px(5)));
  Form form(context);
  const Look& look = context.look;
  const float room = ImGui::GetContentRegionAvail().x, gap = look.px(32);
  const bool columns = room >= look.px(1000);
  const float width = std::min((room - 2 * gap) / 3, look.px(560));
  const auto column = [&](const char* id, const auto& sections) {
    if (columns) ImGui::BeginChild(id, {width, 0}, ImGuiChildFlags_NavFlattened);
    sections();
    if (columns) ImGui::EndChild();
  };
  form.ways_back();
  const std::vector<FieldSection>& sections = scenario_fields();
  // Model; hardware and workload; the rest.
  column("what", [&] { form.section(sections[0]); });
  if (columns) ImGui::SameLine(0, gap);
  column("where", [&] {
    form.section(sections[1]);
    form.section(sections[2]);
  });
  if (columns) ImGui::SameLine(0, gap);
  column("how", [&] {
    for (std::size_t i = 3; i < sections.size(); ++i) form.section(sections[i]);
    form.remaining_problems();
  });
  ImGui::PopStyleVar();
}

std::vector<Figure> figures(const ContextWith<ScenarioState>& context) {
  const sim::Scenario& s = context.scenario;
  FigureTable fields{{{"part"}, {"field"}, {"value"}}, {}};
  for (const FieldSection& section : scenario_fields()) {
    if (section.preset)
      fields.rows.push_back({std::string(section.title), std::string("preset"), section.preset_name(s)});
    for (const ScenarioField& field : section.fields)
      if (!field.applies || field.applies(s))
        fields.rows.push_back({std::string(section.title), field.label, field.text(field.read(s))});
  }
  std::vector<Figure> all = {{"Scenario", std::move(fields)}};
  if (!context.prediction.report || context.prediction.alternatives.empty()) return all;
  const sim::Report& now = *context.prediction.report;
  FigureTable choices{{{"choice"},
                       {"peak memory", Measure::bytes},
                       {"memory saved", Measure::bytes},
                       {"step", Measure::seconds},
                       {"change of speed", Measure::share}},
                      {}};
  const auto bytes = [](const sim::Report& report) {
    return static_cast<double>(sim::peak_memory(report).value);
  };
  for (const Alternative& other : context.prediction.alternatives)
    choices.rows.push_back({other.label, bytes(other.report), bytes(now) - bytes(other.report),
                            sim::step_time(other.report).value,
                            sim::tokens_per_second(other.report) / sim::tokens_per_second(now) - 1});
  all.push_back({"One choice away", std::move(choices)});
  return all;
}

}  // namespace

extern const PanelEntry scenario_panel = {"scenario",
                                          "Configure",
                                          "what is computed, on what",
                                          Dock::left,
                                          panel_of<ScenarioState, caption, draw, figures>,
                                          false,
                                          false};

}  // namespace app::gui
