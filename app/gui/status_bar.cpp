// The status bar: where the numbers come from, and what is under way.
#include <algorithm>
#include <cmath>

#include "app/gui/bars.h"
#include "app/gui/panels/empty_state.h"
#include "app/gui/widgets/text.h"
#include "sim/byte_units.h"
#include "sim/format.h"

namespace app::gui {
namespace {

std::string run_status(const RunView& run) {
  const bool train = run.task == sim::Task::train;
  std::string words = run.title.empty() ? "starting" : run.title;
  if (!run.activity.empty()) return words + ": " + run.activity;
  if (run.planned > 0)
    words += std::string(train ? ", step " : ", token ") + sim::format_count(run.done) + " of " +
             sim::format_count(run.planned);
  if (run.phase == RunPhase::stopping) return words + ", stopping";
  if (run.left.value > 0) words += ", " + sim::format(run.left) + " left";
  return words;
}

}  // namespace

void draw_toast(ImDrawList& list, const Look& look, ImVec2 begin, ImVec2 size, std::string_view words) {
  const Palette& c = look.color();
  const ImVec2 end = {begin.x + size.x, begin.y + size.y};
  const float top = end.y - std::floor(look.px(kStatusBarHeight)), inset = look.px(14);
  list.AddRectFilled({begin.x, top}, end, c.raised);
  list.AddRectFilled({begin.x, top}, {end.x, top + std::max(1.0f, std::floor(look.px(2)))}, c.predicted);
  draw_text(&list, look, TextRole::body, {begin.x + inset, (top + end.y) / 2}, c.text,
            fitted(look, TextRole::body, words, size.x - 2 * inset), {0, 0.5f});
}

void draw_status_bar(const PanelContext& context, std::string_view undo, std::string_view toast) {
  const Look& look = context.look;
  const Palette& c = look.color();
  const ImVec2 begin = ImGui::GetWindowPos(), size = ImGui::GetWindowSize();
  const float top = begin.y + size.y - std::floor(look.px(kStatusBarHeight));
  ImDrawList* list = ImGui::GetWindowDrawList();
  if (!toast.empty()) return draw_toast(*list, look, begin, size, toast);
  list->AddRectFilled({begin.x, top}, {begin.x + size.x, begin.y + size.y}, c.panel);
  list->AddRectFilled({begin.x, top}, {begin.x + size.x, top + std::max(1.0f, std::floor(look.scale))},
                      c.border);
  const float middle = top + look.px(kStatusBarHeight) / 2;
  float x = begin.x + look.px(14);
  const float end = begin.x + size.x - look.px(14);
  const auto say = [&](ImU32 color, std::string_view words) {
    const std::string shown = fitted(look, TextRole::caption, words, end - x);
    draw_text(list, look, TextRole::caption, {x, middle}, color, shown, {0, 0.5f});
    x += text_size_of(look, TextRole::caption, shown).x + look.px(24);
  };

  const Prediction& prediction = context.prediction;
  if (!context.disagreement.empty())
    say(c.bad, "no prediction: figures are of the last scenario that could be");
  else if (!prediction.problems.empty() || !prediction.failure.empty())
    say(c.bad, "no prediction");
  else if (prediction.spent && !context.frozen)
    say(c.mute, "predicted in " + sim::format(*prediction.spent));
  else
    say(c.mute, prediction.report ? "predicted" : "predicting");
  std::string calibration = "datasheet peaks, default efficiencies";
  if (!prediction.calibration.empty()) calibration = "calibrated on " + prediction.calibration;
  if (prediction.calibration_residual > 0)
    calibration += ", median error " + sim::format_percent(prediction.calibration_residual);
  say(c.mute, calibration);
  say(c.mute, sim::sentence(sim::byte_units()));
  if (!undo.empty()) say(c.mute, "undo: " + std::string(undo));
  for (const sim::Task task : {sim::Task::train, sim::Task::generate})
    if (const RunView& run = context.runs.of(task); run.active()) say(c.measured, run_status(run));
  if (context.measuring.running)
    say(c.measured, "measuring this machine, " + progress_text(context.measuring));
}

}  // namespace app::gui
