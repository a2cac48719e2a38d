#include "sim/cost/side_passes.h"

namespace sim {
namespace {

// The operand that KernelProfile::side_passes counts: the gradient that the product reads if it is a product
// for weights' gradients, else the result.
const Operand& passed_over(const Operation& op) {
  return info(op.kind).direction == Direction::weight_gradient ? operand(op, Role::dout) : op.operands[0];
}

double listed_passes(const Plan& plan, const Operation& op, const Variables& v) {
  const auto& passes = plan.scenario.implementation.kernels.side_passes;
  const auto found = passes.find(op.id);
  if (found == passes.end()) return 0;
  // Sums of bias gradients exist only where biases do.
  const bool has_none = op.kind == OpKind::matmul_backward_weight && !has(op, Role::dbias);
  const Buffer* const buffer = plan.buffer(passed_over(op));
  return has_none || !buffer ? 0 : found->second * static_cast<double>(buffer->bytes(v).value);
}

// Operands of fp8 products are quantised: the input and the weight before the forward product, the incoming
// gradient before the two of backward. These use the transposes that were made at the same time.
double quantised(const Plan& plan, const Operation& op, const Variables& v) {
  if (op.dtype != DType::fp8) return 0;
  if (!is_product(op.kind)) return 0;
  const auto [first, second] = factors(op.kind);
  // Data that lies in memory as fp8 was converted by an operation of its own.
  const Buffer* const left = plan.buffer(operand(op, first));
  if (left && left->dtype == DType::fp8) return 0;
  const QuantisationProfile& q = plan.scenario.implementation.kernels.quantisation;
  if (info(op.kind).direction == Direction::forward)
    return q.input_bytes * plan.elements_of(op, first, v) + q.weight_bytes * plan.elements_of(op, second, v);
  if (info(op.kind).direction == Direction::input_gradient)
    return q.gradient_bytes * plan.elements_of(op, first, v);
  return 0;
}

}  // namespace

double recomputed_share(const Plan& plan, const Operation& op) {
  const Scenario& s = plan.scenario;
  const bool is_full = s.strategy.recompute == Recompute::full || s.strategy.recompute == Recompute::sqrt;
  if (is_full) return s.implementation.recomputed_layers;
  if (s.strategy.recompute != Recompute::operations || !s.implementation.selective_by_operation) return 1;
  // The order is queries, keys, values, output, gate, up, down: keys, output and up are repeated.
  const Model& m = s.model;
  if (op.place == Place::query_key_value)
    return static_cast<double>(m.num_key_value_heads) /
           static_cast<double>(m.num_attention_heads + 2 * m.num_key_value_heads);
  if (op.place == Place::gate_up) return 0.5;
  return 1;
}

double side_bytes(const Plan& plan, const Operation& op, const Variables& v) {
  return listed_passes(plan, op, v) + quantised(plan, op, v);
}

}  // namespace sim
