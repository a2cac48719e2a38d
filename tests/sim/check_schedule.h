// Whether a schedule can run.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "sim/plan/schedule.h"

namespace sim {

inline std::string_view pass_name(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return "forward";
    case Pass::backward:
      return "backward";
    case Pass::backward_input:
      return "backward of inputs";
    case Pass::backward_weight:
      return "backward of weights";
  }
  return "";
}

inline std::string describe(std::size_t stage, const Slot& s) {
  return "stage " + std::to_string(stage) + ": " + std::string(pass_name(s.pass)) + " of micro-batch " +
         std::to_string(s.micro_batch) + ", chunk " + std::to_string(s.chunk);
}

// What makes a schedule legal, one sentence a violation: each stage runs each pass of each of its chunks once
// for each micro-batch; none waits for one that, in the given orders, cannot have come before (which would be
// a deadlock).
inline std::vector<std::string> check(const Schedule& schedule) {
  std::vector<std::string> violations;
  for (std::size_t stage = 0; stage < schedule.slots.size(); ++stage) {
    std::vector<int> forward(static_cast<std::size_t>(schedule.chunks * schedule.micro_batches));
    std::vector<int> input = forward, weight = forward;
    for (const Slot& s : schedule.slots[stage]) {
      if (s.chunk < 0 || s.chunk >= schedule.chunks || s.micro_batch < 0 ||
          s.micro_batch >= schedule.micro_batches || !schedule.passes(s.micro_batch, s.chunk)) {
        violations.push_back(describe(stage, s) + " does not exist");
        return violations;
      }
      const auto i = static_cast<std::size_t>(s.chunk * schedule.micro_batches + s.micro_batch);
      forward[i] += s.pass == Pass::forward;
      input[i] += s.pass == Pass::backward || s.pass == Pass::backward_input;
      weight[i] += s.pass == Pass::backward || s.pass == Pass::backward_weight;
    }
    if (!schedule.slots[stage].empty() && schedule.slots[stage].back().with_next)
      violations.push_back(describe(stage, schedule.slots[stage].back()) + " has no next slot to go with");
    for (std::size_t i = 0; i < forward.size(); ++i) {
      const auto m = static_cast<std::int32_t>(i) % schedule.micro_batches;
      const int times = schedule.passes(m, static_cast<std::int32_t>(i) / schedule.micro_batches) ? 1 : 0;
      if (forward[i] != times || input[i] != times || weight[i] != times)
        violations.push_back(
            "stage " + std::to_string(stage) + ": micro-batch " +
            std::to_string(i % static_cast<std::size_t>(schedule.micro_batches)) + ", chunk " +
            std::to_string(i / static_cast<std::size_t>(schedule.micro_batches)) + " runs " +
            std::to_string(forward[i]) + " times forward, " + std::to_string(input[i]) +
            " backward of inputs, " + std::to_string(weight[i]) + " of weights, not once each");
    }
  }
  if (!violations.empty()) return violations;
  std::vector<std::size_t> done(schedule.slots.size());  // by stage
  for (const ScheduleEvent& e : events_of(schedule).events) ++done[static_cast<std::size_t>(e.stage)];
  for (std::size_t stage = 0; stage < done.size(); ++stage)
    if (done[stage] < schedule.slots[stage].size())
      violations.push_back(describe(stage, schedule.slots[stage][done[stage]]) +
                           " waits for what cannot come before it");
  return violations;
}

}  // namespace sim
