#include "runtime/cpu/widened_operands.h"

#include <algorithm>

#include "kernels/bf16_values.h"
#include "kernels/fp8.h"
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

// Returns what is left to multiply the elements by: bf16 holds a tensor in fp8 without its scale.
float widen_fp8(std::byte* to, sim::DType wide, const BoundOperand& from, const Fp8Scales::Tensor& tensor) {
  const auto* const codes = reinterpret_cast<const std::uint8_t*>(from.data);
  const float scale = tensor.scale ? *tensor.scale : 1;  // operations timed alone read what nothing wrote
  if (wide == sim::DType::bf16) {
    cpu::widen_fp8(reinterpret_cast<bf16*>(to), codes, tensor.type, elements_of(from));
    return scale;
  }
  cpu::widen_fp8(reinterpret_cast<float*>(to), codes, tensor.type, scale, elements_of(from));
  return 1;
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

void WidenedOperands::run(const CpuKernelRow& row, const BoundOperation& operation, Fp8Scales& fp8,
                          const RunSettings& settings) {
  const std::span<const BoundOperand> given = operation.operands;
  const auto is_widened = [&](std::size_t i) { return given[i].data && !row.takes(i, given[i].dtype); };
  const std::int64_t wide_bytes = sim::bits(row.element) / 8;
  copies_.clear();
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!is_widened(i)) continue;
    Copy& copy = copy_of(given[i]);
    const sim::Access access = sim::access_of(operation.operation->operands[i], operation.variables);
    copy.is_read = copy.is_read || access != sim::Access::write;
    copy.is_written = copy.is_written || access != sim::Access::read;
    // The optimizer moves the master copy, of which the parameter is the rounding.
    if (const BoundOperand* const master = master_of(operation, i)) {
      copy.wide = master->data;
      copy.is_read = false;
    }
  }
  if (memory_.size() < copies_.size()) memory_.resize(copies_.size());
  for (std::size_t c = 0; c < copies_.size(); ++c) {
    Copy& copy = copies_[c];
    if (copy.wide) continue;
    const auto bytes = static_cast<std::size_t>(elements_of(*copy.of) * wide_bytes);
    const std::size_t floats = (bytes + sizeof(float) - 1) / sizeof(float);
    if (memory_[c].size() < floats) memory_[c].resize(floats);
    copy.wide = reinterpret_cast<std::byte*>(memory_[c].data());
    if (!copy.is_read) continue;
    if (copy.of->dtype == sim::DType::fp8)
      copy.scale = widen_fp8(copy.wide, row.element, *copy.of, fp8.at(copy.of->data));
    else
      widen(reinterpret_cast<float*>(copy.wide), *copy.of);
  }
  operands_.assign(given.begin(), given.end());
  scales_.assign(given.size(), 1);
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!is_widened(i)) continue;
    const Copy& copy = copy_of(given[i]);
    operands_[i] = {copy.wide, elements_of(given[i]) * wide_bytes, row.element};
    scales_[i] = copy.scale;
  }
  BoundOperation wide = operation;
  wide.operands = operands_;
  row.kernel(Arguments(wide, &fp8, scales_), settings);
  for (const Copy& copy : copies_)
    if (copy.is_written) round_to(*copy.of, reinterpret_cast<const float*>(copy.wide));
}

}  // namespace runtime
