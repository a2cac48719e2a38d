// A predicted step in detail, for drawing: what each stage does when, what ranks exchange, what is held.
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
// The timeline of a program's stage, from its actions in the order in which they ran.
std::vector<TimelineSlot> timeline_of(const Plan& plan, std::size_t program,
                                      std::span<const RanAction> times);

// When an operation of a program's action ran.
struct RanOperation {
  std::size_t action = 0, operation = 0;  // operation: index in the action's block
  Seconds start, end;
};
OperationTimeline operations_of(const Plan& plan, std::size_t program, std::span<const RanOperation> times);

// How long a stage would wait for others if all stages were equal and transfers took no time, from the mean
// times of a timeline's passes (plan/schedule_closed_forms.h). Empty without passes or a known closed form.
std::optional<Seconds> closed_form_bubble(std::span<const TimelineSlot> timeline, std::string_view schedule);

// Messages of one size that the ranks of a stage exchange in a step.
struct MessageTraffic {
  std::int32_t stage = 0;
  std::int32_t group = 0;  // index into Plan::groups
  OpKind kind{};           // `send` for both ends of a transfer between stages
  Bytes sent;              // by one rank, in each message
  std::int64_t messages = 0;
  Seconds duration;  // sum over the messages
  Seconds exposed;   // of it, while the stage does nothing else; for a send, while its receiver waits
};

// A training step as it goes, for whoever draws it.
struct StepDetail {
  std::vector<TimelineSlot> slots;                   // by stage, then time; those of a stage do not overlap
  std::vector<std::vector<MemoryTimePoint>> memory;  // live bytes of each stage, over a later step
  std::vector<MemoryTimePoint> first_step;           // the fullest stage's; buffers made once appear in it
  std::vector<MessageTraffic> traffic;               // by stage, in the order of the plan's blocks
  // One for each stage. Empty where the step has more than `most_operations` operations: nobody would look at
  // so many one by one.
  std::vector<OperationTimeline> operations;
};
// At most `memory_points` a stage, each the fullest moment of its interval.
StepDetail step_detail(const Plan& plan, const Hardware& hardware, const Calibration* calibration = nullptr,
                       std::size_t memory_points = 1000, std::size_t most_operations = 50'000);

}  // namespace sim
