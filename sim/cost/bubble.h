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
  // What it would be with equal stages and no time for transfers, from the mean time of the passes; empty
  // where no closed form is known.
  std::optional<double> closed_form;
};
// The timeline is pipeline_timeline()'s; empty for a timeline without passes.
std::optional<Bubble> bubble_of(std::span<const TimelineSlot> timeline, std::string_view schedule);

// Mean times of a micro-batch's passes through one stage, all its chunks.
struct StagePasses {
  double forward = 0, backward = 0, weights = 0;  // backward without the weights' part where that is apart
};
// Share of a stage's time in which it waits. gpipe, 1f1b: Narayanan et al. 2021, arXiv 2104.04473, section
// 2.2.1; interleaved: section 2.2.2; zb-h1, zb-h2: Qi et al. 2023, arXiv 2401.10241, table 1.
std::optional<double> closed_form_bubble(std::string_view schedule, int stages, int chunks, int micro_batches,
                                         const StagePasses& passes);

}  // namespace sim
