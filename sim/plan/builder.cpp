#include "sim/plan/builder.h"

namespace sim {
namespace {

// Narrower types than 16 bits are types of arithmetic: what is stored between operations stays bf16.
DType stored_type(DType t) {
  switch (t) {
    case DType::fp32:
    case DType::tf32:
    case DType::fp64:
    case DType::int32:
      return DType::fp32;
    case DType::fp16:
      return DType::fp16;
    case DType::bf16:
    case DType::fp8:
    case DType::int8:
    case DType::int4:
      return DType::bf16;
  }
  return DType::fp32;
}

}  // namespace

ElementTypes element_types(const Scenario& scenario) {
  const DType stored = stored_type(scenario.workload.dtype);
  const bool mixed = stored != DType::fp32;
  return {.product = scenario.workload.dtype,
          .stored = stored,
          .gradient = mixed ? scenario.implementation.gradient_dtype : DType::fp32,
          .statistic = DType::fp32,
          .master = mixed && scenario.implementation.master_weights};
}

PlanBuilder::PlanBuilder(const Scenario& scenario) : types_(element_types(scenario)) {
  plan_.scenario = scenario;
  plan_.ranks = scenario.strategy.devices();
}

BufferId PlanBuilder::add(Buffer buffer) {
  plan_.buffers.push_back(std::move(buffer));
  return static_cast<BufferId>(plan_.buffers.size()) - 1;
}

BufferId PlanBuilder::add_kept(const std::string& name, DType dtype, std::vector<Extent> shape) {
  return add({.name = name,
              .buffer_class = BufferClass::activation,
              .dtype = dtype,
              .shape = std::move(shape),
              .per_layer = true,
              .per_micro_batch = true});
}

BufferId PlanBuilder::add_scratch(const std::string& block, const std::string& name, DType dtype,
                                  std::vector<Extent> shape) {
  return add({.name = block + "." + name,
              .buffer_class = BufferClass::scratch,
              .dtype = dtype,
              .shape = std::move(shape)});
}

BufferId PlanBuilder::add_input(std::string_view name, DType dtype, std::vector<Extent> shape,
                                bool per_micro_batch) {
  return add({.name = std::string(name),
              .buffer_class = BufferClass::input,
              .dtype = dtype,
              .shape = std::move(shape),
              .lifetime = Lifetime::plan,
              .per_micro_batch = per_micro_batch});
}

BlockId PlanBuilder::add(Block block) {
  plan_.blocks.push_back(std::move(block));
  return static_cast<BlockId>(plan_.blocks.size()) - 1;
}

}  // namespace sim
