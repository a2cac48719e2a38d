#include "runtime/cpu/widened_operands.h"

#include <algorithm>

#include "kernels/bf16_values.h"
#include "kernels/parallel.h"

namespace runtime {
namespace {

namespace cpu = kernels::cpu;
using kernels::cuda::bf16;
using kernels::cuda::f16;
using R = sim::Role;

std::int64_t elements_of(const BoundOperand& operand) {
  return operand.bytes * 8 / sim::bits(operand.dtype);
}

void widen(float* to, const BoundOperand& from) {
  cpu::parallel_ranges(elements_of(from), 1, [&](std::int64_t begin, std::int64_t end) {
    if (from.dtype == sim::DType::bf16)
      return cpu::widen(to + begin, reinterpret_cast<const bf16*>(from.data) + begin, end - begin);
    const f16* const narrow = reinterpret_cast<const f16*>(from.data);
    for (std::int64_t i = begin; i < end; ++i) to[i] = kernels::cuda::to_float(narrow[i]);
  });
}

void round_to(const BoundOperand& to, const float* from) {
  cpu::parallel_ranges(elements_of(to), 1, [&](std::int64_t begin, std::int64_t end) {
    if (to.dtype == sim::DType::bf16)
      return cpu::narrow(reinterpret_cast<bf16*>(to.data) + begin, from + begin, end - begin);
    f16* const narrow = reinterpret_cast<f16*>(to.data);
    for (std::int64_t i = begin; i < end; ++i) narrow[i] = kernels::cuda::to_f16(from[i]);
  });
}

// The master copy of the parameter that is operand i; null where it has none.
const BoundOperand* master_of(const BoundOperation& operation, std::size_t i) {
  const sim::Operands& roles = sim::info(operation.operation->kind).operands;
  if (roles.at(i).role != R::parameter) return nullptr;
  for (std::size_t j = i + 1; j < operation.operands.size() && roles.at(j).role != R::parameter; ++j)
    if (roles.at(j).role == R::master && operation.operands[j].data) return &operation.operands[j];
  return nullptr;
}

}  // namespace

// Operands that are the same memory have one copy.
WidenedOperands::Copy& WidenedOperands::copy_of(const BoundOperand& operand) {
  for (Copy& copy : copies_) {
    if (copy.of->data != operand.data) continue;
    if (elements_of(operand) > elements_of(*copy.of)) copy.of = &operand;
    return copy;
  }
  return copies_.emplace_back(Copy{&operand});
}

void WidenedOperands::run(const CpuKernelRow& row, const BoundOperation& operation,
                          const RunSettings& settings) {
  const std::span<const BoundOperand> given = operation.operands;
  const auto is_widened = [&](std::size_t i) {
    return given[i].data && sim::bits(given[i].dtype) == 16 && !row.takes(i, given[i].dtype);
  };
  copies_.clear();
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!is_widened(i)) continue;
    Copy& copy = copy_of(given[i]);
    const sim::Access access = sim::access_of(operation.operation->operands[i], operation.variables);
    copy.is_read = copy.is_read || access != sim::Access::write;
    copy.is_written = copy.is_written || access != sim::Access::read;
    // The optimizer moves the master copy, of which the parameter is the rounding.
    if (const BoundOperand* const master = master_of(operation, i)) {
      copy.wide = reinterpret_cast<float*>(master->data);
      copy.is_read = false;
    }
  }
  if (memory_.size() < copies_.size()) memory_.resize(copies_.size());
  for (std::size_t c = 0; c < copies_.size(); ++c) {
    Copy& copy = copies_[c];
    if (copy.wide) continue;
    const auto size = static_cast<std::size_t>(elements_of(*copy.of));
    if (memory_[c].size() < size) memory_[c].resize(size);
    copy.wide = memory_[c].data();
    if (copy.is_read) widen(copy.wide, *copy.of);
  }
  operands_.assign(given.begin(), given.end());
  for (std::size_t i = 0; i < given.size(); ++i)
    if (is_widened(i))
      operands_[i] = {reinterpret_cast<std::byte*>(copy_of(given[i]).wide),
                      elements_of(given[i]) * static_cast<std::int64_t>(sizeof(float)), sim::DType::fp32};
  BoundOperation wide = operation;
  wide.operands = operands_;
  row.kernel(Arguments(wide), settings);
  for (const Copy& copy : copies_)
    if (copy.is_written) round_to(*copy.of, copy.wide);
}

}  // namespace runtime
