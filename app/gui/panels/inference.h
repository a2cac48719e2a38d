// What the inference panel shows.
#pragma once
#include "app/gui/jobs/inference_study.h"
#include "app/gui/panels/panels.h"

namespace app::gui {

struct InferenceState {
  explicit InferenceState(const PanelTools& tools);
  Study<InferenceQuestion, InferenceStudy>& study;

  InferenceChoices choices;
  double acceptance = 0.7;  // of a draft's tokens
  int tab = 0;              // where there is room for one part alone
};

}  // namespace app::gui
