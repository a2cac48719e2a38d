#include "sim/cost/bubble.h"

#include <algorithm>

#include "sim/plan/schedule_closed_forms.h"

namespace sim {

std::optional<Bubble> bubble_of(std::span<const TimelineSlot> timeline, std::string_view schedule) {
  Bubble bubble;
  int stages = 0, chunks = 0, micro_batches = 0;
  PassTimes sum;
  Seconds busy;
  for (const TimelineSlot& slot : timeline) {
    if (slot.phase == Phase::optimizer) continue;
    const Seconds duration = slot.end - slot.start;
    bubble.end = std::max(bubble.end, slot.end);
    stages = std::max(stages, slot.stage + 1);
    chunks = std::max(chunks, slot.chunk + 1);
    micro_batches = std::max(micro_batches, slot.micro_batch + 1);
    busy += duration;
    (slot.phase == Phase::forward ? sum.forward
     : slot.weights               ? sum.backward_weight
                                  : sum.backward_input) += duration;
  }
  if (!(bubble.end.value > 0)) return std::nullopt;
  bubble.share = 1 - busy / (bubble.end * stages);
  const double passes = static_cast<double>(stages) * micro_batches;
  const PassTimes mean{sum.forward * (1 / passes), sum.backward_input * (1 / passes),
                       sum.backward_weight * (1 / passes)};
  const Seconds work = (mean.forward + mean.backward_input + mean.backward_weight) * micro_batches;
  if (const auto waits = closed_form_bubble(schedule, stages, chunks, micro_batches, mean))
    bubble.closed_form = *waits / (work + *waits);
  return bubble;
}

}  // namespace sim
