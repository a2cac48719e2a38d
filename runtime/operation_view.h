// An operation's operands and dimensions as kernels take them, whatever the device.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/latent_attention.h"
#include "kernels/rope.h"
#include "runtime/device.h"

namespace runtime {

class OperationView {
 public:
  explicit OperationView(const BoundOperation& bound) : bound_(bound), dims_(bound.operation->dims) {}

  // Null where the operand is absent.
  template <typename T>
  T* as(std::size_t operand) const {
    return operand < bound_.operands.size() ? reinterpret_cast<T*>(bound_.operands[operand].data) : nullptr;
  }
  float* f32(std::size_t operand) const { return as<float>(operand); }
  std::int32_t* i32(std::size_t operand) const { return as<std::int32_t>(operand); }

  // The operand that plays a role, the first of those that repeat; null where there is none.
  const BoundOperand* find(sim::Role role) const {
    const int i = sim::index_of(bound_.operation->kind, role);
    return i < 0 || static_cast<std::size_t>(i) >= bound_.operands.size() ? nullptr : &bound_.operands[i];
  }
  template <typename T>
  T* as(sim::Role role) const {
    const BoundOperand* const operand = find(role);
    return operand ? reinterpret_cast<T*>(operand->data) : nullptr;
  }
  float* f32(sim::Role role) const { return as<float>(role); }
  std::int32_t* i32(sim::Role role) const { return as<std::int32_t>(role); }

  std::size_t operands() const { return bound_.operands.size(); }
  bool updates(std::size_t operand) const { return is_update(bound_.operation->operands[operand]); }
  bool updates(sim::Role role) const { return is_update(sim::operand(*bound_.operation, role)); }

  std::int64_t rows() const {
    return bound_.group_offsets.empty() ? dims_.rows.value(bound_.variables) : bound_.group_offsets.back();
  }
  std::int64_t cols() const { return dims_.cols.value(bound_.variables); }
  std::int64_t inner() const { return dims_.inner.value(bound_.variables); }
  std::int64_t hidden() const { return dims_.hidden; }
  std::int64_t vocab() const { return dims_.vocab; }
  std::int64_t words() const { return dims_.words == 0 ? dims_.vocab : dims_.words; }
  std::int64_t batch() const { return bound_.variables.batch; }
  std::int64_t query_length() const { return bound_.variables.query_length; }
  float scalar() const { return bound_.operation->scalar; }
  float cap() const { return bound_.operation->cap; }
  bool decay() const { return bound_.operation->decay; }

  kernels::AttentionShape attention() const {
    return {batch(),        query_length(),
            dims_.heads,    dims_.kv_heads,
            dims_.head_dim, {dims_.window, dims_.chunk, dims_.alibi_heads > 0, bound_.operation->cap}};
  }
  kernels::RopeShape rope() const {
    return {batch(), query_length(), dims_.heads, dims_.kv_heads, dims_.head_dim};
  }
  kernels::EmbeddingShape embedding() const { return {batch(), query_length(), hidden(), vocab()}; }
  // Latent attention. In operations on the cache, a head is as wide as a cache row, a value as a latent.
  kernels::LatentShape latent() const {
    const sim::Dims& d = dims_;
    return {batch(),    query_length(), d.heads, d.head_dim - d.rope_dim,
            d.rope_dim, d.value_dim,    0,       {d.window, d.chunk}};
  }
  kernels::LatentShape absorbing() const {
    kernels::LatentShape s = latent();
    s.L = bound_.operation->place == sim::Place::absorbs_keys ? cols() : inner();
    return s;
  }
  kernels::LatentShape cached_latent() const {
    const sim::Dims& d = dims_;
    kernels::LatentShape s{batch(), query_length(), d.heads, 0, d.rope_dim, 0, d.head_dim - d.rope_dim};
    if (const BoundOperand* const q = find(sim::Role::q))
      s.N = q->bytes * 8 / sim::bits(q->dtype) / (s.B * s.T * s.H) - s.P;
    return s;
  }
  // How a cache operand holds keys or values: one block per sequence, or the blocks that a table lists.
  struct CacheBlocks {
    std::int64_t tokens = 0;       // of a block
    std::int64_t of_sequence = 1;  // blocks
    const std::int32_t* table = nullptr;
  };
  CacheBlocks cache_blocks(sim::Role cache) const {
    const auto index = [&](sim::Role role) {
      return static_cast<std::size_t>(sim::index_of(bound_.operation->kind, role));
    };
    return cache_blocks(index(cache), index(sim::Role::block_table));
  }
  CacheBlocks cache_blocks(std::size_t cache, std::size_t table) const {
    const BoundOperand& operand = bound_.operands[cache];
    // Behind a row of int8 lies its scale.
    const std::int64_t scale = operand.dtype == sim::DType::int8 ? kernels::cpu::KvCache::kScaleBytes : 0;
    const std::int64_t heads = dims_.kv_heads * (dims_.head_dim + scale);
    const std::int64_t capacity = operand.bytes * 8 / sim::bits(operand.dtype) / (batch() * heads);
    if (table >= operands() || i32(table) == nullptr) return {capacity, 1, nullptr};
    const std::int64_t blocks =
        bound_.operands[table].bytes / static_cast<std::int64_t>(sizeof(std::int32_t)) / batch();
    return {capacity / blocks, blocks, i32(table)};
  }

  // Tells apart the tensors that operations drop elements of, or round stochastically: by the operation's id,
  // which its forward and recompute phases share, the layer and micro-batch, and where one operation has
  // several tensors, by their number.
  std::uint64_t random_stream(std::size_t tensor_number = 0) const {
    constexpr std::uint64_t kOffset = 0xcbf29ce484222325u, kPrime = 0x100000001b3u;  // FNV-1a
    std::uint64_t hash = kOffset;
    for (const char letter : bound_.operation->id) hash = (hash ^ static_cast<std::uint8_t>(letter)) * kPrime;
    hash = (hash ^ static_cast<std::uint32_t>(bound_.layer)) * kPrime;
    hash = (hash ^ static_cast<std::uint32_t>(bound_.micro_batch)) * kPrime;
    return (hash ^ tensor_number) * kPrime;
  }

 protected:
  const BoundOperation& bound() const { return bound_; }

 private:
  bool is_update(const sim::Operand& operand) const {
    return sim::access_of(operand, bound_.variables) == sim::Access::update;
  }

  const BoundOperation& bound_;
  const sim::Dims& dims_;
};

}  // namespace runtime
