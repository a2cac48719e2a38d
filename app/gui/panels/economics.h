// What the economics panel shows and reckons with.
#pragma once
#include <string>

#include "app/gui/jobs/economics_study.h"
#include "app/gui/panels/panels.h"
#include "sim/economics/published_models.h"

namespace app::gui {

struct EconomicsState {
  explicit EconomicsState(const PanelTools& tools);
  Study<EconomicsQuestion, EconomicsStudy>& study;

  // 0 and "" leave it to the dated rates, or to what suits the scenario.
  double tokens = 0;  // of the run
  std::string site;
  double usd_per_hour = 0, pue = 0, kg_co2e_per_kwh = 0;
  double checkpoint_s = 0;      // that training waits for one to be written
  double critical_batch = 0;    // tokens
  double served_tokens = 1e12;  // over the model's life
  bool hoffmann = false;        // the first fit of the scaling law, in place of the second
  sim::QualityMeasure quality = sim::QualityMeasure::commonsense;
  int tab = 0;  // where there is room for one part alone
};

}  // namespace app::gui
