// What is computed and from what: the formulas with their sources, the constants of what is configured with
// theirs, and what is left out.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/gui/panels/cost_text.h"
#include "app/gui/panels/panels.h"
#include "app/gui/widgets/chart.h"
#include "app/gui/widgets/numbers.h"
#include "app/gui/widgets/parts.h"
#include "app/gui/widgets/text.h"
#include "sim/economics/rates.h"
#include "sim/format.h"
#include "sim/preset_error.h"

namespace app::gui {
namespace {

struct Formula {
  const char* what;
  const char* formula;
  const char* words;
  const char* source;
  const char* panel;  // where it is seen at work, by its id
};

// As the headers of sim/ have them, in the order in which a number is made.
// clang-format off
constexpr std::array<Formula, 15> kFormulas = {{
    {"Time of an operation, roofline", "ratio x (launch + max(FLOPs / peak, bytes / bandwidth))",
     "The ratio is that of a measurement of the same shape, else of its neighbours, interpolated in logarithms. Peaks are dense.",
     "Williams et al. 2009, Roofline; sim/cost/calibration.h", "roofline"},
    {"Time of a GPU's product or attention", "factor x (launch + sqrt((FLOPs / peak)^2 + (bytes / bandwidth)^2))",
     "The factor is read from a grid over shapes, fitted to published tables and tried on rows that were held out.",
     "presets/calibrations/README.md; sim/cost/gpu_calibration.h", "calibrate"},
    {"Time of a collective", "a + k S / B + c sqrt(k S)",
     "S bytes, of which k S pass each rank's link: k is 2 (n - 1) / n for all-reduce, (n - 1) / n for all-gather and reduce-scatter. Groups that nobody measured have NCCL's latencies.",
     "nccl-tests, PERFORMANCE.md; sim/cost/network.h", "communication"},
    {"FLOPs of a training token", "6 N + 12 a d x pairs that a query sees",
     "N are the weights that a token is multiplied with; Explain has the same by other conventions.",
     "Chowdhery et al. 2022 (PaLM, arXiv 2204.02311), appendix B; sim/report/metrics.h", "overview"},
    {"MFU and HFU", "FLOPs a token x tokens/s / (devices x dense peak)",
     "HFU counts what is executed, recompute too, and not what an embedding is only looked up in.",
     "Chowdhery et al. 2022; sim/report/metrics.h", "overview"},
    {"MBU", "bytes that a device moves for a token / (time a token x bandwidth)",
     "Weights as they are stored, its part of the cache, activations.",
     "Databricks 2023, LLM inference performance engineering; sim/report/metrics.h", "inference"},
    {"Memory at the peak", "the most that is live at once, packed into one arena, and what the platform holds",
     "Every buffer's size and life is in the plan. Packing is best fit, the largest first.",
     "sim/plan/memory.h, sim/plan/pack.h", "memory"},
    {"Pipeline bubble", "1 - (what a stage does) / (the step), from the timeline of all stages",
     "Beside it stands what the closed form of the schedule would leave of the same step.",
     "Narayanan et al. 2021 (arXiv 2104.04473); sim/report/step_parts.h", "pipeline"},
    {"Waiting for the slowest device", "spread x (expected maximum of n - expected maximum of a node's)",
     "Devices differ steadily and from pass to pass, both taken as normal.",
     "Sinha et al. 2022 (arXiv 2208.11035); Blom 1958; sim/cost/stragglers.h", "why"},
    {"Speculative decoding", "(1 - a^(n + 1)) / (1 - a) tokens a round",
     "n proposals, each accepted with probability a, and one token of the model itself.",
     "Leviathan et al. 2023 (arXiv 2211.17192); sim/serving/speculative.h", "inference"},
    {"Continuous batching", "requests in order, as many as limits of tokens, sequences and cache allow",
     "An engine's steps are priced one by one from its plan.",
     "sim/serving/scheduler.h, sim/serving/simulation.h", "inference"},
    {"Progress of a long run", "1 - checkpoint / interval - (interval / 2 + restart) / time between failures",
     "The interval is the one that loses least, sqrt(2 checkpoint x time between failures).",
     "Young 1974; Llama 3 (arXiv 2407.21783), section 3.3.4; sim/economics/run_cost.h", "economics"},
    {"Energy and carbon", "device hours x (power + share of the host) x PUE x grid",
     "Power is the rated one: what model cards use.",
     "sim/economics/run_cost.h; presets/economics.json names each rate's source", "economics"},
    {"Loss against size and tokens", "E + A / N^alpha + B / D^beta",
     "Compute-optimal tokens follow from it, about 20 a parameter.",
     "Hoffmann et al. 2022 (arXiv 2203.15556); sim/economics/scaling_law.h", "economics"},
    {"Bands", "90 % of cases lie inside",
     "A measured kernel's band is from rows held out; in a step's band, all kernels' errors go together.",
     "sim/cost/price.h; Validation counts how many published rows lie inside", "validation"},
}};
// clang-format on

constexpr std::array<const char*, 6> kLeftOut = {
    "Data loading, evaluation and logging between steps.",
    "Other jobs on the same network: links are as fast as their calibration found them.",
    "Faults but for the mean time between them, and their restarts.",
    "Quality: recompute, precision and batch change time and memory here, never the loss that a run reaches.",
    "Kernels of chips that nobody published measurements of: they have datasheet peaks and mean "
    "efficiencies.",
    "Prices change by the month: each has its date, and Economics takes your own."};

struct Constant {
  std::string of, name, value, source;
};

std::vector<Constant> constants_of(const PanelContext& context) {
  const sim::Hardware& h = context.scenario.hardware;
  std::vector<Constant> all;
  const auto add = [&](const std::string& of, std::string name, std::string value,
                       const std::string& source) {
    all.push_back({of, std::move(name), std::move(value), source});
  };
  const auto of_hardware = [&](std::string name, std::string value) {
    add(h.name, std::move(name), std::move(value), h.source);
  };
  for (const auto& [dtype, peak] : h.peak)
    of_hardware("dense peak, " + std::string(sim::name(dtype)), sim::format(peak));
  of_hardware("memory", sim::format(h.memory));
  of_hardware("memory's bandwidth", sim::format(h.memory_bandwidth));
  if (h.last_level_cache.value > 0) of_hardware("last cache", sim::format(h.last_level_cache));
  of_hardware("launch", sim::format(h.launch));
  if (h.node_link.value > 0) of_hardware("link in a node, a direction", sim::format(h.node_link));
  if (h.network_link.value > 0) of_hardware("link between nodes, a direction", sim::format(h.network_link));
  if (h.host_link.value > 0) of_hardware("link to the host", sim::format(h.host_link));
  if (h.power_w > 0) of_hardware("rated power", significant(h.power_w) + " W");
  if (h.sustained_clock < 1) of_hardware("clock under load", sim::format_percent(h.sustained_clock));
  if (h.device_spread > 0) of_hardware("spread of devices", sim::format_percent(h.device_spread));
  const sim::Model& m = context.scenario.model;
  add(m.name, "parameters", sim::format_count(sim::count_parameters(m).total), m.source);
  const sim::Implementation& software = context.scenario.implementation;
  add(software.name, "what it keeps, fuses and overlaps", "preset", software.source);
  try {
    const sim::EconomicRates rates = sim::load_economic_rates();
    if (const sim::HourlyPrice* price = rates.price_of(h.name))
      add(h.name + ", price", "an hour, " + price->market + ", " + price->date, dollars(price->usd()),
          price->source);
    if (!rates.sites.empty()) {
      const sim::Site& site = rates.sites.front();
      const std::string of = "site \"" + site.name + "\"";
      add(of, "PUE", significant(site.pue), site.source);
      add(of, "grid", significant(site.kg_co2e_per_kwh) + " kg CO2e/kWh", site.source);
    }
  } catch (const sim::PresetError&) {  // Economics says what is the matter
  }
  return all;
}

struct MethodologyState {
  int tab = 0;
  std::vector<Constant> constants;  // of `of`
  std::optional<sim::Scenario> of;
};
using Context = ContextWith<MethodologyState>;

const std::vector<Constant>& constants(const Context& context) {
  MethodologyState& state = context.state;
  if (!state.of || !(*state.of == context.scenario)) {
    state.constants = constants_of(context);
    state.of = context.scenario;
  }
  return state.constants;
}

void draw_formulas(const Context& context, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  for (const Formula& formula : kFormulas) {
    ImGui::PushID(formula.what);
    const std::string_view title = find_panel(formula.panel)->title;
    const float button = text_size_of(look, TextRole::body, title).x + look.px(18);
    text_fitted(look, TextRole::title, c.text, formula.what, size.x - button - look.px(10));
    ImGui::SameLine(size.x - button);
    ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, ImVec2(look.px(8), look.px(2)));
    if (ImGui::Button(find_panel(formula.panel)->title))
      context.invoke(std::string("panel.") + formula.panel);
    ImGui::PopStyleVar();
    text_wrapped(look, TextRole::number, c.predicted, formula.formula);
    text_wrapped(look, TextRole::body, c.dim, formula.words);
    text_wrapped(look, TextRole::caption, c.mute, std::string("Source: ") + formula.source);
    ImGui::Dummy({0, look.px(6)});
    ImGui::PopID();
  }
}

// Constants of one thing and source, in a table of their own.
void draw_group(const Look& look, std::span<const Constant> group) {
  const Palette& c = look.color();
  constexpr ImGuiTableFlags kFlags = ImGuiTableFlags_BordersInnerH | ImGuiTableFlags_PadOuterX;
  text_wrapped(look, TextRole::title, c.text, group.front().of);
  float widest = 0;
  for (const Constant& one : group)
    widest = std::max(widest, text_size_of(look, TextRole::number, one.value).x);
  if (ImGui::BeginTable("constants", 2, kFlags)) {
    ImGui::TableSetupColumn("constant", ImGuiTableColumnFlags_WidthStretch);
    ImGui::TableSetupColumn("value", ImGuiTableColumnFlags_WidthFixed, widest + look.px(2));
    for (const Constant& one : group) {
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      text_wrapped(look, TextRole::body, c.text, one.name);
      ImGui::TableNextColumn();
      text_right(look, TextRole::number, c.predicted, one.value);
    }
    ImGui::EndTable();
  }
  text_wrapped(look, TextRole::caption, c.mute, "Source: " + group.front().source);
  ImGui::Dummy({0, look.px(8)});
}

void draw_constants(const Context& context, ImVec2 size) {
  const Look& look = context.look;
  chart_title(look, "Constants of this scenario", "", size.x);
  const std::vector<Constant>& all = constants(context);
  for (std::size_t first = 0, end = 0; first < all.size(); first = end) {
    while (end < all.size() && all[end].of == all[first].of && all[end].source == all[first].source) ++end;
    ImGui::PushID(static_cast<int>(first));
    draw_group(look, std::span(all).subspan(first, end - first));
    ImGui::PopID();
  }
}

void draw_left_out(const Context& context, ImVec2 size) {
  const Look& look = context.look;
  chart_title(look, "What is left out", "", size.x);
  for (const char* words : kLeftOut) {
    text_wrapped(look, TextRole::body, look.color().dim, words);
    ImGui::Dummy({0, look.px(2)});
  }
}

std::string caption(const Context&) {
  return "every formula and every constant, with its source";
}

void draw(const Context& context) {
  const Look& look = context.look;
  const ImVec2 room = ImGui::GetContentRegionAvail();
  if (room.x < look.px(1000)) {
    const std::array<PanelPart, 3> parts = {
        {{"formulas", [&](ImVec2 size) { draw_formulas(context, size); }},
         {"constants", [&](ImVec2 size) { draw_constants(context, size); }},
         {"left out", [&](ImVec2 size) { draw_left_out(context, size); }}}};
    return draw_parts(look, context.state.tab, parts);
  }
  const float gap = look.px(24);
  const auto child = [](const char* id, float width, const auto& draw_it) {
    if (ImGui::BeginChild(id, {width, 0})) draw_it(ImGui::GetContentRegionAvail());
    ImGui::EndChild();
  };
  const bool three_columns = room.x >= look.px(1700);
  const float left = std::floor((room.x - gap) * (three_columns ? 0.4f : 0.52f));
  child("formulas", left, [&](ImVec2 size) { draw_formulas(context, size); });
  ImGui::SameLine(0, gap);
  // A name and its value must not drift apart.
  const float middle = three_columns ? std::floor((room.x - left - 2 * gap) / 2) : 0;
  child("constants", middle, [&](ImVec2 size) {
    draw_constants(context, size);
    if (!three_columns) draw_left_out(context, size);
  });
  if (!three_columns) return;
  ImGui::SameLine(0, gap);
  child("left out", 0, [&](ImVec2 size) { draw_left_out(context, size); });
}

std::vector<Figure> figures(const Context& context) {
  FigureTable formulas{{{"what"}, {"formula"}, {"source"}}, {}};
  for (const Formula& one : kFormulas)
    formulas.rows.push_back({std::string(one.what), std::string(one.formula), std::string(one.source)});
  FigureTable values{{{"constant"}, {"value"}, {"source"}}, {}};
  for (const Constant& one : constants(context))
    values.rows.push_back({one.of + ": " + one.name, one.value, one.source});
  return {{"Formulas", std::move(formulas)}, {"Constants of this scenario", std::move(values)}};
}

}  // namespace

extern const PanelEntry methodology_panel = {"methodology",
                                             "Methodology",
                                             "every formula and every constant, with its source",
                                             Dock::lower_left,
                                             panel_of<MethodologyState, caption, draw, figures>,
                                             false,
                                             false};

}  // namespace app::gui
