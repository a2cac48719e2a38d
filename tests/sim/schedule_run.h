// A schedule run slot by slot, beside what the planner and predictions find.
#pragma once
#include <algorithm>
#include <vector>

#include "sim/plan/schedule.h"
#include "sim/plan/schedule_closed_forms.h"

namespace sim {

struct ScheduleTimes {
  std::vector<std::vector<Seconds>> start;  // of each slot of each stage
  Seconds duration;                         // until the last slot of all ends
  std::vector<Seconds> idle;                // of each stage, in that time
  std::vector<Seconds> bubble;              // of each stage, between its own first slot and its last
};

// Exact for stages of unequal speed: a slot begins when its stage is free and its input has arrived;
// transfers take their time beside compute. Requires check(schedule).empty(), and as many `times` as stages.
inline ScheduleTimes run(const Schedule& schedule, const std::vector<PassTimes>& times, Seconds transfer) {
  ScheduleTimes r;
  for (const auto& slots : schedule.slots) r.start.emplace_back(slots.size());
  std::vector<Seconds> free(schedule.slots.size()), busy(schedule.slots.size());  // by stage
  const ScheduleEvents all = events_of(schedule);
  std::vector<Seconds> arrivals(all.messages);
  for (std::size_t first = 0, end = 0; first < all.events.size(); first = end) {
    const auto row = static_cast<std::size_t>(all.events[first].stage);
    const std::vector<Slot>& slots = schedule.slots[row];
    // Slots that go together begin when all inputs are there.
    for (end = first; end == first || slots[all.events[end - 1].slot].with_next; ++end)
      if (const std::int32_t m = all.events[end].received; m >= 0)
        free[row] = std::max(free[row], arrivals[static_cast<std::size_t>(m)]);
    for (std::size_t i = first; i < end; ++i) {
      const PassTimes& t = times[row];
      const Pass pass = slots[all.events[i].slot].pass;
      Seconds duration = t.forward;
      if (pass == Pass::backward) duration = t.backward_input + t.backward_weight;
      if (pass == Pass::backward_input) duration = t.backward_input;
      if (pass == Pass::backward_weight) duration = t.backward_weight;
      r.start[row][all.events[i].slot] = free[row];
      busy[row] += duration;
      free[row] += duration;
    }
    for (std::size_t i = first; i < end; ++i)
      if (const std::int32_t m = all.events[i].sent; m >= 0)
        arrivals[static_cast<std::size_t>(m)] = free[row] + transfer;
  }
  r.duration = *std::max_element(free.begin(), free.end());
  for (std::size_t stage = 0; stage < free.size(); ++stage) {
    r.idle.push_back(r.duration - busy[stage]);
    const bool works = !r.start[stage].empty();
    r.bubble.push_back(works ? free[stage] - r.start[stage].front() - busy[stage] : Seconds{});
  }
  return r;
}

}  // namespace sim
