// What all functions that write plans have in common: operations, lists of them, activations and views.
// Included by .cpp files only.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "sim/plan/builder.h"

namespace sim {

inline Operation operation(std::string id, OpKind kind, DType dtype, const Dims& dims,
                           std::vector<Operand> operands) {
  return {.id = std::move(id), .kind = kind, .dtype = dtype, .dims = dims, .operands = std::move(operands)};
}

// Between the ranks of a group of the plan.
inline Operation collective(std::string id, OpKind kind, DType dtype, std::int32_t group,
                            std::vector<Operand> operands = {}) {
  return {.id = std::move(id), .kind = kind, .dtype = dtype, .operands = std::move(operands), .group = group};
}

inline void append(std::vector<Operation>& to, std::vector<Operation> more) {
  for (Operation& op : more) to.push_back(std::move(op));
}

// Beside kept() and scratch() (decoder.h): an instance for each micro-batch, of no layer.
inline BufferId activation(PlanBuilder& b, const std::string&, const std::string& name, DType dtype,
                           const Shape& shape) {
  return b.add({.name = name,
                .buffer_class = BufferClass::activation,
                .dtype = dtype,
                .shape = shape,
                .per_micro_batch = true});
}

// A part of another buffer, called after it: whole rows of it, or so many of their columns.
inline BufferId add_view(PlanBuilder& b, BufferId whole, const std::string& suffix, const Shape& shape) {
  Buffer part = b.buffer(whole);
  part.name += suffix;
  part.shape = shape;
  part.view_of = whole;
  return b.add(std::move(part));
}
inline BufferId add_column_view(PlanBuilder& b, BufferId whole, const std::string& suffix, std::int64_t first,
                                std::int64_t cols) {
  Buffer part = b.buffer(whole);
  part.name += suffix;
  part.row_width = part.shape.back().factor;
  part.first_column = first;
  part.shape = {part.shape.front(), cols};
  part.view_of = whole;
  return b.add(std::move(part));
}
// Where a buffer's memory is: the buffer that it is a view of, or itself.
inline BufferId storage(const PlanBuilder& b, BufferId buffer) {
  const BufferId whole = b.buffer(buffer).view_of;
  return whole == kNoBuffer ? buffer : whole;
}

inline OpKind activation_kind(Activation activation, Phase pass) {
  const bool backward = pass == Phase::backward;
  switch (activation) {
    case Activation::gelu:
      return backward ? OpKind::gelu_backward : OpKind::gelu;
    case Activation::relu:
      return backward ? OpKind::relu_backward : OpKind::relu;
    case Activation::squared_relu:
      return backward ? OpKind::squared_relu_backward : OpKind::squared_relu;
    case Activation::gelu_exact:
      return backward ? OpKind::gelu_exact_backward : OpKind::gelu_exact;
    case Activation::clamped_swiglu:
      return backward ? OpKind::clamped_swiglu_backward : OpKind::clamped_swiglu;
    case Activation::swiglu:
      return backward ? OpKind::swiglu_backward : OpKind::swiglu;
    case Activation::geglu:
      return backward ? OpKind::geglu_backward : OpKind::geglu;
  }
  return OpKind::gelu;
}

}  // namespace sim
