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

bool takes_widened(const CpuKernelRow& row, const sim::Operation& operation,
                   std::span<const sim::DType> operand_types) {
  if (row.element != sim::DType::fp32 || sim::bits(operation.dtype) < 16) return false;
  for (std::size_t i = 0; i < operation.operands.size(); ++i)
    if (operation.operands[i].buffer != sim::kNoBuffer && !row.takes(i, operand_types[i]) &&
        (sim::bits(operand_types[i]) != 16 || !row.takes(i, sim::DType::fp32)))
      return false;
  return true;
}

}  // namespace

ChosenKernel choose_cpu_kernel(const sim::Operation& operation, std::span<const sim::DType> operand_types) {
  const Rows& rows = table()[static_cast<std::size_t>(operation.kind)];
  for (const CpuKernelRow* row : rows)
    if (row->takes(operation, operand_types) && (row->element == sim::DType::fp32 || !needs_fp32(operation)))
      return {row, false};
  for (const CpuKernelRow* row : rows)
    if (takes_widened(*row, operation, operand_types)) return {row, true};
  return {};
}

std::vector<sim::DType> cpu_types(sim::OpKind kind) {
  std::vector<sim::DType> all;
  for (const CpuKernelRow* row : table()[static_cast<std::size_t>(kind)])
    if (std::find(all.begin(), all.end(), row->element) == all.end()) all.push_back(row->element);
  return all;
}

}  // namespace runtime
