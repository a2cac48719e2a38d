// An operation of a plan as the CPU's kernels take it: operands by the parts that they play
// (sim/plan/kinds.cpp).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/activation.h"
#include "kernels/causal_conv.h"
#include "kernels/cuda/types.h"
#include "kernels/elementwise.h"
#include "kernels/gated_norm.h"
#include "kernels/grouped_matmul.h"
#include "kernels/kv_cache.h"
#include "kernels/latent_attention.h"
#include "kernels/matmul.h"
#include "kernels/permute.h"
#include "kernels/qk_norm.h"
#include "kernels/quantised.h"
#include "kernels/route.h"
#include "kernels/selective_scan.h"
#include "runtime/fp8_scales.h"
#include "runtime/frozen_weight.h"
#include "runtime/operation_view.h"

namespace runtime {

// `group` and `minima` are for types without groups of their own.
inline kernels::QuantisedFormat quantised_format(sim::DType type, std::int64_t group, bool minima) {
  const int bits = static_cast<int>(sim::bits(type));
  if (const auto blocks = sim::stored_blocks(type)) return {bits, blocks->group, blocks->minima, true};
  return {bits, group, minima};
}

class Arguments : public OperationView {
 public:
  // `fp8_scales`: the device's, for what writes tensors in fp8. `operand_scales`: parallel to the operands,
  // where some were widened from fp8 without their scales.
  explicit Arguments(const BoundOperation& operation, Fp8Scales* fp8_scales = nullptr,
                     std::span<const float> operand_scales = {})
      : OperationView(operation), fp8(fp8_scales), scales_(operand_scales) {}

  Fp8Scales* const fp8;
  // What the operand's elements are multiplied by.
  float scale(sim::Role role) const {
    const int i = sim::index_of(bound().operation->kind, role);
    return scales_.empty() ? 1 : scales_[static_cast<std::size_t>(i)];
  }

  // Its elements.
  std::int64_t count(std::size_t operand) const {
    const BoundOperand& o = bound().operands[operand];
    return o.bytes * 8 / sim::bits(o.dtype);
  }
  // The weight stored in fewer than 16 bits, with rows of `columns` columns.
  kernels::QuantisedWeight quantised(std::int64_t columns) const {
    return {as<std::byte>(sim::Role::weight), as<std::byte>(sim::Role::weight_scales),
            quantised_format(dtype(sim::Role::weight), columns / bound().operation->dims.scale_groups,
                             dtype(sim::Role::weight_scales) == sim::DType::fp32)};
  }
  // The frozen weight that becomes R::out.
  kernels::FrozenWeight frozen() const {
    const auto count_of = [this](sim::Role role) {
      return count(static_cast<std::size_t>(sim::index_of(bound().operation->kind, role)));
    };
    kernels::FrozenWeight weight = frozen_weight(dtype(sim::Role::weight), count_of(sim::Role::out),
                                                 dtype(sim::Role::scale1), count_of(sim::Role::scale1));
    weight.codes = as<std::byte>(sim::Role::weight);
    weight.scales = as<std::byte>(sim::Role::scale1);
    weight.scales_of_scales = f32(sim::Role::scale2);
    return weight;
  }
  kernels::cuda::bf16* b16(sim::Role role) const { return as<kernels::cuda::bf16>(role); }
  kernels::cuda::bf16* b16(std::size_t operand) const { return as<kernels::cuda::bf16>(operand); }
  std::int64_t bytes(std::size_t operand) const { return bound().operands[operand].bytes; }
  sim::DType dtype(sim::Role role) const { return find(role)->dtype; }

  // Includes the sinks if they are fp32. Kernels for bf16 sinks take them as an argument of their own.
  kernels::AttentionShape attention() const {
    kernels::AttentionShape s = OperationView::attention();
    if (const BoundOperand* const sinks = find(sim::Role::sinks); sinks && sinks->dtype == sim::DType::fp32)
      s.sinks = f32(sim::Role::sinks);
    return s;
  }
  kernels::MatmulShape matmul() const { return {rows(), cols(), inner()}; }
  sim::Place place() const { return bound().operation->place; }
  std::int64_t row_width(std::size_t operand) const { return bound().operands[operand].row_width; }
  // Rows of `width` elements, one after the other or columns of wider ones.
  kernels::cpu::StridedRows<float> strided(sim::Role role, std::int64_t width) const {
    const BoundOperand* const operand = find(role);
    return {f32(role), operand && operand->row_width > 0 ? operand->row_width : width};
  }
  kernels::cpu::StridedRows<const float> strided_read(sim::Role role, std::int64_t width) const {
    const kernels::cpu::StridedRows<float> rows = strided(role, width);
    return {rows.data, rows.stride};
  }

  kernels::cpu::LatentCache latent_cache() const {
    const CacheBlocks blocks = cache_blocks(sim::Role::cache);
    return {f32(sim::Role::cache), blocks.tokens, blocks.table, blocks.of_sequence};
  }
  kernels::cpu::Columns columns() const { return {cols(), inner(), bound().operation->dims.first_column}; }

  // Experts.
  kernels::RouteShape route() const {
    const sim::Dims& d = bound().operation->dims;
    return {rows(), d.experts, d.chosen, d.groups, d.chosen_groups};
  }
  kernels::RouteSettings routing() const {
    return {bound().operation->sigmoid, bound().operation->normalised, scalar()};
  }
  kernels::PermuteShape permutation() const {
    const sim::Dims& d = bound().operation->dims;
    return {rows(), cols(), d.experts, d.chosen, bound().operation->has_capacity ? inner() / d.experts : 0};
  }
  kernels::cpu::GroupedShape grouped() const { return {cols(), inner()}; }
  std::span<const std::int64_t> group_offsets() const { return bound().group_offsets; }
  bool has_capacity() const { return bound().operation->has_capacity; }
  std::int64_t grouped_count() const { return bound().operation->dims.groups; }
  kernels::cpu::RowWeights row_weights() const {
    return {f32(sim::Role::row_weights), bound().operation->place == sim::Place::shared_expert};
  }

  kernels::QkNormShape qk_norm() const {
    const sim::Dims& d = bound().operation->dims;
    const auto weights = static_cast<std::size_t>(sim::index_of(bound().operation->kind, sim::Role::weight));
    const bool all_heads = as<std::byte>(sim::Role::weight) && count(weights) != 2 * d.head_dim;
    return {batch() * query_length(), d.heads, d.kv_heads, d.head_dim, all_heads};
  }

  // A row of a state-space mixer's projection: the gate, the convolution's input, one time step per head.
  kernels::SelectiveScanShape scan() const {
    const sim::Dims& d = bound().operation->dims;
    return {batch(), query_length(), d.heads, d.head_dim, d.groups, d.states, d.scan_chunk};
  }
  kernels::CausalConvShape conv() const {
    return {batch(), query_length(), scan().columns(), bound().operation->dims.taps};
  }
  kernels::GatedNormShape gated_norm() const {
    return {batch() * query_length(), scan().inner(), bound().operation->dims.groups};
  }
  std::int64_t projected_columns() const { return scan().inner() + scan().columns() + scan().H; }
  float* convolved_part(sim::Role projected) const { return f32(projected) + scan().inner(); }
  float* time_part(sim::Role projected) const { return f32(projected) + scan().inner() + scan().columns(); }
  // Head weights hold the biases of time steps, then the logarithms of decays, then the skips: H of each.
  enum OfHeads { kTimeBias, kDecay, kSkip };
  float* of_heads(sim::Role heads, OfHeads which) const { return f32(heads) + which * scan().H; }
  kernels::ScanTimeSteps time_steps() const {
    return {time_part(sim::Role::projected), projected_columns(),
            of_heads(sim::Role::head_weights, kTimeBias), of_heads(sim::Role::head_weights, kDecay)};
  }
  kernels::cpu::KvCache kv_cache() const {
    const CacheBlocks blocks = cache_blocks(sim::Role::k_cache);
    return {as<void>(sim::Role::k_cache),
            as<void>(sim::Role::v_cache),
            blocks.tokens,
            blocks.table,
            blocks.of_sequence,
            f32(sim::Role::scales),
            find(sim::Role::k_cache)->dtype == sim::DType::bf16,
            find(sim::Role::k_cache)->dtype == sim::DType::int8};
  }

 private:
  std::span<const float> scales_;
};

}  // namespace runtime
