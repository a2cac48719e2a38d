#include "sim/plan/early_stop.h"

#include <algorithm>

namespace sim {

std::vector<Operation> without_unread_end(const PlanBuilder& builder, std::vector<Operation> operations) {
  const auto leaves_something = [&](const Operation& op) {
    return std::any_of(op.operands.begin(), op.operands.end(), [&](const Operand& o) {
      return o.buffer != kNoBuffer && o.access != Access::read &&
             builder.buffer(o.buffer).buffer_class != BufferClass::scratch;
    });
  };
  while (!operations.empty() && !leaves_something(operations.back())) operations.pop_back();
  return operations;
}

LayerResults dropped_but_attention(PlanBuilder& builder, const std::string& block,
                                   const LayerResults& kept_results, LayerKind kind) {
  LayerResults results = add_layer_results(builder, block, scratch, {kind});
  results.attention = kept_results.attention;
  return with_core_of(results, kept_results);
}

std::vector<Operation> without_attention_core(std::vector<Operation> operations) {
  std::erase_if(operations, [](const Operation& op) {
    return op.kind == OpKind::attention_flash || op.kind == OpKind::attention_standard;
  });
  return operations;
}

}  // namespace sim
