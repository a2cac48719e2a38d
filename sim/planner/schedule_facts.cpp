#include "sim/planner/schedule_facts.h"

namespace sim {

ScheduleFacts::ScheduleFacts(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                             std::int32_t micro_batches)
    : placement{.stages = stages,
                .chunks = placement_of(schedule) == Placement::two_directions ? 2 : chunks,
                .micro_batches = micro_batches,
                .placement = placement_of(schedule)},
      in_flight(sim::in_flight(
          make_schedule(schedule, stages, chunks, enough_micro_batches(schedule, stages, micro_batches)))),
      schedule_(schedule),
      chunks_(chunks) {
  for (std::size_t i = 0; i < in_flight.size(); ++i)
    within_before.push_back(i > 0 && within(in_flight[i], in_flight[i - 1]));
}

const ScheduleClock& ScheduleFacts::clock() const {
  std::call_once(made_,
                 [&] { clock_.emplace(schedule_, placement.stages, chunks_, placement.micro_batches); });
  return *clock_;
}

const ScheduleFacts& Schedules::of(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                                   std::int32_t micro_batches) {
  Known& known = [&]() -> Known& {
    const std::lock_guard lock(mutex_);
    return known_[{schedule, stages, chunks, micro_batches}];
  }();
  std::call_once(known.made, [&] {
    known.facts = std::make_unique<ScheduleFacts>(schedule, stages, chunks, micro_batches);
  });
  return *known.facts;
}

}  // namespace sim
