// The kinds of operations that plans are made of: one row each in kinds.cpp says all that the rest of the
// program knows of a kind. To add one: its enumerator here, its row there.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "sim/enum_names.h"
#include "sim/plan/measure.h"

namespace sim {

// clang-format off
enum class OpKind : std::uint8_t {
  embedding, embedding_backward,
  layernorm, layernorm_backward, rmsnorm, rmsnorm_backward,
  matmul, matmul_backward_input, matmul_backward_weight,
  grouped_matmul, grouped_matmul_backward_input, grouped_matmul_backward_weight,
  route, route_backward, permute, unpermute,
  qk_norm, qk_norm_backward, rope, rope_backward,
  attention_flash, attention_flash_backward,
  rope_latent, rope_latent_backward, attention_latent, attention_latent_backward,
  latent_append, attention_latent_cached,
  attention_partial, attention_partial_backward, attention_merge,
  attention_standard, attention_standard_backward,
  kv_append, attention_cached,
  causal_conv, causal_conv_backward, selective_scan, selective_scan_backward, gated_norm, gated_norm_backward,
  gelu, gelu_backward, relu, relu_backward, squared_relu, squared_relu_backward,
  gelu_exact, gelu_exact_backward,
  swiglu, swiglu_backward, geglu, geglu_backward, clamped_swiglu, clamped_swiglu_backward,
  weigh_rows, weigh_rows_backward,
  add, add_columns, take_columns, dropout, dropout_backward, gather_last, quantise, dequantise, zero,
  cross_entropy_statistics, cross_entropy, sample,
  squared_norm, clip_scale, unscale, host_read,
  adamw, adamw_8bit, adafactor, sgd, lion, muon_momentum, orthogonalise, apply_update,
  copy_to_host, copy_from_host,
  all_reduce, reduce_scatter, all_gather, all_to_all, exchange, send,
  receive,  // stays the last
};
inline constexpr std::size_t kOpKinds = static_cast<std::size_t>(OpKind::receive) + 1;

// The parts that operands play.
enum class Role : std::uint8_t {
  none,
  out, inp, dout, dinp, weight, dweight, weight_scales, weight_zeros, bias, dbias, residual,
  tokens, positions, position_weight, dposition_weight,
  mean, rstd,
  weights, dweights, row_weights, drow_weights, indices, logits, dlogits,
  table, block_table,
  qkv, dqkv, q, dq, key, dkey, kv, dkv, all_kv, other_kv, lse, latent, cache, k_cache, v_cache, scales,
  part, part_lse,
  probabilities, dprobabilities, mask, dropped, sinks, dsinks,
  gate_up, dgate_up, a, b,
  projected, dprojected, xbc, dxbc, head_weights, dhead_weights, history, states, chunk_states,
  targets, losses, statistics,
  norm, found, gradient, parameter, update, moment1, moment2, scale1, scale2, row_moment, column_moment, master,
  buffer, shard, host, device,
};
// clang-format on

// `accumulate`: the first action of a step that has the operand writes it, and all others add to it.
enum class Access : std::uint8_t { read, write, update, accumulate };

// The sort of work that a kind does. The table below names it in sentences.
enum class Family : std::uint8_t {
  products,
  attention,
  scans,  // of state-space layers
  norms,
  embeddings,
  loss,
  sampling,
  optimizer,
  copies,
  communication,
  elementwise
};
// clang-format off
template <>
inline constexpr std::array<std::string_view, 11> kOtherWords<Family>{
    "matrix products", "attention", "scans of states", "norms", "embeddings", "the loss", "sampling",
    "the optimizer", "copies to and from the host", "communication", "element-wise operations"};
// clang-format on

// The part of a pass that a kind belongs to. A product has two backward kinds: for its input, for its weight.
enum class Direction : std::uint8_t { forward, backward, input_gradient, weight_gradient, any };

// The measured curve that prices a kind (cost/efficiency.cpp, cost/gpu_price.cpp, cost/calibration.cpp).
enum class Curve : std::uint8_t {
  streamed,   // bytes through memory, one after the other
  scattered,  // rows in any order
  product,
  grouped_product,
  newton_schulz,
  flash_attention,
  standard_attention,
  cached_attention,
  latent_cached_attention,
  scan,
  network
};

// Collectives, by their names in communication libraries.
enum class CollectiveOperation { all_reduce, all_gather, reduce_scatter, all_to_all, send_receive };

// The share `parts / of` of a message's bytes that passes a rank's link in the ring algorithms (nccl-tests,
// PERFORMANCE.md). The message of all-gather and reduce-scatter is the gathered tensor.
struct BusShare {
  std::int64_t parts, of;
};
constexpr BusShare bus_share(CollectiveOperation operation, std::int64_t ranks) {
  if (operation == CollectiveOperation::send_receive) return {1, 1};
  const std::int64_t others = ranks - 1, all = ranks > 1 ? ranks : 1;
  return {operation == CollectiveOperation::all_reduce ? 2 * others : others, all};
}

struct Passes {
  int reads = 0, writes = 0;
};

struct OperandInfo {
  enum class Size : std::uint8_t { exactly, at_least, any };

  Role role{};
  Access access{};
  bool optional = false;
  Size size = Size::any;
  Product elements{};              // how many the operand has, by `size`
  Product touched{};               // how many are accessed, where not the whole buffer is
  Role touched_beside{};           // `touched` holds only where this operand is present
  std::optional<Passes> passes{};  // through memory, where not one for each access
  Role more_beside{};              // where this operand is present, `more` replaces `passes`
  Passes more{};
};

// A kind's operands, in the order of Operation::operands. The last `repeated` may come any number of times.
struct Operands {
  std::array<OperandInfo, 9> all{};
  std::uint8_t count = 0, repeated = 0;

  constexpr Operands(std::initializer_list<OperandInfo> operands, std::uint8_t repeats = 0)
      : repeated(repeats) {
    for (const OperandInfo& o : operands) all.at(count++) = o;
  }
  constexpr const OperandInfo* begin() const { return all.data(); }
  constexpr const OperandInfo* end() const { return all.data() + count; }
  // The operation's operand i.
  constexpr const OperandInfo& at(std::size_t i) const {
    return all[i < count || repeated == 0 ? i : count - repeated + (i - count) % repeated];
  }
};

// A multiply-add is two FLOPs; a division, root or transcendental is one.
struct Arithmetic {
  Product flops{};        // executed
  Product model_flops{};  // that the mathematics needs and MFU counts: those of matrix products alone
  Role each{};            // where set: both are per element of this role's operands
  bool tensor_cores = false;
};

struct KindInfo {
  OpKind kind;
  Family family;
  Direction direction;
  Curve curve;
  Operands operands;
  Arithmetic arithmetic{};
  std::optional<CollectiveOperation> collective{};
};

extern const std::array<KindInfo, kOpKinds> kKinds;

inline const KindInfo& info(OpKind kind) {
  return kKinds[static_cast<std::size_t>(kind)];
}

// The place of the role's first operand in an operation's list; -1 where the kind has no such role.
inline int index_of(OpKind kind, Role role) {
  const Operands& operands = info(kind).operands;
  for (std::uint8_t i = 0; i < operands.count; ++i)
    if (operands.all[i].role == role) return i;
  return -1;
}
inline bool takes(OpKind kind, Role role) {
  return index_of(kind, role) >= 0;
}

inline bool is_collective(OpKind kind) {
  return info(kind).collective.has_value();
}
// Whether it is a layer's matrix product: a single one, or one for each expert.
inline bool is_product(OpKind kind) {
  return info(kind).family == Family::products;
}
// Whether it multiplies queries by keys; kinds that only rotate, store or merge do not count.
inline bool is_attention(OpKind kind) {
  return info(kind).family == Family::attention && info(kind).arithmetic.tensor_cores;
}
inline bool is_backward(OpKind kind) {
  const Direction d = info(kind).direction;
  return d == Direction::backward || d == Direction::input_gradient || d == Direction::weight_gradient;
}

// The two operands that a product multiplies.
struct Factors {
  Role first, second;
};
Factors factors(OpKind product);

}  // namespace sim
