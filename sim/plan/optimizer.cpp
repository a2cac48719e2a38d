#include "sim/plan/optimizer.h"

#include <algorithm>
#include <initializer_list>

#include "sim/plan/writing.h"

namespace sim {
namespace {

constexpr std::int64_t kScaleBlock = 256;  // values that share a scale: bitsandbytes, from 0.45 on

std::int64_t elements_of(const Shape& shape) {
  std::int64_t n = 1;
  for (const Extent& e : shape) n *= e.factor;
  return n;
}

bool is_matrix(const Shape& shape) {
  return shape.size() >= 2;
}

// Muon is for the matrices of layers. AdamW updates embedding, head, norms and biases (Jordan et al. 2024).
bool is_orthogonal(const PlanBuilder& b, const Tensor& t) {
  return b.scenario().workload.optimizer == Optimizer::muon && t.moment2 == kNoBuffer;
}

// The tensors of an update, on the device or on the host. With a master copy the parameter is only written.
struct Updated {
  Operand parameter, gradient, master;
};
Updated updated(const Tensor& t) {
  const bool on_host = t.host_gradient != kNoBuffer;
  const BufferId parameter = on_host ? t.host_parameter : t.parameter_shard;
  const BufferId master = parameter == t.master ? kNoBuffer : t.master;
  return {master == kNoBuffer ? updates(parameter) : writes(parameter),
          reads(on_host ? t.host_gradient : t.gradient_shard), updates(master)};
}

OpKind kind_of(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::adamw:
    case Optimizer::muon:
      return OpKind::adamw;
    case Optimizer::adamw_8bit:
      return OpKind::adamw_8bit;
    case Optimizer::adafactor:
      return OpKind::adafactor;
    case Optimizer::sgd:
      return OpKind::sgd;
    case Optimizer::lion:
      return OpKind::lion;
  }
  return OpKind::adamw;
}

void append_operands(OpKind kind, const Tensor& t, std::vector<Operand>& operands) {
  const auto [parameter, gradient, master] = updated(t);
  const auto append = [&](std::initializer_list<Operand> of_tensor) {
    operands.insert(operands.end(), of_tensor);
  };
  switch (kind) {
    case OpKind::adamw_8bit:
      return append({parameter, gradient, updates(t.moment1), updates(t.moment2), updates(t.moment1_scale),
                     updates(t.moment2_scale), master});
    case OpKind::adafactor:  // vectors have the whole second moment
      return append({parameter, gradient, updates(t.moment_rows != kNoBuffer ? t.moment_rows : t.moment2),
                     updates(t.moment_columns), master});
    case OpKind::sgd:
    case OpKind::lion:
      return append({parameter, gradient, updates(t.moment1), master});
    default:
      return append({parameter, gradient, updates(t.moment1), updates(t.moment2), master});
  }
}

// Momentum, then five Newton-Schulz iterations on each matrix, then the step.
std::vector<Operation> muon_operations(PlanBuilder& b, const std::string& block,
                                       const std::vector<Tensor>& matrices, BufferId norm) {
  const DType type = b.types().product == DType::fp8 ? b.types().stored : b.types().product;
  Operation momentum =
      operation("optimizer.muon.momentum", OpKind::muon_momentum, DType::fp32, {}, {reads(norm)});
  Operation apply{.id = "optimizer.muon.apply",
                  .kind = OpKind::apply_update,
                  .dtype = DType::fp32,
                  .operands = {reads(norm)},
                  .decay = true};
  std::vector<Operation> products;
  for (const Tensor& t : matrices) {
    const Buffer& parameter = b.buffer(t.parameter);
    const Shape shape = parameter.shape;
    const std::string name = parameter.name;
    const BufferId update = b.add_scratch(block, name + ".update", b.types().stored, shape);
    momentum.operands.insert(momentum.operands.end(),
                             {writes(update), reads(t.gradient_shard), updates(t.moment1)});
    apply.operands.insert(apply.operands.end(), {updated(t).parameter, reads(update), updates(t.master)});
    const std::size_t last = shape.size() - 1;
    products.push_back(
        operation("optimizer.muon.orthogonalise." + name, OpKind::orthogonalise, type,
                  {.rows = shape[last - 1], .cols = shape[last], .groups = last == 2 ? shape[0].factor : 1},
                  {updates(update)}));
  }
  std::vector<Operation> ops{std::move(momentum)};
  append(ops, std::move(products));
  ops.push_back(std::move(apply));
  return ops;
}

}  // namespace

std::vector<OptimizerState> optimizer_states(Optimizer optimizer, const Shape& shape, bool per_layer) {
  const OptimizerState moment1{&Tensor::moment1, "moment1.", DType::fp32, shape};
  const OptimizerState moment2{&Tensor::moment2, "moment2.", DType::fp32, shape};
  switch (optimizer) {
    case Optimizer::adamw:
      return {moment1, moment2};
    case Optimizer::adamw_8bit: {
      const Shape scales{(elements_of(shape) + kScaleBlock - 1) / kScaleBlock};
      return {{&Tensor::moment1, "moment1.", DType::int8, shape},
              {&Tensor::moment2, "moment2.", DType::int8, shape},
              {&Tensor::moment1_scale, "scale1.", DType::fp32, scales},
              {&Tensor::moment2_scale, "scale2.", DType::fp32, scales}};
    }
    case Optimizer::adafactor: {
      if (!is_matrix(shape)) return {moment2};
      const std::int64_t columns = shape.back().factor, rows = shape[shape.size() - 2].factor;
      const std::int64_t matrices = elements_of(shape) / (rows * columns);
      return {{&Tensor::moment_rows, "moment_rows.", DType::fp32, {matrices * rows}},
              {&Tensor::moment_columns, "moment_columns.", DType::fp32, {matrices * columns}}};
    }
    case Optimizer::muon:
      if (per_layer && is_matrix(shape)) return {moment1};
      return {moment1, moment2};
    case Optimizer::sgd:
    case Optimizer::lion:
      return {moment1};
  }
  return {};
}

std::vector<Operation> optimizer_operations(PlanBuilder& b, const std::string& block,
                                            const std::vector<Tensor>& unit, BufferId norm) {
  const OpKind kind = kind_of(b.scenario().workload.optimizer);
  std::vector<Operation> ops;
  std::vector<Tensor> matrices;
  for (const Tensor& t : unit)
    if (is_orthogonal(b, t)) matrices.push_back(t);
  if (!matrices.empty()) ops = muon_operations(b, block, matrices, norm);
  // One operation for the tensors that decay and one for those that do not.
  for (const bool decay : {true, false}) {
    const auto is_updated = [&](const Tensor& t) { return t.decay == decay && !is_orthogonal(b, t); };
    if (std::ranges::none_of(unit, is_updated)) continue;
    Operation& op = ops.emplace_back(
        Operation{.id = "optimizer." + std::string(name(kind)) + (decay ? ".decay" : ".no_decay"),
                  .kind = kind,
                  .dtype = DType::fp32,
                  .operands = {},
                  .decay = decay});
    op.operands.reserve(1 + unit.size() * info(kind).operands.repeated);
    op.operands.push_back(reads(norm));
    for (const Tensor& t : unit)
      if (is_updated(t)) append_operands(kind, t, op.operands);
  }
  return ops;
}

}  // namespace sim
