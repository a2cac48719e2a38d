#include "sim/plan/fp8.h"

#include <map>
#include <utility>

namespace sim {
namespace {

// Largest values of the two formats (OCP 8-bit floating point).
constexpr float kLargestE4m3 = 448, kLargestE5m2 = 57344;

}  // namespace

std::vector<Operation> with_conversions(PlanBuilder& b, const std::string& block,
                                        std::vector<Operation> operations) {
  if (b.types().product != DType::fp8 || b.scenario().workload.task != Task::train) return operations;
  if (b.scenario().implementation.kernels.quantisation != QuantisationProfile{}) return operations;
  std::map<std::pair<BufferId, std::int32_t>, BufferId> converted;
  std::vector<Operation> ops;
  for (Operation& op : operations) {
    if (op.place == Place::router && op.dtype == DType::fp8) op.dtype = b.types().wide_product;
    if (op.dtype == DType::fp8 && is_product(op.kind)) {
      const auto [left, right] = factors(op.kind);
      for (const Role factor : {left, right}) {
        Operand& o = op.operands[static_cast<std::size_t>(index_of(op.kind, factor))];
        const auto [it, added] = converted.try_emplace({o.buffer, o.layer_offset}, kNoBuffer);
        if (added) {
          const Buffer source = b.buffer(o.buffer);
          it->second = b.add_scratch(block, "fp8." + source.name, DType::fp8, source.shape);
          ops.push_back({.id = op.id + ".quantise_" + (factor == left ? "left" : "right"),
                         .kind = OpKind::quantise,
                         .dtype = b.types().statistic,
                         .operands = {writes(it->second), reads(o.buffer, o.layer_offset)},
                         .scalar = factor == Role::dout ? kLargestE5m2 : kLargestE4m3});
        }
        o = reads(it->second);
      }
    }
    ops.push_back(std::move(op));
    // A tensor that is written again has to be converted again.
    for (const Operand& o : ops.back().operands)
      if (o.access != Access::read) converted.erase({o.buffer, o.layer_offset});
  }
  return ops;
}

}  // namespace sim
