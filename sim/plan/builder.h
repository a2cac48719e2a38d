// What the functions that write plans share: short names for operands and the scenario's element types.
#pragma once
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "sim/plan/plan.h"

namespace sim {

inline Operand reads(BufferId b, std::int32_t layer_offset = 0) {
  return {b, Access::read, layer_offset};
}
inline Operand writes(BufferId b, std::int32_t layer_offset = 0) {
  return {b, Access::write, layer_offset};
}
inline Operand updates(BufferId b, std::int32_t layer_offset = 0) {
  return {b, Access::update, layer_offset};
}

// Which types a scenario's tensors have.
struct ElementTypes {
  DType product;    // arithmetic of matrix products and attention
  DType stored;     // parameters, activations, KV cache
  DType gradient;   // of parameters
  DType statistic;  // norms' mean and rstd, log-sum-exp, logits; arithmetic of everything that is no product
  bool master;      // an fp32 copy of the parameters for the optimizer
};
ElementTypes element_types(const Scenario& scenario);

inline bool uses_dropout(const Scenario& s) {
  return s.workload.task == Task::train && s.implementation.dropout;
}
// The projections into the residual stream add it themselves: possible where nothing stands between.
inline bool fuses_residual(const Scenario& s) {
  return s.implementation.fused_residual && !uses_dropout(s);
}

class PlanBuilder {
 public:
  explicit PlanBuilder(const Scenario& scenario);

  const Scenario& scenario() const { return plan_.scenario; }
  const Model& model() const { return plan_.scenario.model; }
  const ElementTypes& types() const { return types_; }

  BufferId add(Buffer buffer);
  // Kept from forward for backward: an instance for each layer and micro-batch.
  BufferId add_kept(const std::string& name, DType dtype, std::vector<Extent> shape);
  // Lives inside one action of one block: named after the block.
  BufferId add_scratch(const std::string& block, const std::string& name, DType dtype,
                       std::vector<Extent> shape);
  // What the caller of a program fills or reads, there all the time.
  BufferId add_input(std::string_view name, DType dtype, std::vector<Extent> shape,
                     bool per_micro_batch = false);

  BlockId add(Block block);
  Plan take() { return std::move(plan_); }

 private:
  Plan plan_;
  ElementTypes types_;
};

}  // namespace sim
