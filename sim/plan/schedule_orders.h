// The orders of schedule.h, a function each: the slots of one stage. Requires schedule_problems(...).empty().
#pragma once
#include <vector>

#include "sim/plan/schedule.h"

namespace sim {

using Slots = std::vector<Slot>;

// With several chunks one_forward_one_backward() is interleaved().
Slots gpipe(std::int32_t stage, std::int32_t stages, std::int32_t chunks, std::int32_t micro_batches);
Slots one_forward_one_backward(std::int32_t stage, std::int32_t stages, std::int32_t chunks,
                               std::int32_t micro_batches);
Slots interleaved(std::int32_t stage, std::int32_t stages, std::int32_t chunks, std::int32_t micro_batches);
// The plain order of looped pipelines: gpipe with one chunk.
Slots breadth_first(std::int32_t stage, std::int32_t stages, std::int32_t chunks, std::int32_t micro_batches);
Slots zero_bubble_h1(std::int32_t stage, std::int32_t stages, std::int32_t chunks,
                     std::int32_t micro_batches);
Slots zero_bubble_h2(std::int32_t stage, std::int32_t stages, std::int32_t chunks,
                     std::int32_t micro_batches);
Slots zero_bubble_v(std::int32_t stage, std::int32_t stages, std::int32_t chunks, std::int32_t micro_batches);
Slots dualpipe(std::int32_t stage, std::int32_t stages, std::int32_t chunks, std::int32_t micro_batches);
Slots dualpipe_v(std::int32_t stage, std::int32_t stages, std::int32_t chunks, std::int32_t micro_batches);

}  // namespace sim
