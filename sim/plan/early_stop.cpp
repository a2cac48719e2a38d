#include "sim/plan/early_stop.h"

#include <algorithm>

namespace sim {

std::vector<Operation> without_unread_end(const PlanBuilder& builder, std::vector<Operation> operations) {
  const auto leaves_something = [&](const Operation& op) {
    return std::ranges::any_of(op.operands, [&](const Operand& o) {
      return o.buffer != kNoBuffer && o.access != Access::read &&
             builder.buffer(o.buffer).buffer_class != BufferClass::scratch;
    });
  };
  while (!operations.empty() && !leaves_something(operations.back())) operations.pop_back();
  return operations;
}

}  // namespace sim
