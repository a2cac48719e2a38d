// Every legal strategy of the scenario's model: which are best by what, what the others cost, what was
// refused and why, and what two of them spend their time on.
#include "app/gui/panels/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "app/gui/panels/empty_state.h"
#include "app/gui/panels/panels.h"
#include "app/gui/panels/plan_limits.h"
#include "app/gui/widgets/chart.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/parts.h"
#include "app/gui/widgets/reasons.h"
#include "app/gui/widgets/text.h"
#include "app/gui/widgets/tile.h"
#include "sim/format.h"

namespace app::gui {
namespace {

constexpr std::array<std::string_view, sim::kCount<sim::Objective>> kObjectiveNames = {"time", "memory",
                                                                                       "money", "energy"};

// As it is written on an axis: in the unit of its step, device, or million tokens.
double value_of(const sim::Candidate& c, sim::Objective objective) {
  switch (objective) {
    case sim::Objective::time:
      return c.step.value;
    case sim::Objective::memory:
      return static_cast<double>(c.memory.value);
    case sim::Objective::money:
      return c.usd_per_million_tokens;
    default:
      return c.kwh_per_million_tokens;
  }
}

std::string text_of(const sim::Candidate& c, sim::Objective objective) {
  switch (objective) {
    case sim::Objective::time:
      return sim::format(c.step);
    case sim::Objective::memory:
      return sim::format(c.memory);
    case sim::Objective::money:
      return "$" + dollar_digits(c.usd_per_million_tokens) + "/M tokens";
    default:
      return fmt::format("{:.3g} kWh/M tokens", c.kwh_per_million_tokens);
  }
}

std::string recompute_text(const sim::Strategy& s) {
  std::string words(sim::name(s.recompute));
  if (s.recompute_interval > 1) words += fmt::format(" {}", s.recompute_interval);
  return words;
}

// "tp 8, pp 16, chunks 2, dp 8, sp, 1f1b, ZeRO 1, micro-batch 1, recompute full", by flags where they are
// short.
std::string words_of(const sim::Scenario& scenario) {
  const sim::Strategy& s = scenario.strategy;
  std::string words;
  const auto degree = [&](const char* name, int value) {
    if (value > 1) words += fmt::format("{}{} {}", words.empty() ? "" : ", ", name, value);
  };
  degree("tp", s.tensor_parallel);
  degree("cp", s.context_parallel);
  degree("ep", s.expert_parallel);
  if (s.expert_tensor_parallel > 0)
    words += fmt::format("{}etp {}", words.empty() ? "" : ", ", s.expert_tensor_parallel);
  degree("pp", s.pipeline_parallel);
  degree("chunks", s.virtual_pipeline);
  degree("dp", s.data_parallel);
  if (words.empty()) words = "one device";
  if (s.sequence_parallel) words += ", sp";
  if (s.pipeline_parallel > 1) words.append(", ").append(s.schedule);
  if (s.zero_stage > 0) words += fmt::format(", ZeRO {}", s.zero_stage);
  if (s.shard_group > 0) words += fmt::format(" over {}", s.shard_group);
  words += fmt::format(", micro-batch {}", scenario.workload.micro_batch_size);
  if (s.recompute != sim::Recompute::none) words.append(", recompute ").append(recompute_text(s));
  return words;
}

// Whether the search was about what is configured now, whatever the strategy.
bool is_about(const sim::Scenario& then, const sim::Scenario& now) {
  return then.model == now.model && then.hardware == now.hardware &&
         then.implementation == now.implementation && then.workload.seq_len == now.workload.seq_len &&
         then.workload.global_batch_size == now.workload.global_batch_size &&
         then.workload.dtype == now.workload.dtype && then.workload.task == now.workload.task;
}

class PlannerParts {
 public:
  explicit PlannerParts(const ContextWith<PlannerState>& context)
      : context_(context),
        look_(context.look),
        c_(look_.color()),
        scope_(context.state),
        progress_(scope_.search.progress()),
        view_(scope_.search.result()) {}

  void controls(ImVec2 size) {
    const PartPlace place(size);
    PlannerChoices& choices = scope_.choices;
    chart_title(look_, "What may change");
    toggles(size.x);
    const float width = size.x;
    const std::int64_t now = context_.scenario.strategy.devices();
    double devices = static_cast<double>(choices.devices > 0 ? choices.devices : now);
    if (slider(look_, "devices", devices, {1, 65536, true},
               sim::format_count(choices.devices > 0 ? choices.devices : now), width))
      choices.devices = std::int64_t{1} << static_cast<int>(std::lround(std::log2(devices)));
    double share = 100 * choices.memory_share;
    if (slider(look_, "of a device's memory at most", share, {10, 100, false}, fmt::format("{:.0f} %", share),
               width))
      choices.memory_share = share / 100;
    limit_slider(
        look_, "a step takes at most", choices.slowest_step_s, {0.01, 1000, true}, NoLimit::at_high_end,
        [](double seconds) { return sim::format(sim::Seconds{seconds}); }, width);
    // Before the first search it is not known what devices cost.
    if (view_) draw_plan_limits(look_, choices.limits, view_->tariff, width);
    search_button(width);
    if (!view_) return;
    ImGui::Dummy({0, look_.px(4)});
    chart_title(
        look_, "Refused",
        "by what refuses first, of " + sim::format_short(static_cast<double>(view_->result.looked_at)));
    draw_reasons(look_, view_->result.refused, place.rest());
  }

  void scatter(ImVec2 size) {
    const PartPlace place(size);
    chart_title(look_, "Strategies", scatter_sentence());
    axis_picker("x", "across", scope_.x);
    if (size.x >= look_.px(600)) ImGui::SameLine(0, look_.px(14));
    axis_picker("y", "up", scope_.y);
    const sim::SearchResult& r = view_->result;
    std::vector<const sim::Candidate*> all;
    for (const sim::Candidate& c : r.points) all.push_back(&c);
    for (const sim::Candidate& c : r.front) all.push_back(&c);
    if (all.empty()) return;
    Chart chart(look_, "##strategies", place.rest(), axis_of(scope_.x, all), axis_of(scope_.y, all));
    if (chart) draw_candidates(chart, all);
  }

  void best(ImVec2 size) {
    const PartPlace place(size);
    ImGui::AlignTextToFramePadding();
    text(look_, TextRole::title, c_.text, "Best by");
    ImGui::SameLine(0, look_.px(8));
    if (const auto picked =
            segmented(look_, "objective", static_cast<std::size_t>(scope_.objective), kObjectiveNames))
      scope_.objective = static_cast<sim::Objective>(*picked);
    const auto& candidates = view_->result.best[scope_.objective];
    if (candidates.empty()) {
      nothing_fits();
      return;
    }
    table(candidates, place.rest());
  }

  void compared(ImVec2 size) {
    picks_title(look_, scope_.picks);
    const std::vector<std::int64_t> shown = compared_ones();
    for (std::size_t i = 0; i < shown.size(); ++i) pick(i, shown[i], size.x);
    if (shown.size() < 2) return;
    auto& comparison = scope_.comparison;
    comparison.follow({{shown[0], shown[1]}, view_->space, scope_.search.request().calibration});
    if (const std::string& failure = comparison.progress().failure; !failure.empty())
      return text_wrapped(look_, TextRole::body, c_.bad, failure);
    if (!comparison.result() || comparison.request().picks != std::array{shown[0], shown[1]}) return;
    const sim::Explanation& e = *comparison.result();
    text_wrapped(look_, TextRole::body, c_.text, e.sentence);
    spendings(e, size.x);
  }

 private:
  void toggles(float width) {
    PlannerChoices& choices = scope_.choices;
    struct Toggle {
      const char* words;
      bool* on;
    };
    const std::array<Toggle, 9> all = {{{"tensor", &choices.tensor},
                                        {"pipeline", &choices.pipeline},
                                        {"context", &choices.context},
                                        {"experts", &choices.experts},
                                        {"ZeRO", &choices.sharding},
                                        {"recompute", &choices.recompute},
                                        {"micro-batch", &choices.micro_batch},
                                        {"offload", &choices.offload},
                                        {"fewer devices", &choices.fewer}}};
    const float gap = look_.px(4), left = ImGui::GetCursorPosX();
    for (const Toggle& toggle : all) {
      if (toggle.on == &choices.experts && !context_.scenario.model.has_experts()) continue;
      const float wanted = text_size_of(look_, TextRole::caption, toggle.words).x + look_.px(18);
      if (ImGui::GetCursorPosX() + wanted > left + width) ImGui::NewLine();
      chip(toggle.words, *toggle.on, wanted);
      ImGui::SameLine(0, gap);
    }
    ImGui::NewLine();
  }

  void chip(const char* words, bool& on, float width) {
    const float height = std::floor(look_.px(22));
    const ImVec2 least = ImGui::GetCursorScreenPos();
    if (pressable(words, {width, height})) on = !on;
    const ImVec2 most = {least.x + width, least.y + height};
    ImDrawList* list = ImGui::GetWindowDrawList();
    list->AddRectFilled(least, most, on ? mix(c_.raised, c_.predicted, 0.28f) : c_.raised, look_.px(6));
    if (ImGui::IsItemHovered() || (ImGui::IsItemFocused() && ImGui::GetIO().NavVisible))
      list->AddRect(least, most, c_.predicted, look_.px(6));
    draw_text(list, look_, TextRole::caption, {(least.x + most.x) / 2, (least.y + most.y) / 2},
              on ? c_.text : c_.mute, words, {0.5f, 0.5f});
  }

  void search_button(float width) {
    const bool running = progress_.running;
    if (primary_button(look_, running ? "Cancel" : "Search", running ? c_.warn : c_.good, {look_.px(96), 0}))
      context_.invoke(running ? "planner.cancel" : "planner.search");
    ImGui::SameLine(0, look_.px(10));
    ImGui::AlignTextToFramePadding();
    text_fitted(look_, TextRole::caption, failed() ? c_.bad : c_.dim, progress(),
                std::max(1.0f, width - look_.px(110)));
  }

  bool failed() const { return !progress_.running && !progress_.failure.empty(); }

  std::string progress() const {
    if (failed()) return progress_.failure;
    if (progress_.running)
      return sim::format_percent(static_cast<double>(progress_.done) /
                                 static_cast<double>(std::max<std::int64_t>(1, progress_.of))) +
             " of " + sim::format_short(static_cast<double>(progress_.of)) + " candidates";
    if (!view_) return "";
    std::string words = sim::format_short(static_cast<double>(view_->result.looked_at)) + " candidates";
    if (!context_.frozen) words += " in " + sim::format(sim::Seconds{view_->result.seconds});
    if (progress_.cancelled) words += ", stopped";
    if (!is_about(scope_.search.request().scenario, context_.scenario)) words += ", of an earlier scenario";
    return words;
  }

  std::string scatter_sentence() const {
    const sim::SearchResult& r = view_->result;
    return sim::format_short(static_cast<double>(r.legal)) + " legal, " +
           sim::format_short(static_cast<double>(r.fitting)) +
           " within limits; green: frontier, grey: refused";
  }

  void axis_picker(const char* id, const char* words, sim::Objective& axis) {
    ImGui::AlignTextToFramePadding();
    text(look_, TextRole::caption, c_.dim, words);
    ImGui::SameLine(0, look_.px(6));
    if (const auto picked = segmented(look_, id, static_cast<std::size_t>(axis), kObjectiveNames))
      axis = static_cast<sim::Objective>(*picked);
  }

  ChartAxis axis_of(sim::Objective objective, const std::vector<const sim::Candidate*>& all) const {
    double least = 1e300, most = 0;
    for (const sim::Candidate* c : all) {
      const double value = value_of(*c, objective);
      if (!(value > 0)) continue;
      least = std::min(least, value);
      most = std::max(most, value);
    }
    const auto unit_of_range = [&] {
      const double middle = std::sqrt(least * most);
      if (objective == sim::Objective::time) return time_unit(middle);
      if (objective == sim::Objective::memory) return byte_unit(middle);
      return ScaleUnit{1, ""};
    };
    const ScaleUnit unit = unit_of_range();
    static constexpr std::array<const char*, sim::kCount<sim::Objective>> labels = {
        "step, ", "memory of the fullest device, ", "US dollars a million tokens", "kWh a million tokens"};
    std::string label = labels[static_cast<std::size_t>(objective)];
    if (label.ends_with(", ")) label += unit.name;
    // What would not fit a hundred devices is no choice: the view stays with what matters.
    const double limit = objective == sim::Objective::memory
                             ? 8 * static_cast<double>(scope_.search.request().scenario.hardware.memory.value)
                             : least * 200;
    return logarithmic_axis(std::move(label), least, std::max(least, std::min(most, limit)), unit);
  }

  void draw_candidates(Chart& chart, const std::vector<const sim::Candidate*>& all) {
    const auto place = [&](const sim::Candidate& c) {
      return ChartPoint{value_of(c, scope_.x), value_of(c, scope_.y)};
    };
    const float r = look_.px(1.6f);
    for (const sim::Candidate& c : view_->result.points) {
      const ImVec2 at = chart.at(place(c));
      const bool refused = !c.refused_by.empty();
      chart.list()->AddRectFilled({at.x - r, at.y - r}, {at.x + r, at.y + r},
                                  refused ? with_alpha(c_.mute, 0.35f) : with_alpha(c_.predicted, 0.45f));
    }
    draw_front(chart);
    if (scope_.y == sim::Objective::memory)
      chart.horizontal(static_cast<double>(scope_.search.request().scenario.hardware.memory.value), c_.bad,
                       "the device's memory");
    const std::vector<std::int64_t> marked = compared_ones();
    for (std::size_t i = 0; i < marked.size(); ++i)
      if (const sim::Candidate* c = find(marked[i], all)) {
        chart.dot(place(*c), pick_color(look_, i), false, 7, 2);
        chart.name(place(*c), pick_color(look_, i), i == 0 ? "A" : "B");
      }
    const auto* hovered = chart.nearest(all, [&](const sim::Candidate* c) { return place(*c); });
    if (!hovered) return;
    describe(**hovered);
    if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) toggle_pick(scope_.picks, (*hovered)->index);
  }

  // By the two axes alone: a staircase from the best by one to the best by the other.
  void draw_front(Chart& chart) {
    std::vector<const sim::Candidate*> by_x;
    for (const sim::Candidate& c : view_->result.front) by_x.push_back(&c);
    std::sort(by_x.begin(), by_x.end(), [&](const sim::Candidate* a, const sim::Candidate* b) {
      const double ax = value_of(*a, scope_.x), bx = value_of(*b, scope_.x);
      return ax != bx ? ax < bx : value_of(*a, scope_.y) < value_of(*b, scope_.y);
    });
    std::vector<ChartPoint> stairs;
    double lowest = 1e300;
    for (const sim::Candidate* c : by_x) {
      const ChartPoint at = {value_of(*c, scope_.x), value_of(*c, scope_.y)};
      if (at.y >= lowest) continue;
      if (!stairs.empty()) stairs.push_back({at.x, lowest});
      stairs.push_back(at);
      lowest = at.y;
      chart.list()->AddCircleFilled(chart.at(at), look_.px(3.2f), c_.good, 12);
    }
    chart.line(stairs, c_.good, Stroke::solid, 1.6f);
  }

  const sim::Candidate* find(std::int64_t index, const std::vector<const sim::Candidate*>& among) const {
    for (const sim::Candidate* c : among)
      if (c->index == index) return c;
    for (const auto& best : view_->result.best)
      for (const sim::Candidate& c : best)
        if (c.index == index) return &c;
    return nullptr;
  }

  void describe(const sim::Candidate& c) const {
    ImGui::BeginTooltip();
    text(look_, TextRole::title, c_.text, words_of(sim::candidate(view_->space, c.index)));
    std::string words =
        sim::format(c.step) + " a step, " + sim::format(c.memory) + ", " + token_rate(c.tokens_per_second);
    if (c.usd_per_million_tokens > 0) words += ", " + text_of(c, sim::Objective::money);
    text(look_, TextRole::number, c_.predicted, words);
    if (!c.refused_by.empty()) text(look_, TextRole::caption, c_.bad, "refused by " + c.refused_by);
    ImGui::EndTooltip();
  }

  void nothing_fits() const {
    if (progress_.running || view_->result.looked_at == 0) return;
    const sim::SearchResult& r = view_->result;
    std::string words = "Nothing keeps to the limits.";
    if (r.smallest) words += " The smallest takes " + sim::format(r.smallest->memory) + " of a device.";
    if (r.fastest) words += " The fastest step takes " + sim::format(r.fastest->step) + ".";
    text_wrapped(look_, TextRole::body, c_.dim, words);
  }

  void table(const std::vector<sim::Candidate>& candidates, ImVec2 size) {
    using Column = CandidateTable::Column;
    const auto of = [&candidates](auto text) {
      return [&candidates, text](std::size_t row) -> std::string { return text(candidates[row]); };
    };
    CandidateTable table{
        .heading = "strategy",
        .words_width = 320,
        .rows = candidates.size(),
        .candidate = [&](std::size_t row) { return candidates[row].index; },
        .words =
            [&](std::size_t row) { return words_of(sim::candidate(view_->space, candidates[row].index)); },
        .columns = {}};
    // By objective where it has one of its own; of energy only while it is asked for.
    std::array<std::size_t, sim::kCount<sim::Objective>> column_of{};
    const auto add = [&](sim::Objective objective, Column column) {
      column_of[static_cast<std::size_t>(objective)] = table.columns.size();
      table.columns.push_back(std::move(column));
    };
    add(sim::Objective::time, {"step", 62, of([](const sim::Candidate& c) { return sim::format(c.step); })});
    add(sim::Objective::memory,
        {"memory", 62, of([](const sim::Candidate& c) { return sim::format(c.memory); })});
    if (view_->tariff.usd_per_device_hour > 0)
      add(sim::Objective::money, {"$/M tokens", 72, of([](const sim::Candidate& c) {
                                    return dollar_digits(c.usd_per_million_tokens);
                                  })});
    if (scope_.objective == sim::Objective::energy)
      add(sim::Objective::energy, {"kWh/M tokens", 84, of([](const sim::Candidate& c) {
                                     return fmt::format("{:#.3g}", c.kwh_per_million_tokens);
                                   })});
    table.ranked_by = column_of[static_cast<std::size_t>(scope_.objective)];
    draw_candidate_table(look_, scope_.picks, table, size);
  }

  // What was picked, and the best where that leaves a place: the next that costs something else. While the
  // best still change, picks alone.
  std::vector<std::int64_t> compared_ones() const {
    if (progress_.running) return picked(scope_.picks);
    return compared_candidates(
        scope_.picks, view_->result.best[scope_.objective],
        [&](std::int64_t index) { return find(index, {}); },
        [](const sim::Candidate& a, const sim::Candidate& b) {
          return a.step != b.step || a.memory != b.memory;
        });
  }

  void pick(std::size_t i, std::int64_t index, float width) {
    const sim::Scenario picked = sim::candidate(view_->space, index);
    if (apply_row(look_, i, words_of(picked), width)) context_.edit("plan: " + words_of(picked), picked);
  }

  void spendings(const sim::Explanation& e, float width) const {
    sim::Seconds most;
    for (const sim::SpendingRow& row : e.rows)
      for (const sim::Seconds s : row.seconds) most = std::max(most, s);
    for (const sim::SpendingRow& row : e.rows)
      time_bars(look_, sim::name(row.part), row.seconds, most, width,
                {std::min(look_.px(190), width * 0.45f), look_.px(30), look_.px(3)});
  }

  const PanelContext& context_;
  const Look& look_;
  const Palette& c_;
  PlannerState& scope_;
  const StudyProgress& progress_;
  const PlannerView* view_;
};

std::string caption(const PanelContext& context) {
  const sim::Scenario& s = context.scenario;
  if (s.workload.task == sim::Task::generate)
    return s.model.name + ", " + sim::format_count(s.workload.prompt_length) + " + " +
           sim::format_count(s.workload.max_new_tokens) + " tokens, on " + s.hardware.name;
  return s.model.name + ", global batch " + sim::format_count(s.workload.global_batch_size) + ", " +
         sim::format_count(s.strategy.devices()) + " x " + s.hardware.name;
}

void draw(const ContextWith<PlannerState>& context) {
  const Look& look = context.look;
  if (context.scenario.hardware.peak.empty()) {
    draw_missing_prediction(context);
    return;
  }
  if (context.scenario.workload.task == sim::Task::generate) return draw_serving_plan(context);
  // A picture of a search that nobody started would be empty.
  PlannerState& scope = context.state;
  const StudyProgress& progress = scope.search.progress();
  const PlannerView* found = scope.search.result();
  if (context.frozen && !found && !progress.running && progress.failure.empty()) scope.start_search();
  PlannerParts parts(context);
  const bool any = found && progress.failure.empty() && sim::size(found->space) > 0;
  const auto hint = [&] {
    draw_empty_state(context, "Nothing searched yet",
                     "Search looks at every strategy that the choices allow; results appear as they are "
                     "found.",
                     "Search", "planner.search");
  };
  draw_planner_parts(look, scope.tab,
                     {.controls = [&](ImVec2 size) { parts.controls(size); },
                      .scatter = [&](ImVec2 size) { parts.scatter(size); },
                      .best = [&](ImVec2 size) { parts.best(size); },
                      .compared = [&](ImVec2 size) { parts.compared(size); },
                      .first_tab = "search",
                      .scatter_share = 0.52f,
                      .any = any,
                      .hint = hint});
}

std::vector<Figure> figures(const ContextWith<PlannerState>& context) {
  const PlannerView* view = context.state.search.result();
  if (!view) return {};
  FigureTable table{{{"strategy"},
                     {"devices", Measure::count},
                     {"step", Measure::seconds},
                     {"memory", Measure::bytes},
                     {"throughput", Measure::tokens_per_second},
                     {"a million tokens", Measure::dollars}},
                    {}};
  for (const sim::Candidate& one : view->result.best[static_cast<std::size_t>(context.state.objective)])
    table.rows.push_back({words_of(sim::candidate(view->space, one.index)), static_cast<double>(one.devices),
                          one.step.value, static_cast<double>(one.memory.value), one.tokens_per_second,
                          one.usd_per_million_tokens});
  FigureTable refused{{{"refused by"}, {"candidates", Measure::count}}, {}};
  for (const auto& [reason, count] : view->result.refused)
    refused.rows.push_back({reason, static_cast<double>(count)});
  return {{"Best strategies", std::move(table)}, {"Refused candidates", std::move(refused)}};
}

}  // namespace

PlannerState::PlannerState(const PanelTools& tools)
    : search(tools.studies.add<PlannerQuestion, PlannerView>(search_strategies)),
      comparison(tools.studies.add<PicksQuestion, sim::Explanation>(
          [](const PicksQuestion& question, const auto&) { return explain_picks(question); })),
      serving_plan(tools.studies.add<ServingPlanQuestion, ServingPlan>(
          [](const ServingPlanQuestion& question, const auto&) { return plan_serving(question); })),
      tools_(tools) {
  tools.commands.add(
      {.id = "planner.search",
       .category = "Run",
       .label = "Search strategies",
       .run = [this] { start_search(); },
       .enabled =
           [this] { return tools_.tabs.current().document.scenario().workload.task == sim::Task::train; },
       .detail = [] { return std::string("every legal strategy of this model on these devices"); }});
  tools.commands.add({.id = "planner.cancel",
                      .category = "Run",
                      .label = "Cancel the search",
                      .run = [this] { search.cancel(); },
                      .enabled = [this] { return search.progress().running; },
                      .in_menu = false});
}

void PlannerState::start_search() {
  const sim::Scenario& scenario = tools_.tabs.current().document.scenario();
  picks = {};
  search.ask({scenario, tools_.calibrations.of(scenario.hardware), choices});
}

extern const PanelEntry planner_panel = {"planner",
                                         "Planner",
                                         "every legal strategy, and which to take",
                                         Dock::upper_left,
                                         panel_of<PlannerState, caption, draw, figures>,
                                         false,
                                         false};

}  // namespace app::gui
