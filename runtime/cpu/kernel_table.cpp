#include "runtime/cpu/kernel_table.h"

#include <algorithm>

namespace runtime {
namespace {

using R = sim::Role;

// Roles that have 32 bits or more beside elements of any type.
bool is_wide(R role) {
  constexpr R kWide[] = {R::mean,          R::rstd,   R::lse,        R::part_lse,     R::table,   R::scales,
                         R::weight_scales, R::losses, R::statistics, R::moment1,      R::moment2, R::scale1,
                         R::scale2,        R::master, R::row_moment, R::column_moment};
  return std::find(std::begin(kWide), std::end(kWide), role) != std::end(kWide);
}

using Rows = std::vector<const CpuKernelRow*>;

// By kind.
const std::array<Rows, sim::kOpKinds>& table() {
  static const std::array<Rows, sim::kOpKinds> rows = [] {
    std::array<Rows, sim::kOpKinds> all;
    for (const auto& family :
         {embedding_kernels(), norm_kernels(), product_kernels(), expert_kernels(), attention_kernels(),
          state_space_kernels(), elementwise_kernels(), loss_kernels(), optimizer_kernels()})
      for (const CpuKernelRow& row : family) all[static_cast<std::size_t>(row.kind)].push_back(&row);
    return all;
  }();
  return rows;
}

}  // namespace

bool CpuKernelRow::takes(std::size_t operand, sim::DType type) const {
  if (type == sim::DType::int32 || type == sim::DType::fp64) return true;
  const R role = sim::info(kind).operands.at(operand).role;
  ElementTypes allowed = types(is_wide(role) ? sim::DType::fp32 : element);
  for (const TypedRole& other : others)
    if (other.role == role) allowed = other.types;
  return (allowed & types(type)) != 0;
}

bool CpuKernelRow::takes(const sim::Operation& operation, std::span<const sim::DType> operand_types) const {
  for (std::size_t i = 0; i < operation.operands.size(); ++i)
    if (operation.operands[i].buffer != sim::kNoBuffer && !takes(i, operand_types[i])) return false;
  return operation.dtype == sim::DType::fp32 || operation.dtype == element;
}

namespace {

// Only fp32 has ALiBi and attention to other ranks' keys; latent attention absorbs its up-projection only in
// fp32.
bool needs_fp32(const sim::Operation& operation) {
  return operation.dims.alibi_heads > 0 || sim::has(operation, R::all_kv) ||
         operation.place == sim::Place::absorbs_keys || operation.place == sim::Place::absorbs_values;
}

// Whether a product's factors are fp8 tensors. Weights that generation stores in fp8 are others: they have a
// scale a row.
bool multiplies_fp8(const sim::Operation& operation, std::span<const sim::DType> operand_types) {
  if (!sim::is_product(operation.kind) || sim::has(operation, R::weight_scales)) return false;
  const auto is_fp8 = [&](R factor) {
    return operand_types[static_cast<std::size_t>(sim::index_of(operation.kind, factor))] == sim::DType::fp8;
  };
  const auto [left, right] = sim::factors(operation.kind);
  return is_fp8(left) && is_fp8(right);
}

bool takes_widened(const CpuKernelRow& row, const sim::Operation& operation,
                   std::span<const sim::DType> operand_types) {
  const bool of_fp8 = operation.dtype == sim::DType::fp8;
  if (of_fp8 ? !multiplies_fp8(operation, operand_types) : sim::bits(operation.dtype) < 16) return false;
  if (row.element != sim::DType::fp32 && !(of_fp8 && row.scales)) return false;
  for (std::size_t i = 0; i < operation.operands.size(); ++i) {
    if (operation.operands[i].buffer == sim::kNoBuffer || row.takes(i, operand_types[i])) continue;
    const bool widens = operand_types[i] == sim::DType::fp8
                            ? of_fp8
                            : sim::bits(operand_types[i]) == 16 && row.element == sim::DType::fp32;
    if (!widens || !row.takes(i, row.element)) return false;
  }
  return true;
}

}  // namespace

ChosenKernel choose_cpu_kernel(const sim::Operation& operation, std::span<const sim::DType> operand_types) {
  const Rows& rows = table()[static_cast<std::size_t>(operation.kind)];
  for (const CpuKernelRow* row : rows)
    if (row->takes(operation, operand_types) && (row->element == sim::DType::fp32 || !needs_fp32(operation)))
      return {row, false};
  for (const sim::DType wide : {sim::DType::bf16, sim::DType::fp32})
    for (const CpuKernelRow* row : rows)
      if (row->element == wide && takes_widened(*row, operation, operand_types)) return {row, true};
  return {};
}

std::vector<sim::DType> cpu_types(sim::OpKind kind) {
  std::vector<sim::DType> all;
  for (const CpuKernelRow* row : table()[static_cast<std::size_t>(kind)])
    if (std::find(all.begin(), all.end(), row->element) == all.end()) all.push_back(row->element);
  return all;
}

}  // namespace runtime
