#include "sim/plan/fp8.h"

#include <array>
#include <map>
#include <utility>

namespace sim {
namespace {

// Largest values of the two formats (OCP 8-bit floating point).
constexpr float kLargestE4m3 = 448, kLargestE5m2 = 57344;

// Products whose first factor is a gradient.
bool is_backward(OpKind kind) {
  return kind != OpKind::matmul && kind != OpKind::grouped_matmul;
}

// The operands that a product multiplies; none for other kinds.
std::array<std::size_t, 2> factors(OpKind kind) {
  switch (kind) {
    case OpKind::matmul:
    case OpKind::matmul_backward_input:
    case OpKind::grouped_matmul:
    case OpKind::grouped_matmul_backward_input:
      return {1, 2};
    case OpKind::matmul_backward_weight:
    case OpKind::grouped_matmul_backward_weight:
      return {2, 3};
    default:
      return {0, 0};
  }
}

}  // namespace

std::vector<Operation> with_conversions(PlanBuilder& b, const std::string& block,
                                        std::vector<Operation> operations) {
  if (b.types().product != DType::fp8 || b.scenario().workload.task != Task::train) return operations;
  if (b.scenario().implementation.kernels.quantisation != QuantisationProfile{}) return operations;
  std::map<std::pair<BufferId, std::int32_t>, BufferId> converted;
  std::vector<Operation> ops;
  for (Operation& op : operations) {
    if (op.id.starts_with("layer.router.") && op.dtype == DType::fp8) op.dtype = b.types().wide_product;
    const auto [first, second] = factors(op.kind);
    if (op.dtype == DType::fp8 && second > 0)
      for (const std::size_t i : {first, second}) {
        Operand& o = op.operands[i];
        const auto [it, added] = converted.try_emplace({o.buffer, o.layer_offset}, kNoBuffer);
        if (added) {
          const Buffer source = b.buffer(o.buffer);
          it->second = b.add_scratch(block, "fp8." + source.name, DType::fp8, source.shape);
          ops.push_back({.id = op.id + ".quantise_" + (i == first ? "left" : "right"),
                         .kind = OpKind::quantise,
                         .dtype = b.types().statistic,
                         .operands = {writes(it->second), reads(o.buffer, o.layer_offset)},
                         .scalar = i == first && is_backward(op.kind) ? kLargestE5m2 : kLargestE4m3});
        }
        o = reads(it->second);
      }
    ops.push_back(std::move(op));
    // What is written anew is another tensor.
    for (const Operand& o : ops.back().operands)
      if (o.access != Access::read) converted.erase({o.buffer, o.layer_offset});
  }
  return ops;
}

}  // namespace sim
