#include "app/gui/panels/empty_state.h"

#include <algorithm>
#include <cmath>

#include "app/gui/legal.h"
#include "app/gui/widgets/fields.h"
#include "app/gui/widgets/text.h"
#include "sim/format.h"

namespace app::gui {

void draw_empty_state(const PanelContext& context, std::string_view heading, std::string_view sentence,
                      const char* action, const char* command) {
  const Look& look = context.look;
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float width = std::min(room.x, look.px(420));
  const float left = ImGui::GetCursorPosX() + (room.x - width) / 2;
  const TextScope body(look, TextRole::body);
  const float sentence_height =
      ImGui::CalcTextSize(sentence.data(), sentence.data() + sentence.size(), false, width).y;
  const float button = action ? ImGui::GetFrameHeight() + look.px(14) : 0;
  const float height =
      text_size_of(look, TextRole::heading, heading).y + look.px(8) + sentence_height + button;
  ImGui::SetCursorPos({left, ImGui::GetCursorPosY() + std::max(0.0f, (room.y - height) / 2)});
  ImGui::BeginGroup();
  text(look, TextRole::heading, look.color().text, fitted(look, TextRole::heading, heading, width));
  ImGui::PushTextWrapPos(left + width);
  text(look, TextRole::body, look.color().dim, sentence);
  ImGui::PopTextWrapPos();
  if (action) {
    ImGui::Dummy({0, look.px(4)});
    if (primary_button(look, action, look.color().predicted)) context.invoke(command);
  }
  ImGui::EndGroup();
}

std::string as_sentence(std::string words) {
  return words.ends_with('.') ? words : words + '.';
}

std::string progress_text(const StudyProgress& measuring) {
  if (measuring.of == 0) return "starting";
  const std::string words = sim::format_count(measuring.done) + " of " + sim::format_count(measuring.of);
  return measuring.part.empty() ? words : words + ", " + measuring.part;
}

bool draw_missing_prediction(const PanelContext& context, bool with_reason) {
  const Prediction& prediction = context.prediction;
  if (prediction.report) return false;
  const StudyProgress& measuring = context.measuring;
  if (!with_reason) {
    text_wrapped(context.look, TextRole::caption, context.look.color().mute,
                 "No prediction yet: Overview says why.");
  } else if (measuring.running) {
    draw_empty_state(context, "Measuring this machine",
                     progress_text(measuring) + ". Until then any other hardware can be picked above.");
  } else if (context.scenario.hardware.peak.empty()) {
    const std::string failed =
        measuring.failure.empty() ? "" : " The last attempt failed: " + measuring.failure;
    draw_empty_state(
        context, "This machine has not been measured yet",
        "Its peaks, its bandwidth and every kernel are timed once, which takes about a minute, and kept." +
            failed,
        "Measure this machine", "run.calibrate");
  } else if (!prediction.problems.empty()) {
    draw_empty_state(context, "This cannot be", in_labels(prediction.problems.front()) + ".", "Make it legal",
                     "edit.make_legal");
  } else if (!prediction.failure.empty()) {
    draw_empty_state(context, "No prediction", prediction.failure);
  } else {
    draw_empty_state(context, "Predicting", "The first numbers are on their way.");
  }
  return true;
}

}  // namespace app::gui
