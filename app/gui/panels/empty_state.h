// What panels show when there is nothing to show: why, and what to do about it. Never an empty frame.
#pragma once
#include <string>
#include <string_view>

#include "app/gui/jobs/study.h"
#include "app/gui/view.h"

namespace app::gui {

// A heading and a sentence in the middle of what is left; with an action, a button that invokes the command.
void draw_empty_state(const PanelContext& context, std::string_view heading, std::string_view sentence,
                      const char* action = nullptr, const char* command = nullptr);

// The words with a full stop at the end.
std::string as_sentence(std::string words);

// "29 of 365, 56 s left".
std::string progress_text(const StudyProgress& measuring);

// Draws the empty state and returns true where there is no prediction. One panel says why and offers what to
// do; the others only say that there is none.
bool draw_missing_prediction(const PanelContext& context, bool with_reason = false);

// Draws the empty state and returns true where a study has no result: why its last request failed, below the
// heading, or that it is running.
template <class Request, class Result>
bool draw_missing_result(const PanelContext& context, const Study<Request, Result>& study,
                         std::string_view failed) {
  const std::string& failure = study.progress().failure;
  if (failure.empty() && study.result()) return false;
  if (failure.empty())
    draw_empty_state(context, "Working", "The first numbers are on their way.");
  else
    draw_empty_state(context, failed, as_sentence(failure));
  return true;
}

}  // namespace app::gui
