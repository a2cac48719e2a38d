#include "sim/cost/bubble.h"

#include <algorithm>

namespace sim {

std::optional<Bubble> bubble_of(std::span<const TimelineSlot> timeline, std::string_view schedule) {
  Bubble bubble;
  int stages = 0, chunks = 0, micro_batches = 0;
  StagePasses sum;
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
     : slot.weights               ? sum.weights
                                  : sum.backward) += duration.value;
  }
  if (!(bubble.end.value > 0)) return std::nullopt;
  bubble.share = 1 - busy / (bubble.end * stages);
  const double passes = static_cast<double>(stages) * micro_batches;
  bubble.closed_form =
      closed_form_bubble(schedule, stages, chunks, micro_batches,
                         {sum.forward / passes, sum.backward / passes, sum.weights / passes});
  return bubble;
}

std::optional<double> closed_form_bubble(std::string_view schedule, int stages, int chunks, int micro_batches,
                                         const StagePasses& passes) {
  const double work = passes.forward + passes.backward + passes.weights;
  double waits_a_stage = 0;
  if (schedule == "gpipe" || schedule == "1f1b" || schedule == "interleaved")
    waits_a_stage = work / chunks;
  else if (schedule == "zb-h1")
    waits_a_stage = passes.forward + passes.backward - passes.weights;
  else if (schedule == "zb-h2")
    waits_a_stage = passes.forward + passes.backward - 2 * passes.weights;
  else
    return std::nullopt;
  const double waits = (stages - 1) * std::max(0.0, waits_a_stage);
  return waits / (micro_batches * work + waits);
}

}  // namespace sim
