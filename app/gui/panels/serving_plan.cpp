// Ways to serve the scenario's model: the planner panel where the task is generation.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "app/gui/jobs/inference_study.h"
#include "app/gui/panels/empty_state.h"
#include "app/gui/panels/plan_limits.h"
#include "app/gui/panels/planner.h"
#include "app/gui/widgets/chart.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/parts.h"
#include "app/gui/widgets/reasons.h"
#include "app/gui/widgets/text.h"
#include "sim/format.h"

namespace app::gui {
namespace {

constexpr std::array<std::string_view, sim::kCount<sim::ServingObjective>> kObjectiveNames = {
    "throughput", "latency", "money", "energy"};

// "2 engines of tp 4, batch 64".
std::string words_of(const sim::ServingChoice& choice) {
  const sim::Strategy& s = choice.scenario.strategy;
  const int engines = choice.devices / std::max(1, choice.devices_of_engine());
  std::string words = engines > 1 ? fmt::format("{} engines of ", engines) : "";
  words += fmt::format("tp {}", s.tensor_parallel);
  if (s.expert_parallel > 1) words += fmt::format(", ep {}", s.expert_parallel);
  if (s.pipeline_parallel > 1) words += fmt::format(", pp {}", s.pipeline_parallel);
  if (choice.sequences > 0) words += fmt::format(", batch {}", choice.sequences);
  return words;
}

class ServingParts {
 public:
  explicit ServingParts(const ContextWith<PlannerState>& context)
      : context_(context),
        look_(context.look),
        c_(look_.color()),
        choices_(context.state.serving),
        plan_(*context.state.serving_plan.result()) {}

  void controls(ImVec2 size) {
    const PartPlace place(size);
    chart_title(look_, "What is asked for");
    const int now = plan_.space.devices.empty() ? 8 : plan_.space.devices.front();
    double devices = now;
    if (slider(look_, "devices", devices, {1, 1024, true}, sim::format_count(now), size.x))
      choices_.devices = std::int64_t{1} << static_cast<int>(std::lround(std::log2(devices)));
    limit("first token within", choices_.most_ttft_s, {0.005, 100, true}, size.x);
    limit("a later token within", choices_.most_tpot_s, {0.001, 1, true}, size.x);
    // The lowest rate stands for none.
    constexpr double kNone = 0.01;
    double rate = choices_.requests_per_second > 0 ? choices_.requests_per_second : kNone;
    if (slider(look_, "requests a second", rate, {kNone, 1000, true},
               rate <= kNone ? "batches" : fmt::format("{:.2g}", rate), size.x))
      choices_.requests_per_second = rate <= kNone ? 0 : rate;
    double share = 100 * choices_.memory_share;
    if (slider(look_, "of a device's memory at most", share, {10, 100, false}, fmt::format("{:.0f} %", share),
               size.x))
      choices_.memory_share = share / 100;
    draw_plan_limits(look_, choices_.limits, plan_.tariff, size.x);
    ImGui::Dummy({0, look_.px(4)});
    chart_title(look_, "Refused",
                "of " + sim::format_count(plan_.result.looked_at) + ", by what refuses first");
    draw_reasons(look_, plan_.result.refused, place.rest());
  }

  void scatter(ImVec2 size) {
    const PartPlace place(size);
    const sim::ServingResult& r = plan_.result;
    chart_title(look_, "Latency against throughput",
                sim::format_count(r.fitting) + " ways within limits; green: frontier");
    std::vector<const sim::ServingCandidate*> all;
    for (const auto& best : r.best)
      for (const sim::ServingCandidate& c : best) all.push_back(&c);
    for (const sim::ServingCandidate& c : r.front) all.push_back(&c);
    if (all.empty()) {
      text_wrapped(look_, TextRole::body, c_.dim, nothing_fits());
      return;
    }
    const auto at = [](const sim::ServingCandidate& c) {
      return ChartPoint{c.tokens_per_second_per_user(), c.tokens_per_second_per_device()};
    };
    ChartPoint least = at(*all.front()), most = least;
    for (const sim::ServingCandidate* c : all) {
      const ChartPoint p = at(*c);
      least = {std::min(least.x, p.x), std::min(least.y, p.y)};
      most = {std::max(most.x, p.x), std::max(most.y, p.y)};
    }
    Chart chart(look_, "##serving", place.rest(),
                logarithmic_axis("tokens/s a user (1 / time a token)", least.x, most.x),
                logarithmic_axis("tokens/s a device", least.y, most.y));
    if (!chart) return;
    std::vector<ChartPoint> front;
    for (const sim::ServingCandidate* c : all)
      chart.list()->AddCircleFilled(chart.at(at(*c)), look_.px(2), with_alpha(c_.predicted, 0.5f), 8);
    for (const sim::ServingCandidate& c : r.front) {
      front.push_back(at(c));
      chart.list()->AddCircleFilled(chart.at(at(c)), look_.px(3.2f), c_.good, 12);
    }
    chart.line(front, c_.good);
    for (std::size_t i = 0; i < plan_.compared.size(); ++i)
      for (const sim::ServingCandidate* c : all)
        if (c->index == plan_.compared[i].index) {
          chart.dot(at(*c), pick_color(look_, i), false, 7, 2);
          chart.name(at(*c), pick_color(look_, i), i == 0 ? "A" : "B");
          break;
        }
    const auto* nearest = chart.nearest(all, [&](const sim::ServingCandidate* c) { return at(*c); });
    if (!nearest) return;
    const sim::ServingCandidate* hovered = *nearest;
    ImGui::SetTooltip("%s\nfirst token %s, later ones %s, %s a device",
                      words_of(sim::candidate(plan_.space, hovered->index)).c_str(),
                      sim::format(hovered->ttft).c_str(), sim::format(hovered->tpot).c_str(),
                      token_rate(hovered->tokens_per_second_per_device()).c_str());
    if (ImGui::IsMouseClicked(ImGuiMouseButton_Left)) toggle_pick(choices_.picks, hovered->index);
  }

  void best(ImVec2 size) {
    const PartPlace place(size);
    ImGui::AlignTextToFramePadding();
    text(look_, TextRole::title, c_.text, "Best by");
    ImGui::SameLine(0, look_.px(8));
    if (const auto picked =
            segmented(look_, "objective", static_cast<std::size_t>(choices_.objective), kObjectiveNames))
      choices_.objective = static_cast<sim::ServingObjective>(*picked);
    const auto& candidates = plan_.result.best[choices_.objective];
    if (candidates.empty()) return text_wrapped(look_, TextRole::body, c_.dim, nothing_fits());
    table(candidates, place.rest());
  }

  void compared(ImVec2 size) {
    picks_title(look_, choices_.picks);
    for (std::size_t i = 0; i < plan_.compared.size(); ++i) pick(i, size.x);
    if (plan_.compared.empty()) return;
    spent("first token", &sim::ServingSpending::first_token, size.x);
    spent("a later token", &sim::ServingSpending::later_token, size.x);
  }

 private:
  // The right end of the slider stands for none.
  void limit(const char* words, double& seconds, SliderRange range, float width) {
    limit_slider(
        look_, words, seconds, range, NoLimit::at_high_end,
        [](double value) { return sim::format(sim::Seconds{value}); }, width);
  }

  std::string nothing_fits() const {
    std::string words = "Nothing keeps to the limits.";
    if (plan_.result.smallest)
      words += " The smallest takes " + sim::format(plan_.result.smallest->memory) + " of a device.";
    return words;
  }

  void table(const std::vector<sim::ServingCandidate>& candidates, ImVec2 size) {
    using C = sim::ServingCandidate;
    const auto of = [&candidates](auto text) {
      return [&candidates, text](std::size_t row) -> std::string { return text(candidates[row]); };
    };
    CandidateTable table{
        .heading = "how",
        .words_width = 150,
        .rows = candidates.size(),
        .candidate = [&](std::size_t row) { return candidates[row].index; },
        .words =
            [&](std::size_t row) { return words_of(sim::candidate(plan_.space, candidates[row].index)); },
        .columns = {}};
    const auto add = [&](const char* heading, float width, auto text, bool ranks) {
      if (ranks) table.ranked_by = table.columns.size();
      table.columns.push_back({heading, width, of(text)});
    };
    const sim::ServingObjective by = choices_.objective;
    using O = sim::ServingObjective;
    add(
        "first token", 72, [](const C& c) { return sim::format(c.ttft); }, false);
    add(
        "later token", 72, [](const C& c) { return sim::format(c.tpot); }, by == O::latency);
    add(
        "tok/s a dev.", 76, [](const C& c) { return token_rate_digits(c.tokens_per_second_per_device()); },
        by == O::throughput);
    if (plan_.tariff.usd_per_device_hour > 0)
      add(
          "$/M tokens", 72, [](const C& c) { return dollar_digits(c.usd_per_million_tokens); },
          by == O::money);
    if (by == O::energy)
      add(
          "kWh/M tokens", 84, [](const C& c) { return fmt::format("{:#.3g}", c.kwh_per_million_tokens); },
          true);
    draw_candidate_table(look_, choices_.picks, table, size);
  }

  void pick(std::size_t i, float width) {
    const sim::ServingChoice choice = sim::candidate(plan_.space, plan_.compared[i].index);
    if (apply_row(look_, i, words_of(choice), width))
      context_.edit("plan: " + words_of(choice), choice.scenario);
  }

  // What both spend a token on, kind by kind.
  void spent(const char* words, sim::CostBreakdown sim::ServingSpending::*token, float width) const {
    sim::Seconds most;
    for (const ServingPlanPick& one : plan_.compared)
      for (const auto& part : (one.spending.*token).parts) most = std::max(most, part.expected);
    text(look_, TextRole::caption, c_.dim, words);
    for (std::size_t kind = 0; kind < kKindNames.size(); ++kind) {
      std::vector<sim::Seconds> of_picks;
      for (const ServingPlanPick& one : plan_.compared)
        of_picks.push_back((one.spending.*token).parts[kind].expected);
      if (*std::max_element(of_picks.begin(), of_picks.end()) > sim::Seconds{})
        time_bars(look_, kKindNames[kind], of_picks, most, width,
                  {std::min(look_.px(130), width * 0.42f), look_.px(28), look_.px(2)});
    }
  }

  const PanelContext& context_;
  const Look& look_;
  const Palette& c_;
  ServingPlanChoices& choices_;
  const ServingPlan& plan_;
};

}  // namespace

void draw_serving_plan(const ContextWith<PlannerState>& context) {
  const Look& look = context.look;
  PlannerState& scope = context.state;
  scope.serving_plan.follow({context.scenario, context.calibration, scope.serving});
  if (draw_missing_result(context, scope.serving_plan, "This cannot be served")) return;
  ServingParts parts(context);
  draw_planner_parts(look, scope.tab,
                     {.controls = [&](ImVec2 size) { parts.controls(size); },
                      .scatter = [&](ImVec2 size) { parts.scatter(size); },
                      .best = [&](ImVec2 size) { parts.best(size); },
                      .compared = [&](ImVec2 size) { parts.compared(size); },
                      .first_tab = "limits"});
}

}  // namespace app::gui
