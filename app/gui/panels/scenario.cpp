// Configure: every choice that the prediction depends on, what is wrong with it, and what the other choice
// would buy.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "app/gui/panels/panels.h"
#include "app/gui/presets.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/text.h"
#include "sim/format.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"

namespace app::gui {
namespace {

constexpr std::int64_t kMany = std::int64_t{1} << 24;

std::string signed_percent(double change) {
  return std::string(change < 0 ? "\u2212" : "+").append(sim::format_percent(std::abs(change)));
}

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

class Form {
 public:
  explicit Form(const PanelContext& context) : context_(context), look_(context.look), s_(context.scenario) {
    // Of the prediction, not of the moment: both are the same a frame later.
    for (const sim::Problem& problem : sim::validate(s_)) problems_.push_back(problem);
  }

  FieldNote note(const std::string& field, std::string otherwise = "") {
    shown_.insert(field);
    FieldNote note;
    note.effect = std::move(otherwise);
    for (const sim::Problem& problem : problems_)
      if (problem.field == field) note.problem = problem.message;
    if (!note.problem.empty() || !context_.prediction.report) return note;
    for (const Alternative& other : context_.prediction.alternatives) {
      if (other.field != field) continue;
      if (!note.effect.empty()) note.effect += "\n";
      note.effect += effect_of(other, *context_.prediction.report);
    }
    return note;
  }

  template <class Part, class Number>
  void count(const char* label, const std::string& field, Part sim::Scenario::*part, Number Part::*member,
             const Stepper& stepper, bool binary_k = false, std::string otherwise = "") {
    const Number before = (s_.*part).*member;
    const auto after =
        count_field(look_, label, before, stepper, binary_k, note(field, std::move(otherwise)));
    if (!after) return;
    sim::Scenario next = s_;
    (next.*part).*member = static_cast<Number>(*after);
    context_.edit(
        std::string(label) + " " + sim::format_count(before) + " \u2192 " + sim::format_count(*after),
        std::move(next), field);
  }

  // `names` in the order of the enumeration.
  template <class Part, class Choice>
  void choice(const char* label, const std::string& field, Part sim::Scenario::*part, Choice Part::*member,
              std::span<const std::string_view> names) {
    const auto before = static_cast<std::size_t>((s_.*part).*member);
    const auto after = segmented_field(look_, label, before, names, note(field));
    if (!after) return;
    sim::Scenario next = s_;
    (next.*part).*member = static_cast<Choice>(*after);
    context_.edit(
        std::string(label) + " " + std::string(names[before]) + " \u2192 " + std::string(names[*after]),
        std::move(next));
  }

  // A preset of a kind, through its command.
  void preset(const char* prefix, const std::string& current, sim::PresetKind kind, std::string otherwise) {
    const std::vector<std::string>& names = preset_choices(kind);
    FieldNote below;
    below.effect = std::move(otherwise);
    if (const auto picked = choice_field(look_, "preset", current, names, below))
      context_.invoke(std::string(prefix) + "." + names[*picked]);
  }

  // What no field above has said.
  void remaining_problems() {
    for (const sim::Problem& problem : problems_)
      if (!shown_.count(problem.field))
        text_wrapped(look_, TextRole::caption, look_.color().bad, problem.field + " " + problem.message);
  }

  void model() {
    const sim::Model& m = s_.model;
    ImGui::PushID("model");
    form_heading(look_, "Model");
    const auto parameters = static_cast<double>(sim::count_parameters(m).total);
    preset("model", m.name, sim::PresetKind::model, sim::format_short(parameters) + " parameters");
    using M = sim::Model;
    const auto part = &sim::Scenario::model;
    count("layers", "model.num_hidden_layers", part, &M::num_hidden_layers, step_by(1, 1, 1 << 12));
    count("hidden", "model.hidden_size", part, &M::hidden_size, step_by(m.head_dim, m.head_dim, kMany));
    count("heads", "model.num_attention_heads", part, &M::num_attention_heads,
          step_by(std::max<std::int64_t>(1, m.num_key_value_heads),
                  std::max<std::int64_t>(1, m.num_key_value_heads), kMany));
    count("KV heads", "model.num_key_value_heads", part, &M::num_key_value_heads,
          step_through_divisors_of(m.num_attention_heads), false, grouping());
    count("head size", "model.head_dim", part, &M::head_dim, step_by(8, 8, 1 << 12));
    count("MLP size", "model.intermediate_size", part, &M::intermediate_size, step_by(256, 256, kMany));
    count("vocabulary", "model.vocab_size", part, &M::vocab_size, step_by(128, 128, kMany));
    ImGui::PopID();
  }

  void hardware() {
    const sim::Hardware& h = s_.hardware;
    ImGui::PushID("hardware");
    form_heading(look_, "Hardware");
    std::string what = sim::format(h.memory);
    if (!h.peak.empty()) {
      const auto peak = h.peak.find(s_.workload.dtype);
      if (peak != h.peak.end())
        what = sim::format(peak->second) + " " + std::string(sim::name(s_.workload.dtype)) + "\n" +
               sim::format(h.memory_bandwidth) + ", " + what;
    }
    preset("hardware", h.name, sim::PresetKind::hardware, what);
    ImGui::PopID();
  }

  void workload() {
    ImGui::PushID("workload");
    form_heading(look_, "Workload");
    using W = sim::Workload;
    const auto part = &sim::Scenario::workload;
    static constexpr std::array<std::string_view, 2> tasks = {"train", "generate"};
    choice("task", "workload.task", part, &W::task, tasks);
    dtype();
    if (s_.workload.task == sim::Task::train) {
      count("sequence", "workload.seq_len", part, &W::seq_len, step_by_doubling(1, kMany), true);
      count("micro-batch", "workload.micro_batch_size", part, &W::micro_batch_size, step_by(1, 1, kMany));
      count("global batch", "workload.global_batch_size", part, &W::global_batch_size,
            step_by(std::max<std::int64_t>(1, s_.workload.micro_batch_size),
                    std::max<std::int64_t>(1, s_.workload.micro_batch_size), kMany),
            false, accumulation());
    } else {
      count("batch", "workload.batch_size", part, &W::batch_size, step_by_doubling(1, kMany));
      count("prompt", "workload.prompt_length", part, &W::prompt_length, step_by_doubling(1, kMany), true);
      count("new tokens", "workload.max_new_tokens", part, &W::max_new_tokens, step_by_doubling(1, kMany),
            true);
      static constexpr std::array<std::string_view, 2> off_on = {"off", "on"};
      choice("KV cache", "workload.kv_cache", part, &W::kv_cache, off_on);
    }
    ImGui::PopID();
  }

  void strategy() {
    if (s_.workload.task != sim::Task::train) return;
    ImGui::PushID("strategy");
    form_heading(look_, "Strategy");
    static constexpr std::array<std::string_view, 3> recompute = {"none", "selective", "full"};
    choice("recompute", "strategy.recompute", &sim::Scenario::strategy, &sim::Strategy::recompute, recompute);
    ImGui::PopID();
  }

  void implementation() {
    ImGui::PushID("implementation");
    form_heading(look_, "Implementation");
    const sim::Implementation& i = s_.implementation;
    preset("implementation", i.name, sim::PresetKind::implementation,
           i.runs_here ? "runs here: Start measures it" : "priced only: others' software");
    using I = sim::Implementation;
    const auto part = &sim::Scenario::implementation;
    static constexpr std::array<std::string_view, 2> attention = {"flash", "standard"};
    choice("attention", "implementation.attention", part, &I::attention, attention);
    static constexpr std::array<std::string_view, 2> off_on = {"off", "on"};
    choice("dropout", "implementation.dropout", part, &I::dropout, off_on);
    choice("fused residual", "implementation.fused_residual", part, &I::fused_residual, off_on);
    ImGui::PopID();
  }

 private:
  void dtype() {
    static constexpr std::array<sim::DType, 4> types = {sim::DType::fp32, sim::DType::tf32, sim::DType::bf16,
                                                        sim::DType::fp16};
    std::vector<std::string_view> names;
    std::size_t before = types.size();
    for (std::size_t i = 0; i < types.size(); ++i) {
      names.push_back(sim::name(types[i]));
      if (types[i] == s_.workload.dtype) before = i;
    }
    const auto after = segmented_field(look_, "dtype", before, names, note("workload.dtype"));
    if (!after) return;
    sim::Scenario next = s_;
    next.workload.dtype = types[*after];
    context_.edit(
        "dtype " + std::string(sim::name(s_.workload.dtype)) + " \u2192 " + std::string(names[*after]),
        std::move(next));
  }

  std::string grouping() const {
    const sim::Model& m = s_.model;
    if (m.num_key_value_heads < 1 || m.num_attention_heads % m.num_key_value_heads != 0) return "";
    const std::int64_t queries = m.num_attention_heads / m.num_key_value_heads;
    if (queries == 1) return "";
    if (m.num_key_value_heads == 1) return "multi-query: all heads share one";
    return "grouped: " + sim::format_count(queries) + " queries share one";
  }

  std::string accumulation() const {
    const sim::Workload& w = s_.workload;
    const std::int64_t devices = std::max(1, s_.strategy.data_parallel);
    if (w.micro_batch_size < 1 || w.global_batch_size < 1) return "";
    const std::int64_t micro_batches = w.global_batch_size / (w.micro_batch_size * devices);
    return sim::format_count(w.global_batch_size * w.seq_len) + " tokens in " +
           sim::format_count(micro_batches) + (micro_batches == 1 ? " micro-batch" : " micro-batches");
  }

  const PanelContext& context_;
  const Look& look_;
  const sim::Scenario& s_;
  std::vector<sim::Problem> problems_;
  std::set<std::string> shown_;
};

}  // namespace

std::string scenario_caption(const PanelContext& context) {
  const auto problems = context.prediction.problems.size();
  if (problems == 0) return "";
  return sim::format_count(static_cast<std::int64_t>(problems)) + (problems == 1 ? " problem" : " problems");
}

void draw_scenario(const PanelContext& context) {
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(context.look.px(8), context.look.px(5)));
  Form form(context);
  const Look& look = context.look;
  const float room = ImGui::GetContentRegionAvail().x, gap = look.px(32);
  const bool columns = room >= look.px(1000);
  const float width = std::min((room - 2 * gap) / 3, look.px(560));
  const auto column = [&](const char* id, const auto& sections) {
    if (columns) ImGui::BeginChild(id, {width, 0});
    sections();
    if (columns) ImGui::EndChild();
  };
  column("what", [&] { form.model(); });
  if (columns) ImGui::SameLine(0, gap);
  column("where", [&] {
    form.hardware();
    form.workload();
  });
  if (columns) ImGui::SameLine(0, gap);
  column("how", [&] {
    form.strategy();
    form.implementation();
    form.remaining_problems();
  });
  ImGui::PopStyleVar();
}

}  // namespace app::gui
