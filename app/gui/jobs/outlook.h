// What a press of Start would lead to on this machine, known beforehand.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "app/gui/jobs/run.h"
#include "sim/byte_units.h"
#include "sim/cost/calibration.h"
#include "sim/scenario/scenario.h"

namespace app::gui {

// The most ranks that can start on this machine. More ranks than cores take turns, and a run measures that.
inline constexpr int kMostRanksHere = 64;

struct StartQuestion {
  sim::Scenario scenario;
  std::int64_t steps = 0;                        // of training
  std::shared_ptr<const sim::Calibration> here;  // of this machine; null: not measured
  RunPlace place = {};
  sim::ByteUnits bytes = sim::byte_units();  // that its sentences are written in
  bool operator==(const StartQuestion&) const = default;
};

struct Outlook {
  std::string refusal;                   // why it cannot start, a sentence; empty: it can
  std::optional<sim::Seconds> expected;  // of the whole run, where this machine has been measured
  std::optional<sim::Scenario>
      nearest;  // where it cannot: a scenario that can, of the same family or smaller
};

// The scenario as a run on this machine takes it: our kernels, the place's type and device. `here`: the
// calibration of that device; null: not measured.
sim::Scenario as_run_here(sim::Scenario scenario, const sim::Calibration* here, const RunPlace& place = {});

Outlook outlook_of(const StartQuestion& question);

}  // namespace app::gui
