// A training step, operation by operation.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sim/plan/plan.h"
#include "sim/units.h"

namespace sim {

// Which operation of the plan ran. All executions of one operation share the name.
struct OperationName {
  std::string id;
  Phase phase{};
  bool operator==(const OperationName&) const = default;
};
// One execution of an operation.
struct OperationSpan {
  std::int32_t name = 0;  // index of OperationTimeline::names
  std::int32_t layer = 0, micro_batch = 0;
  std::int32_t stream = 0;  // sim/plan/plan.h
  Seconds start, end;       // since the step began
};
// What a rank runs in a training step, operation by operation, in the order in which the host launches them.
// Receives are not among them: a rank waits in them.
struct OperationTimeline {
  std::vector<OperationName> names;
  std::vector<OperationSpan> spans;
};

}  // namespace sim
