// Why the step takes as long as it does: cause by cause from the chip's peak, and what would change it most.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "app/gui/jobs/waterfall.h"
#include "app/gui/panels/empty_state.h"
#include "app/gui/panels/panels.h"
#include "app/gui/widgets/chart.h"
#include "app/gui/widgets/figure_bars.h"
#include "app/gui/widgets/parts.h"
#include "app/gui/widgets/text.h"
#include "sim/format.h"
#include "sim/report/metrics.h"

namespace app::gui {
namespace {

struct WhyState {
  explicit WhyState(const PanelTools& tools)
      : study(tools.studies.add<TornadoQuestion, Tornado>(tornado_of)) {}
  TornadoStudy& study;
  int tab = 0;  // where there is room for one part alone
};
using Context = ContextWith<WhyState>;

// As Overview colours the parts that a cause is of.
ImU32 cause_color(const Palette& c, Cause cause) {
  const auto part = [&](sim::StepPart p) { return c.parts[static_cast<std::size_t>(p)]; };
  switch (cause) {
    case Cause::ideal:
      return c.predicted;
    case Cause::below_peak:
      return part(sim::StepPart::compute);
    case Cause::traffic:
      return part(sim::StepPart::memory);
    case Cause::below_bandwidth:
      return mix(part(sim::StepPart::memory), c.mute, 0.5f);
    case Cause::launch:
      return part(sim::StepPart::launch);
    case Cause::host:
      return part(sim::StepPart::host);
    case Cause::recompute:
      return c.passes[static_cast<std::size_t>(Pass::recompute)];
    case Cause::network:
      return part(sim::StepPart::network);
    case Cause::bubble:
      return part(sim::StepPart::bubble);
    case Cause::slowest:
      return part(sim::StepPart::slowest);
    case Cause::other:
      break;
  }
  return part(sim::StepPart::other);
}

std::string words_of(const PanelContext& context) {
  return context.prediction.report->source.scenario.workload.task == sim::Task::train ? "step" : "generation";
}

// Each cause begins where the last one ends; the whole stands below them.
FigureBars steps_of(const PanelContext& context) {
  const Palette& c = context.look.color();
  const Waterfall waterfall = waterfall_of(*context.prediction.report);
  FigureBars bars{Measure::seconds, {}, {}};
  for (std::size_t i = 0; i < kCauses; ++i)
    bars.parts.push_back({std::string(name(static_cast<Cause>(i))), cause_color(c, static_cast<Cause>(i))});
  double from = 0;
  for (std::size_t i = 0; i < kCauses; ++i) {
    const double seconds = waterfall[i].value;
    if (!(seconds > 0)) continue;
    FigureBars::Row row{bars.parts[i].name, std::vector<double>(kCauses), from};
    row.values[i] = seconds;
    bars.rows.push_back(std::move(row));
    from += seconds;
  }
  FigureBars::Row whole{words_of(context), {}};
  for (const sim::Seconds seconds : waterfall) whole.values.push_back(seconds.value);
  bars.rows.push_back(std::move(whole));
  return bars;
}

// "38 % is the roofline's limit; most is lost to the pipeline bubble, 0.48 s": what each operation would take
// at the peak or the bandwidth that bounds it, and the largest of all other causes.
std::string sentence_of(const PanelContext& context) {
  const Waterfall waterfall = waterfall_of(*context.prediction.report);
  double whole = 0;
  for (const sim::Seconds seconds : waterfall) whole += seconds.value;
  if (!(whole > 0)) return "";
  constexpr int kLimits = 2;  // ideal and traffic, which come first
  const double limit = std::accumulate(waterfall.begin(), waterfall.begin() + kLimits, 0.0,
                                       [](double sum, sim::Seconds s) { return sum + s.value; });
  const auto worst = std::max_element(waterfall.begin() + kLimits, waterfall.end(),
                                      [](sim::Seconds a, sim::Seconds b) { return a.value < b.value; });
  return sim::format_percent(limit / whole) + " is the roofline's limit; most is lost to " +
         std::string(name(static_cast<Cause>(worst - waterfall.begin()))) + ", " + sim::format(*worst);
}

// The sentence stands below the title where there is no room beside it.
void title_with(const Look& look, std::string_view title, std::string_view sentence, float width) {
  const float both = text_size_of(look, TextRole::title, title).x + look.px(10) +
                     text_size_of(look, TextRole::caption, sentence).x;
  chart_title(look, title, both <= width ? sentence : "", width);
  if (both > width) text_wrapped(look, TextRole::caption, look.color().dim, sentence);
}

void draw_waterfall(const Context& context, ImVec2 size) {
  const PartPlace place(size);
  title_with(context.look, "From the peak to the " + words_of(context), sentence_of(context), size.x);
  draw_figure_bars(context.look, steps_of(context), place.rest());
  place.fill();
}

// Faster to the right, slower to the left; a click makes the change.
void draw_tornado(const Context& context, ImVec2 size) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const PartPlace place(size);
  title_with(look, "What would change it most",
             "one field, tokens a second; a click makes the change, red does not fit", size.x);
  if (draw_missing_result(context, context.state.study, "This cannot be changed")) return place.fill();
  const std::vector<TornadoBar>& bars = context.state.study.result()->bars;
  if (bars.empty()) text(look, TextRole::body, c.dim, "No single legal change moves it.");
  double greatest = 0;
  float names = 0;
  for (const TornadoBar& bar : bars) {
    greatest = std::max(greatest, std::min(1.0, std::abs(bar.faster)));
    names = std::max(names, text_size_of(look, TextRole::body, bar.label).x);
  }
  const ImVec2 room = place.rest();
  // Names that are longer stand above their bars.
  const bool above = names > room.x * 0.45f;
  const float body = text_size_of(look, TextRole::body, "x").y, name_height = above ? body + look.px(1) : 0;
  const float bar_height =
      std::clamp(room.y / static_cast<float>(bars.size()) - name_height, body + look.px(7), look.px(80));
  const float line = name_height + bar_height;
  const float number = text_size_of(look, TextRole::number, "+0,000 %").x + look.px(8);
  const ImVec2 begin = ImGui::GetCursorScreenPos();
  const float least = begin.x + (above ? 0 : names + look.px(10)) + number, most = begin.x + room.x - number;
  const float middle = std::floor((least + most) / 2);
  ImDrawList* list = ImGui::GetWindowDrawList();
  float y = begin.y;
  for (const TornadoBar& bar : bars) {
    if (y + line > begin.y + room.y) break;
    ImGui::SetCursorScreenPos({begin.x, y});
    ImGui::PushID(bar.label.c_str());
    if (ImGui::Selectable("##change", false, 0, {room.x, line - look.px(2)}))
      context.edit(bar.label, bar.scenario);
    if (ImGui::IsItemHovered())
      ImGui::SetTooltip("%s: %s tokens/s%s", bar.label.c_str(), signed_percent(bar.faster).c_str(),
                        bar.fits ? "" : "\ndoes not fit");
    ImGui::PopID();
    const float top = y + name_height, centre = top + bar_height / 2;
    draw_text(list, look, TextRole::body, above ? ImVec2(begin.x, y) : ImVec2(begin.x + names, centre),
              bar.fits ? c.text : c.bad, fitted(look, TextRole::body, bar.label, above ? room.x : names),
              above ? ImVec2(0, 0) : ImVec2(1, 0.5f));
    const float length = (most - middle) * static_cast<float>(std::min(1.0, std::abs(bar.faster)) / greatest);
    const float to = bar.faster > 0 ? middle + length : middle - length;
    list->AddRectFilled({std::min(middle, to), top + bar_height * 0.2f},
                        {std::max(middle, to), top + bar_height * 0.8f},
                        bar.faster > 0 ? c.predicted : with_alpha(c.mute, 0.8f), look.px(2));
    draw_text(list, look, TextRole::number, {bar.faster > 0 ? to + look.px(5) : to - look.px(5), centre},
              c.dim, signed_percent(bar.faster), {bar.faster > 0 ? 0.0f : 1.0f, 0.5f});
    y += line;
  }
  list->AddLine({middle, begin.y}, {middle, y}, c.mute, look.px(1));
  ImGui::SetCursorScreenPos({begin.x, y});
  place.fill();
}

std::string caption(const PanelContext& context) {
  return context.scenario.model.name + " on " + context.scenario.hardware.name;
}

void draw(const Context& context) {
  if (draw_missing_prediction(context)) return;
  context.state.study.follow({context.scenario, context.calibration});
  const std::array<PanelPart, 2> parts = {{{"causes", [&](ImVec2 size) { draw_waterfall(context, size); }},
                                           {"changes", [&](ImVec2 size) { draw_tornado(context, size); }}}};
  draw_parts(context.look, context.state.tab, parts);
}

std::vector<Figure> figures(const Context& context) {
  if (!context.prediction.report) return {};
  std::vector<Figure> all = {{"From the peak to the " + words_of(context), steps_of(context)}};
  const auto& study = context.state.study;
  if (study.result() && !study.result()->bars.empty()) {
    FigureTable table{{{"change"}, {"tokens a second, change", Measure::share}, {"fits"}}, {}};
    for (const TornadoBar& bar : study.result()->bars)
      table.rows.push_back({bar.label, bar.faster, std::string(bar.fits ? "yes" : "no")});
    all.push_back({"What would change it most", std::move(table)});
  }
  return all;
}

}  // namespace

extern const PanelEntry why_panel = {"why", "Why",
                                     "what the step's time is lost to, and what would change it",
                                     Dock::lower_left, panel_of<WhyState, caption, draw, figures>};

}  // namespace app::gui
