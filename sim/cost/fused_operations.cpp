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

// cuBLASLt's GELU epilogues need 16-bit results, and a number of columns that is a multiple of 8.
constexpr std::int64_t kColumnMultiple = 8;

bool fits_gelu(const Plan& plan, const Operation& product, Role result, const Extent& columns) {
  return is_16_bit(product.dtype) && is_16_bit(buffer_of(plan, product, Role::weight).dtype) &&
         is_16_bit(buffer_of(plan, product, result).dtype) && columns.factor % kColumnMultiple == 0;
}

bool gives_gate_up(const Plan& plan, const Operation& product, const Operation& gate) {
  return product.kind == OpKind::matmul && same_buffer(product, Role::out, gate, Role::gate_up) &&
         !has(gate, Role::row_weights) && buffer_of(plan, product, Role::out).dtype == DType::bf16;
}

bool is_norm(const Operation& op) {
  return op.kind == OpKind::rmsnorm || op.kind == OpKind::layernorm;
}

// Whether `add` makes the sum that `norm` reads, where statistics are kept for a backward pass.
bool is_normed_sum(const Operation& add, const Operation& norm) {
  return add.kind == OpKind::add && is_norm(norm) && has(norm, Role::rstd) && has(add, Role::b) &&
         same_buffer(add, Role::out, norm, Role::inp);
}

bool may_have_one_kernel(const Plan& plan, const Operation& first, const Operation& second) {
  switch (second.kind) {
    case OpKind::rmsnorm:
    case OpKind::layernorm:
      return is_normed_sum(first, second);
    case OpKind::gelu:
      return first.kind == OpKind::matmul && same_buffer(first, Role::out, second, Role::inp);
    case OpKind::swiglu:
    case OpKind::geglu:
      return gives_gate_up(plan, first, second);
    case OpKind::matmul:  // reads a norm's result, where no statistics are kept for a backward pass
      return is_norm(first) && !has(first, Role::rstd) && has(first, Role::weight) &&
             bits(buffer_of(plan, second, Role::weight).dtype) >= 8 &&
             same_buffer(first, Role::out, second, Role::inp);
    case OpKind::gelu_backward:  // overwrites the gradient that it is made from
      return first.kind == OpKind::matmul_backward_input &&
             same_buffer(first, Role::dinp, second, Role::dinp) &&
             same_buffer(first, Role::dinp, second, Role::dout) &&
             operand(first, Role::dinp).access == Access::write &&
             fits_gelu(plan, first, Role::dinp, first.dims.inner);
    case OpKind::rope:
      return first.kind == OpKind::matmul && same_buffer(first, Role::out, second, Role::qkv);
    case OpKind::kv_append:  // at the same positions as the rotation
      return first.kind == OpKind::rope && same_buffer(first, Role::qkv, second, Role::qkv) &&
             same_buffer(first, Role::positions, second, Role::positions);
    default:
      return false;
  }
}

// Whether it is the kernel for one row of bf16, which reads its weights in whole vectors of 16 bytes.
bool is_one_row(const Plan& plan, const Operation& op, const Variables& v) {
  if (op.kind != OpKind::matmul || op.dtype != DType::bf16 || op.dims.rows.value(bound_to(op, v)) != 1)
    return false;
  const DType out = buffer_of(plan, op, Role::out).dtype;
  const std::int64_t in_vector = 128 / bits(buffer_of(plan, op, Role::weight).dtype);
  return op.dims.inner.factor % in_vector == 0 && (out == DType::bf16 || !has(op, Role::residual));
}

bool ends_one_row(const Plan& plan, const Operation& product, const Variables& v) {
  return is_one_row(plan, product, v) && buffer_of(plan, product, Role::out).dtype == DType::bf16;
}

// Tensor cores take rows of weights in slices: each lane of a warp takes four times 16 bytes.
bool in_whole_slices(std::int64_t weight_bits, std::int64_t inner) {
  return inner % (4 * 128 / weight_bits) == 0;
}

// Whether a product of a few rows (two or more, one token of each sequence) can run as the kernel that
// multiplies by tensor cores. It runs so where the kernel does more as well: norms the input, or opens gates
// (kernels/cuda/gemv.h says up to how many rows).
bool is_few_rows(const Plan& plan, const Operation& op, const Variables& v, std::int64_t most_rows) {
  if (op.kind != OpKind::matmul || op.dtype != DType::bf16 || v.query_length != 1 ||
      buffer_of(plan, op, Role::out).dtype != DType::bf16)
    return false;
  const std::int64_t rows = op.dims.rows.value(bound_to(op, v));
  const std::int64_t weight_bits = bits(buffer_of(plan, op, Role::weight).dtype);
  return weight_bits <= 16 && rows > 1 && rows <= most_rows &&
         in_whole_slices(weight_bits, op.dims.inner.factor);
}

bool norms_few_rows(const Plan& plan, const Operation& norm, const Operation& product, const Variables& v) {
  constexpr std::int64_t kMost = 32, kMostNarrow = 16;  // narrow: 8-bit weights
  const std::int64_t weight_bits = bits(buffer_of(plan, product, Role::weight).dtype);
  return norm.kind == OpKind::rmsnorm && weight_bits >= 8 &&
         is_few_rows(plan, product, v, weight_bits == 8 ? kMostNarrow : kMost);
}

bool opens_few_rows(const Plan& plan, const Operation& product, const Variables& v) {
  constexpr std::int64_t kMost = 64, kMostWide = 32;  // wide: int4 and bf16, in registers or from memory
  const bool byte = bits(buffer_of(plan, product, Role::weight).dtype) == 8;
  return is_few_rows(plan, product, v, byte ? kMost : kMostWide);
}

bool rotates_and_appends(const Plan& plan, const Block& block, const std::vector<bool>& pairs,
                         std::size_t rope) {
  if (!pairs[rope]) return false;
  const DType cache = buffer_of(plan, block.operations[rope + 1], Role::k_cache).dtype;
  return cache == DType::bf16 || cache == DType::fp8;
}

// Whether a product of few rows applies GELU itself. It does if it norms its input, or if its weights have
// fewer than 16 bits.
bool ends_few_rows(const Plan& plan, const Block& block, const std::vector<bool>& pairs, std::size_t product,
                   const Variables& v) {
  const Operation& op = block.operations[product];
  if (product > 0 && pairs[product - 1] && norms_few_rows(plan, block.operations[product - 1], op, v))
    return true;
  constexpr std::int64_t kMost = 64;
  return bits(buffer_of(plan, op, Role::weight).dtype) < 16 && is_few_rows(plan, op, v, kMost);
}

}  // namespace

std::vector<std::vector<bool>> fusable_pairs(const Plan& plan, const Hardware& hardware) {
  if (!plan.scenario.implementation.runs_here || hardware.is_cpu) return {};
  const auto may_be_fused = [&](const Block& block, std::size_t i) {
    return may_have_one_kernel(plan, block.operations[i], block.operations[i + 1]);
  };
  const bool any = std::ranges::any_of(plan.blocks, [&](const Block& block) {
    for (std::size_t i = 0; i + 1 < block.operations.size(); ++i)
      if (may_be_fused(block, i)) return true;
    return false;
  });
  if (!any) return {};  // true for most plans; finding who follows whom takes longer
  std::vector<std::vector<bool>> pairs = always_followed(plan);
  for (std::size_t b = 0; b < plan.blocks.size(); ++b)
    for (std::size_t i = 0; i < pairs[b].size(); ++i)
      pairs[b][i] = pairs[b][i] && may_be_fused(plan.blocks[b], i);
  return pairs;
}

std::size_t kernel_of(const Plan& plan, const Block& block, const std::vector<bool>& pairs, std::size_t index,
                      const Variables& v) {
  const std::vector<Operation>& ops = block.operations;
  const auto is_behind = [&](std::size_t i) { return i > 0 && pairs[i - 1]; };
  switch (ops[index].kind) {
    case OpKind::add:
      return pairs[index] && is_normed_sum(ops[index], ops[index + 1]) ? index + 1 : index;
    case OpKind::layernorm:
    case OpKind::rmsnorm:
      return pairs[index] && (is_one_row(plan, ops[index + 1], v) ||
                              norms_few_rows(plan, ops[index], ops[index + 1], v))
                 ? index + 1
                 : index;
    case OpKind::gelu:
      if (!is_behind(index)) return index;
      if (ends_few_rows(plan, block, pairs, index - 1, v)) return index - 1;
      if (is_one_row(plan, ops[index - 1], v))
        return ends_one_row(plan, ops[index - 1], v) ? index - 1 : index;
      return !has(ops[index - 1], Role::residual) &&
                     fits_gelu(plan, ops[index - 1], Role::out, ops[index - 1].dims.cols)
                 ? index - 1
                 : index;
    case OpKind::swiglu:
    case OpKind::geglu:
      return is_behind(index) &&
                     (ends_one_row(plan, ops[index - 1], v) || opens_few_rows(plan, ops[index - 1], v))
                 ? index - 1
                 : index;
    case OpKind::gelu_backward:
      return is_behind(index) ? index - 1 : index;
    case OpKind::rope:
      return is_behind(index) && ends_one_row(plan, ops[index - 1], v) &&
                     rotates_and_appends(plan, block, pairs, index)
                 ? index - 1
                 : index;
    case OpKind::kv_append:
      return is_behind(index) ? kernel_of(plan, block, pairs, index - 1, v) : index;
    default:
      return index;
  }
}

Bytes traffic_for_neighbours(const Plan& plan, const Block& block, const std::vector<bool>& pairs,
                             std::size_t main, const Variables& of_action) {
  const auto of = [&](std::size_t index) {
    const Operation& op = block.operations[index];
    const Variables v = bound_to(op, of_action);
    const auto bytes = [&](Role role) {
      return has(op, role) ? buffer_of(plan, op, role).bytes(v) : Bytes{};
    };
    switch (op.kind) {
      case OpKind::gelu:  // its result
      case OpKind::swiglu:
      case OpKind::geglu:
        return bytes(Role::out);
      case OpKind::gelu_backward:  // what forward put in
        return bytes(Role::inp);
      case OpKind::add:  // the norm already has the sum
        return work_of(plan, op, of_action).memory() - bytes(Role::out);
      case OpKind::layernorm:  // the product reads the norm's input instead of its result
      case OpKind::rmsnorm:
        return bytes(Role::weight) + bytes(Role::bias) + bytes(Role::out);
      case OpKind::rope: {  // only the angles: the product already has what is rotated
        const std::int64_t angles = v.batch * v.query_length * op.dims.head_dim;
        return Bytes{angles * bits(buffer_of(plan, op, Role::table).dtype) / 8};
      }
      case OpKind::kv_append: {  // all but the keys just rotated and, after a product, the values
        const bool of_product = kernel_of(plan, block, pairs, index, of_action) + 1 < index;
        const std::int64_t keys = v.batch * v.query_length * op.dims.kv_heads * op.dims.head_dim;
        return work_of(plan, op, of_action).memory() -
               Bytes{keys * (of_product ? 2 : 1) * bits(buffer_of(plan, op, Role::qkv).dtype) / 8};
      }
      default:
        return Bytes{};
    }
  };
  Bytes sum;
  const std::size_t first = main > 0 ? main - 1 : 0;
  for (std::size_t i = first; i < block.operations.size() && i <= main + 2; ++i)
    if (i != main && kernel_of(plan, block, pairs, i, of_action) == main) sum += of(i);
  return sum;
}

std::int64_t rows_that_read_stored(std::int64_t weight_bits, std::int64_t inner) {
  constexpr std::int64_t kByTensorCores = 64, kByOthers = 8;
  return in_whole_slices(weight_bits, inner) ? kByTensorCores : kByOthers;
}

}  // namespace sim
