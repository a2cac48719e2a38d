// The CPU's kernels by kind of operation and by the types of its operands. To add one: a row in its family's
// file.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/cpu/arguments.h"
#include "runtime/device.h"

namespace runtime {

using CpuKernel = void (*)(const Arguments&, const RunSettings&);

// A set of types.
using ElementTypes = std::uint32_t;
constexpr ElementTypes types(auto... type) {
  return ((ElementTypes{1} << static_cast<unsigned>(type)) | ...);
}
// The types of weights that kernels/quantised.h multiplies.
inline constexpr std::array kCodedTypes = {sim::DType::int8, sim::DType::int5, sim::DType::int4,
                                           sim::DType::q6_k, sim::DType::q5_k, sim::DType::q4_k,
                                           sim::DType::q3_k, sim::DType::q2_k};
inline constexpr ElementTypes kCodes = [] {
  ElementTypes all = 0;
  for (const sim::DType type : kCodedTypes) all |= types(type);
  return all;
}();
// The types of their scales: with a minimum in the same 32 bits, alone, and as bytes of blocks.
inline constexpr ElementTypes kScalesOfCodes = types(sim::DType::fp32, sim::DType::fp16, sim::DType::int8);

// A role whose operand may be of other types than those of the other roles; without types it must be absent.
struct TypedRole {
  sim::Role role = sim::Role::none;
  ElementTypes types = 0;
};

// A kernel and the types that it takes. All operands are of type `element`, with two exceptions: the roles in
// `others`, and what plans always keep in 32 bits or more (token ids, positions, and the sums and states of
// norms, losses and the optimizer). A kind may have several rows.
struct CpuKernelRow {
  sim::OpKind kind;
  CpuKernel kernel;
  sim::DType element = sim::DType::fp32;
  std::array<TypedRole, 3> others{};
  bool columns = false;  // rows of its operands may be columns of wider ones (BoundOperand::row_width)
  bool scales = false;   // multiplies by its factors' scales (Arguments::scale)

  // `types` parallel to the operation's operands; absent ones may have any.
  bool takes(const sim::Operation& operation, std::span<const sim::DType> operand_types) const;
  bool takes(std::size_t operand, sim::DType type) const;
};

std::span<const CpuKernelRow> embedding_kernels();
std::span<const CpuKernelRow> norm_kernels();
std::span<const CpuKernelRow> product_kernels();
std::span<const CpuKernelRow> expert_kernels();
std::span<const CpuKernelRow> attention_kernels();
std::span<const CpuKernelRow> state_space_kernels();
std::span<const CpuKernelRow> elementwise_kernels();
std::span<const CpuKernelRow> loss_kernels();
std::span<const CpuKernelRow> optimizer_kernels();

// A kernel for the operation, and whether operands are widened to its type for it (widened_operands.h): those
// of 16 bits to fp32; those of products in fp8 to bf16, or, where no kernel in bf16 takes the others, to
// fp32. `row` is null where the CPU has no kernel.
struct ChosenKernel {
  const CpuKernelRow* row = nullptr;
  bool widens = false;
};
ChosenKernel choose_cpu_kernel(const sim::Operation& operation, std::span<const sim::DType> operand_types);

// Types of elements that the kind has kernels of its own for; empty where it has none.
std::vector<sim::DType> cpu_types(sim::OpKind kind);

}  // namespace runtime
