#include "sim/cost/fused_operations.h"

#include <algorithm>

#include "sim/cost/work.h"
#include "sim/plan/neighbours.h"

namespace sim {
namespace {

const Buffer& buffer_of(const Plan& plan, const Operation& op, Role role) {
  return *plan.buffer(operand(op, role));
}

bool same_buffer(const Operation& a, Role of_a, const Operation& b, Role of_b) {
  return has(a, of_a) && operand(a, of_a).buffer == operand(b, of_b).buffer;
}

bool is_16_bit(DType dtype) {
  return bits(dtype) == 16;
}

// cuBLASLt's GELU epilogues: 16-bit results, in columns that are a multiple of 8.
constexpr std::int64_t kColumnMultiple = 8;

bool fits_gelu(const Plan& plan, const Operation& product, Role result, const Extent& columns) {
  return is_16_bit(product.dtype) && is_16_bit(buffer_of(plan, product, Role::weight).dtype) &&
         is_16_bit(buffer_of(plan, product, result).dtype) && columns.factor % kColumnMultiple == 0;
}

bool have_one_kernel(const Plan& plan, const Operation& first, const Operation& second) {
  switch (second.kind) {
    case OpKind::gelu:
      return first.kind == OpKind::matmul && same_buffer(first, Role::out, second, Role::inp) &&
             !has(first, Role::residual) && fits_gelu(plan, first, Role::out, first.dims.cols);
    case OpKind::gelu_backward:  // in the place of the gradient that it is made from
      return first.kind == OpKind::matmul_backward_input &&
             same_buffer(first, Role::dinp, second, Role::dinp) &&
             same_buffer(first, Role::dinp, second, Role::dout) &&
             operand(first, Role::dinp).access == Access::write &&
             fits_gelu(plan, first, Role::dinp, first.dims.inner);
    case OpKind::kv_append:  // at the positions that rotation has
      return first.kind == OpKind::rope && same_buffer(first, Role::qkv, second, Role::qkv) &&
             same_buffer(first, Role::positions, second, Role::positions);
    default:
      return false;
  }
}

}  // namespace

std::vector<std::vector<bool>> fusable_pairs(const Plan& plan, const Hardware& hardware) {
  if (!plan.scenario.implementation.runs_here || hardware.is_cpu) return {};
  const auto may_be_fused = [&](const Block& block, std::size_t i) {
    return have_one_kernel(plan, block.operations[i], block.operations[i + 1]);
  };
  const bool any = std::any_of(plan.blocks.begin(), plan.blocks.end(), [&](const Block& block) {
    for (std::size_t i = 0; i + 1 < block.operations.size(); ++i)
      if (may_be_fused(block, i)) return true;
    return false;
  });
  if (!any) return {};  // most plans: who follows whom takes longer to find
  std::vector<std::vector<bool>> pairs = always_followed(plan);
  for (std::size_t b = 0; b < plan.blocks.size(); ++b)
    for (std::size_t i = 0; i < pairs[b].size(); ++i)
      pairs[b][i] = pairs[b][i] && may_be_fused(plan.blocks[b], i);
  return pairs;
}

bool is_one_kernel(const Operation& first, const Variables& v) {
  return first.kind != OpKind::matmul || first.dtype != DType::bf16 ||
         first.dims.rows.value(bound_to(first, v)) > 1;
}

Bytes epilogue_traffic(const Plan& plan, const Operation& second, const Variables& of_action) {
  const Variables v = bound_to(second, of_action);
  switch (second.kind) {
    case OpKind::gelu:  // its result
      return buffer_of(plan, second, Role::out).bytes(v);
    case OpKind::gelu_backward:  // what forward put in
      return buffer_of(plan, second, Role::inp).bytes(v);
    case OpKind::kv_append: {  // all but the keys, which have just been rotated
      const std::int64_t keys = v.batch * v.query_length * second.dims.kv_heads * second.dims.head_dim;
      return work_of(plan, second, of_action).memory() -
             Bytes{keys * bits(buffer_of(plan, second, Role::qkv).dtype) / 8};
    }
    default:
      return work_of(plan, second, of_action).memory();
  }
}

}  // namespace sim
