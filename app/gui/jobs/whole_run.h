// The cost of a whole run with the values that Economics begins with, before any slider is moved.
#pragma once
#include <optional>

#include "sim/economics/run_cost.h"
#include "sim/report/report.h"

namespace app::gui {

struct WholeRun {
  double tokens = 0;  // of training: compute-optimal; of generation: a million
  sim::RunCost cost;
  bool is_priced = false;   // a price of the hardware is known
  bool is_powered = false;  // its power is
};
// None where there is no rate, or where no run would ever end.
std::optional<WholeRun> whole_run(const sim::Report& report);

}  // namespace app::gui
