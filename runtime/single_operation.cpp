#include "runtime/single_operation.h"

#include "sim/plan/memory.h"

namespace runtime {

using sim::Access;
using sim::OpKind;
using sim::Shape;

sim::DType stored_type(sim::DType computing) {
  if (computing == sim::DType::tf32) return sim::DType::fp32;
  return computing == sim::DType::fp8 ? sim::DType::bf16 : computing;
}

std::vector<std::size_t> samples_of(const SingleOperation& single,
                                    const std::vector<sim::KernelSample>& samples) {
  const sim::KernelSample own =
      sim::kernel_shape(single.operation(), single.bound_variables(), single.work());
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const sim::KernelSample& sample = samples[i];
    if (sample.kind == own.kind && sample.dtype == own.dtype && sample.flops == own.flops &&
        sample.bytes == own.bytes && sample.rows == own.rows && sample.cols == own.cols)
      found.push_back(i);
  }
  return found;
}

SingleOperation& SingleOperation::computing_in(sim::DType dtype) {
  in(stored_type(dtype));
  if (sim::is_attention(operation_.kind) && dtype == sim::DType::tf32) operation_.dtype = dtype;
  if (!sim::is_product(operation_.kind)) return *this;
  operation_.dtype = dtype;
  if (dtype != sim::DType::fp8) return *this;
  const auto [first, second] = sim::factors(operation_.kind);
  for (const sim::Role factor : {first, second})
    plan_.buffers[static_cast<std::size_t>(sim::operand(operation_, factor).buffer)].dtype = dtype;
  return *this;
}

sim::Bytes operands_size(const SingleOperation& single) {
  sim::Bytes size;
  for (const sim::Operand& operand : single.operation().operands)
    if (operand.buffer != sim::kNoBuffer)
      size += sim::aligned(single.buffer(operand.buffer).bytes(single.bound_variables()));
  return size;
}

SingleOperation product(OpKind kind, std::int64_t M, std::int64_t N, std::int64_t K) {
  SingleOperation single(kind);
  single.variables(1, M, M).dims({.rows = M, .cols = N, .inner = K});
  switch (kind) {
    case OpKind::matmul:
      return single.add(Access::write, {M, N})
          .add(Access::read, {M, K})
          .add(Access::read, {N, K})
          .absent()
          .absent();
    case OpKind::matmul_backward_input:
      return single.add(Access::write, {M, K}).add(Access::read, {M, N}).add(Access::read, {N, K});
    default:  // as the first micro-batch of a step writes it; the later ones add to it
      return single.add(Access::write, {N, K}).absent().add(Access::read, {M, N}).add(Access::read, {M, K});
  }
}

namespace {

// The scales beside a weight in fewer than 16 bits: how many a row has, and their type.
struct StoredScales {
  std::int64_t of_row;
  sim::DType dtype;
};
StoredScales scales_of(sim::DType weights, std::int64_t K, std::int64_t group) {
  if (const auto blocks = sim::stored_blocks(weights)) return {blocks->scale_bytes(K), sim::DType::int8};
  return {group > 0 ? K / group : 1, sim::DType::fp32};
}

}  // namespace

SingleOperation product_of_stored(std::int64_t M, std::int64_t N, std::int64_t K, sim::DType weights,
                                  std::int64_t group) {
  const StoredScales scales = scales_of(weights, K, group);
  SingleOperation single(OpKind::matmul);
  return single.variables(1, M, M)
      .dims({.rows = M, .cols = N, .inner = K, .scale_groups = scales.of_row})
      .add(Access::write, {M, N})
      .add(Access::read, {M, K})
      .add(Access::read, {N, K}, weights)
      .absent()
      .absent()
      .add(Access::read, {N, scales.of_row}, scales.dtype);
}

SingleOperation grouped_product_of_stored(std::int64_t M, std::int64_t experts, std::int64_t N,
                                          std::int64_t K, sim::DType weights, std::int64_t group) {
  const StoredScales scales = scales_of(weights, K, group);
  SingleOperation single(OpKind::grouped_matmul);
  return single.variables(1, M, M)
      .has_capacity()
      .dims({.rows = M,
             .cols = N,
             .inner = K,
             .groups = experts,
             .experts = experts,
             .chosen = 1,
             .scale_groups = scales.of_row})
      .add(Access::write, {M, N})
      .add(Access::read, {M, K})
      .add(Access::read, {experts, N, K}, weights)
      .absent()
      .absent()
      .add(Access::read, {experts, N, scales.of_row}, scales.dtype);
}

SingleOperation grouped_product(OpKind kind, std::int64_t M, std::int64_t experts, std::int64_t N,
                                std::int64_t K) {
  SingleOperation single(kind);
  single.variables(1, M, M).dims(
      {.rows = M, .cols = N, .inner = K, .groups = experts, .experts = experts, .chosen = 1});
  single.has_capacity();
  switch (kind) {
    case OpKind::grouped_matmul:
      return single.add(Access::write, {M, N})
          .add(Access::read, {M, K})
          .add(Access::read, {experts, N, K})
          .absent()
          .absent();
    case OpKind::grouped_matmul_backward_input:
      return single.add(Access::write, {M, K})
          .add(Access::read, {M, N})
          .add(Access::read, {experts, N, K})
          .absent();
    default:
      return single.add(Access::update, {experts, N, K})
          .absent()
          .add(Access::read, {M, N})
          .add(Access::read, {M, K})
          .absent();
  }
}

SingleOperation norm(OpKind kind, std::int64_t R, std::int64_t C) {
  SingleOperation single(kind);
  single.variables(1, R, R).dims({.rows = R, .hidden = C});
  const bool layernorm = kind == OpKind::layernorm || kind == OpKind::layernorm_backward;
  if (kind == OpKind::layernorm || kind == OpKind::rmsnorm) {
    single.add(Access::write, {R, C});
    if (layernorm) single.add_f32(Access::write, {R});
    single.add_f32(Access::write, {R}).add(Access::read, {R, C}).add(Access::read, {C});
    if (layernorm) single.add(Access::read, {C});
    return single;
  }
  single.add(Access::update, {R, C}).add(Access::update, {C});
  if (layernorm) single.add(Access::update, {C});
  single.add(Access::read, {R, C}).add(Access::read, {R, C}).add(Access::read, {C});
  if (layernorm) single.add_f32(Access::read, {R});
  return single.add_f32(Access::read, {R});
}

SingleOperation elementwise(OpKind kind, std::int64_t R, std::int64_t F) {
  SingleOperation single(kind);
  single.variables(1, R, R).dims({.rows = R, .cols = F});
  switch (kind) {
    case OpKind::gelu:
      return single.add(Access::write, {R, F}).add(Access::read, {R, F});
    case OpKind::gelu_backward:
    case OpKind::add:
      return single.add(Access::write, {R, F}).add(Access::read, {R, F}).add(Access::read, {R, F});
    case OpKind::swiglu:
      return single.add(Access::write, {R, F}).add(Access::read, {R, 2 * F});
    default:  // swiglu_backward
      return single.add(Access::write, {R, 2 * F}).add(Access::read, {R, F}).add(Access::read, {R, 2 * F});
  }
}

SingleOperation copy(std::int64_t R, std::int64_t C) {
  SingleOperation single(OpKind::add);
  return single.variables(1, R, R)
      .dims({.rows = R, .cols = C})
      .add(Access::write, {R, C})
      .add(Access::read, {R, C});
}

SingleOperation attention(OpKind kind, std::int64_t B, std::int64_t T, Heads h) {
  SingleOperation single(kind);
  single.variables(B, T, T).dims({.heads = h.heads, .kv_heads = h.kv_heads, .head_dim = h.head_dim});
  const std::int64_t R = B * T;
  switch (kind) {
    case OpKind::attention_flash:
      return single.add(Access::write, {R, h.query()})
          .add_f32(Access::write, {B, h.heads, T})
          .add(Access::read, {R, h.packed()});
    case OpKind::attention_flash_backward:
      return single.add(Access::write, {R, h.packed()})
          .add(Access::read, {R, h.query()})
          .add(Access::read, {R, h.packed()})
          .add(Access::read, {R, h.query()})
          .add_f32(Access::read, {B, h.heads, T});
    case OpKind::attention_standard:
      return single.add(Access::write, {R, h.query()})
          .add(Access::write, {B, h.heads, T, T})
          .add(Access::read, {R, h.packed()})
          .absent()
          .absent();
    case OpKind::attention_standard_backward:
      return single.add(Access::write, {R, h.packed()})
          .add(Access::write, {B, h.heads, T, T})
          .add(Access::read, {R, h.query()})
          .add(Access::read, {R, h.packed()})
          .add(Access::read, {B, h.heads, T, T})
          .absent()
          .absent();
    case OpKind::rope:
      return single.add(Access::update, {R, h.packed()}).add_f32(Access::read, {T, h.head_dim}).absent();
    default:  // rope_backward
      return single.add(Access::update, {R, h.packed()}).add_f32(Access::read, {T, h.head_dim});
  }
}

SingleOperation attention_of_segments(OpKind kind, std::int64_t B, std::int64_t T, Heads h, bool others) {
  SingleOperation single(kind);
  single.variables(B, T, T).dims({.heads = h.heads, .kv_heads = h.kv_heads, .head_dim = h.head_dim});
  const Shape out{B * T, h.query()}, qkv{B * T, h.packed()}, kv{B * T, 2 * h.kv_heads * h.head_dim},
      sums{B, h.heads, T};
  switch (kind) {
    case OpKind::attention_merge:
      return single.add(Access::update, out)
          .add_f32(Access::update, sums)
          .add(Access::read, out)
          .add_f32(Access::read, sums);
    case OpKind::attention_partial:
      single.add(Access::write, out).add_f32(Access::write, sums).add(Access::read, qkv);
      break;
    default:  // attention_partial_backward
      single.add(others ? Access::update : Access::write, qkv);
      if (others)
        single.add(Access::write, kv);
      else
        single.absent();
      single.add(Access::read, out).add(Access::read, qkv).add(Access::read, out).add_f32(Access::read, sums);
  }
  return others ? single.add(Access::read, kv) : single.absent();
}

SingleOperation cached(OpKind kind, std::int64_t B, std::int64_t T, std::int64_t length, Heads h) {
  SingleOperation single(kind);
  single.variables(B, T, length).dims({.heads = h.heads, .kv_heads = h.kv_heads, .head_dim = h.head_dim});
  const Shape qkv{B * T, h.packed()}, cache{B, h.kv_heads, length, h.head_dim};
  if (kind == OpKind::kv_append)
    single.add(Access::update, cache).add(Access::update, cache).add(Access::read, qkv);
  else
    single.add(Access::write, {B * T, h.query()})
        .add(Access::read, qkv)
        .add(Access::read, cache)
        .add(Access::read, cache);
  return single.add(Access::read, {B}, sim::DType::int32);
}

SingleOperation embedding(OpKind kind, std::int64_t R, std::int64_t C, std::int64_t V) {
  SingleOperation single(kind);
  single.variables(1, R, R).dims({.rows = R, .hidden = C, .vocab = V});
  if (kind == OpKind::embedding)
    return single.add(Access::write, {R, C})
        .add(Access::read, {R}, sim::DType::int32)
        .add(Access::read, {V, C})
        .absent()
        .absent();
  return single.add(Access::update, {V, C})
      .absent()
      .add(Access::read, {R, C})
      .add(Access::read, {R}, sim::DType::int32);
}

SingleOperation head(OpKind kind, std::int64_t R, std::int64_t V) {
  SingleOperation single(kind);
  single.dims({.rows = R, .vocab = V});
  if (kind == OpKind::cross_entropy_statistics)
    return single.variables(1, R, R)
        .add_f32(Access::write, {R, 3})
        .add(Access::read, {R, V})
        .add(Access::read, {R}, sim::DType::int32);
  if (kind == OpKind::sample)
    return single.variables(R, 1, 1).add(Access::write, {R}, sim::DType::int32).add_f32(Access::read, {R, V});
  return single.variables(1, R, R)
      .add(Access::update, {R, V})
      .add_f32(Access::write, {R})
      .add(Access::read, {R}, sim::DType::int32);
}

SingleOperation optimizer(OpKind kind, std::int64_t count) {
  SingleOperation single(kind);
  const Shape shape{count};
  switch (kind) {
    case OpKind::zero:
      return single.add(Access::write, shape);
    case OpKind::squared_norm:
      return single.add(Access::update, {3}, sim::DType::fp64).add(Access::read, shape);
    case OpKind::clip_scale:
      return single.add(Access::update, {3}, sim::DType::fp64);
    case OpKind::unscale:
      return single.add_f32(Access::update, {1}).add(Access::update, shape);
    case OpKind::quantise:
      return single.add(Access::write, shape, sim::DType::fp8).add(Access::read, shape);
    default:  // adamw
      return single.add(Access::read, {3}, sim::DType::fp64)
          .add(Access::update, shape)
          .add(Access::read, shape)
          .add_f32(Access::update, shape)
          .add_f32(Access::update, shape)
          .absent();
  }
}

SingleOperation adamw_with_master(std::int64_t count) {
  const Shape shape{count};
  return SingleOperation(OpKind::adamw)
      .add(Access::read, {3}, sim::DType::fp64)
      .add(Access::write, shape)
      .add(Access::read, shape)
      .add_f32(Access::update, shape)
      .add_f32(Access::update, shape)
      .add_f32(Access::update, shape);
}

}  // namespace runtime
