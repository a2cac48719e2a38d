// A predicted step in detail, for whoever draws it: who does what when, what is exchanged, what is held.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "sim/cost/calibration.h"
#include "sim/plan/plan.h"
#include "sim/report/operation_timeline.h"
#include "sim/report/report.h"

namespace sim {

// When an action of a program ran.
struct RanAction {
  std::size_t action = 0;
  Seconds start, end;
};
// What a program's actions, in the order in which they ran, make of its stage's time.
std::vector<TimelineSlot> timeline_of(const Plan& plan, std::size_t program,
                                      std::span<const RanAction> times);

// When an operation of a program's action ran.
struct RanOperation {
  std::size_t action = 0, operation = 0;  // the latter of the action's block
  Seconds start, end;
};
OperationTimeline operations_of(const Plan& plan, std::size_t program, std::span<const RanOperation> times);

// How long a stage would wait for others with equal stages and no time for transfers, from the mean time of a
// timeline's passes (plan/schedule_closed_forms.h); empty where no closed form is known, and without passes.
std::optional<Seconds> closed_form_bubble(std::span<const TimelineSlot> timeline, std::string_view schedule);

// Messages of one size that the ranks of a stage exchange in a step.
struct MessageTraffic {
  std::int32_t stage = 0;
  std::int32_t group = 0;  // index into Plan::groups
  OpKind kind{};           // send for both ends of a pipeline's transfer
  Bytes sent;              // by one rank, a message
  std::int64_t messages = 0;
  Seconds duration;  // of all of them
  Seconds exposed;   // while the stage does nothing else; of a send, while its receiver waits for it
};

// A training step as it goes, for whoever draws it.
struct StepDetail {
  std::vector<TimelineSlot> slots;                   // by stage, then time; those of a stage do not overlap
  std::vector<std::vector<MemoryTimePoint>> memory;  // live bytes of each stage, over a step but the first
  std::vector<MemoryTimePoint> first_step;  // of the fullest stage: what is made once is not there yet
  std::vector<MessageTraffic> traffic;      // by stage, in the order of the plan's blocks
  // One for each stage; empty where the step has more than `most_operations`, which nobody would look at
  // one by one.
  std::vector<OperationTimeline> operations;
};
// At most `memory_points` a stage, each the fullest moment of its interval.
StepDetail step_detail(const Plan& plan, const Hardware& hardware, const Calibration* calibration = nullptr,
                       std::size_t memory_points = 1000, std::size_t most_operations = 50'000);

}  // namespace sim
