// How much of a pipeline's time is waiting, in a timeline and by the closed forms of the literature.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "sim/cost/step_detail.h"

namespace sim {

struct Bubble {
  Seconds end;       // of the last pass: what follows is the optimizer's
  double share = 0;  // of all stages' time until then, in which they run no pass
  // What it would be with equal stages and no time for transfers, from the mean time of the passes
  // (plan/schedule_closed_forms.h); empty where no closed form is known.
  std::optional<double> closed_form;
};
// The timeline is pipeline_timeline()'s; empty for a timeline without passes.
std::optional<Bubble> bubble_of(std::span<const TimelineSlot> timeline, std::string_view schedule);

}  // namespace sim
