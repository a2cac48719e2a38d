#include "sim/planner/schedule_facts.h"

#include <algorithm>

namespace sim {
namespace {

// A number of micro-batches that already shows all that is in flight with more.
std::int32_t enough_micro_batches(const std::string& schedule, std::int32_t stages,
                                  std::int32_t micro_batches) {
  const std::int32_t filling = traits_of_schedule(schedule).filling, group = group_of(schedule, stages);
  return filling == 0 ? micro_batches
                      : std::min(micro_batches, (filling + 1) * group + micro_batches % group);
}

}  // namespace

ScheduleFacts::ScheduleFacts(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                             std::int32_t micro_batches, bool begins_gradients)
    : placement{.stages = stages,
                .chunks = placement_of(schedule) == Placement::two_directions ? 2 : chunks,
                .micro_batches = micro_batches,
                .placement = placement_of(schedule)},
      in_flight(sim::in_flight(
          make_schedule(schedule, stages, chunks, enough_micro_batches(schedule, stages, micro_batches)),
          begins_gradients)),
      schedule_(schedule),
      chunks_(chunks) {}

const SlotOrder& ScheduleFacts::order() const {
  std::call_once(made_, [&] {
    order_ = std::make_unique<SlotOrder>(
        slots_in_groups(schedule_, placement.stages, chunks_, placement.micro_batches));
  });
  return *order_;
}

const ScheduleFacts& Schedules::of(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                                   std::int32_t micro_batches, bool begins_gradients) {
  Known& known = [&]() -> Known& {
    const std::lock_guard lock(mutex_);
    return known_[{schedule, stages, chunks, micro_batches, begins_gradients}];
  }();
  std::call_once(known.made, [&] {
    known.facts = std::make_unique<ScheduleFacts>(schedule, stages, chunks, micro_batches, begins_gradients);
  });
  return *known.facts;
}

}  // namespace sim
