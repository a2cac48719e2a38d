#include "runtime/cpu/kernel_table.h"

#include <algorithm>

namespace runtime {
namespace {

using R = sim::Role;

// Of 32 bits or more beside elements of any type.
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

bool CpuKernelRow::takes(const sim::Operation& operation, std::span<const sim::DType> operand_types) const {
  const sim::Operands& operands = sim::info(kind).operands;
  for (std::size_t i = 0; i < operation.operands.size(); ++i) {
    if (operation.operands[i].buffer == sim::kNoBuffer) continue;
    const sim::DType type = operand_types[i];
    const R role = operands.at(i).role;
    if (type == sim::DType::int32 || type == sim::DType::fp64) continue;
    ElementTypes allowed = types(is_wide(role) ? sim::DType::fp32 : element);
    for (const TypedRole& other : others)
      if (other.role == role) allowed = other.types;
    if ((allowed & types(type)) == 0) return false;
  }
  return operation.dtype == sim::DType::fp32 || operation.dtype == element;
}

std::vector<sim::DType> cpu_types(sim::OpKind kind) {
  std::vector<sim::DType> all;
  for (const CpuKernelRow* row : table()[static_cast<std::size_t>(kind)])
    if (std::find(all.begin(), all.end(), row->element) == all.end()) all.push_back(row->element);
  return all;
}

const CpuKernelRow* find_cpu_kernel(const sim::Operation& operation,
                                    std::span<const sim::DType> operand_types) {
  for (const CpuKernelRow* row : table()[static_cast<std::size_t>(operation.kind)])
    if (row->takes(operation, operand_types)) return row;
  return nullptr;
}

}  // namespace runtime
