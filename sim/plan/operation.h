// The operations that plans are made of. kinds.cpp says what each kind is. The runtime's kernel of the kind
// executes an operation and knows nothing of layers or models.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sim/dtype.h"
#include "sim/plan/kinds.h"

namespace sim {

using BufferId = std::int32_t;
inline constexpr BufferId kNoBuffer = -1;

struct Operand {
  BufferId buffer = kNoBuffer;
  Access access = Access::read;
  std::int32_t layer_offset = 0;  // a per-layer buffer's instance is at action.layer + layer_offset
};

// The access that an action with these variables makes: `accumulate` becomes write or update.
constexpr Access access_of(const Operand& o, const Variables& v) {
  if (o.access != Access::accumulate) return o.access;
  return v.begins_gradients ? Access::write : Access::update;
}

// An operation sets the sizes that its kind's row in kinds.cpp multiplies, and attention also its window or
// chunk and its ALiBi heads; the others stay zero.
struct Dims {
  Extent rows = 0, cols = 0, inner = 0;
  std::int64_t hidden = 0, vocab = 0;
  std::int64_t words = 0;  // cross_entropy: columns of `vocab` before its padding; 0: all
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t groups = 0, experts = 0, chosen = 0;
  std::int64_t value_dim = 0, rope_dim = 0;
  std::int64_t window = 0, chunk = 0;
  std::int64_t chosen_groups = 0;
  std::int64_t states = 0, taps = 0, scan_chunk = 0;
  std::int64_t scale_groups = 0;
  std::int64_t first_column = 0;  // of the rows of add_columns and take_columns
  std::int64_t alibi_heads = 0;   // attention with ALiBi: query heads of the whole model; 0: without
  bool operator==(const Dims&) const = default;
};

// Where in a layer an operation stands, if that decides more about it than its kind does.
enum class Place : std::uint8_t {
  anywhere,
  query_key_value,
  gate_up,
  router,
  shared_expert,   // an activation whose row weights are numbers before their sigmoid
  absorbs_keys,    // products of latent attention's queries with each head's rows of the keys' up-projection
  absorbs_values,  // ... of what attention gives with those of the values'
  to_experts,      // tokens on their way to experts; in backward, gradients of what experts gave
  from_experts,    // what experts gave on its way back; in backward, gradients of tokens
  among_experts,   // the same between tensor-parallel ranks that share an expert
  at_experts,      // on rows that other ranks sent: as many as their tokens chose these experts
};

struct Operation {
  std::string id;  // stable and readable: "layer.attention.qkv.forward"
  OpKind kind{};
  DType dtype{};  // of the arithmetic
  Dims dims{};
  std::vector<Operand> operands{};
  // Tensors that the implementation makes, keeps or frees here beside the operands
  // (scenario/memory_profile.h): they take memory; what they cost in time is no part of the operation.
  std::vector<Operand> beside{};
  float scalar = 0;  // norms: epsilon; cross_entropy: what a token's gradient is scaled by, 1 / tokens of a
                     // step; route: what weights are multiplied by
  // route: weights are sigmoids of the logits, not their softmax; they are divided by their sum.
  bool sigmoid = false, normalised = false;
  // Experts' rows: all experts have the same number of places, and rows beyond it are dropped. Dims::inner of
  // a permutation counts all places; Dims::rows of a product counts those of the experts that it multiplies.
  bool has_capacity = false;
  // x becomes cap tanh(x / cap), where x are attention's scores before the softmax, or the logits of
  // cross_entropy and sample. 0: x stays as it is.
  float cap = 0;
  std::int32_t group = -1;  // collectives: index into Plan::groups
  // Runs beside the next operation of its block, and the one after that waits for both.
  bool beside_next = false;
  // Attention after ranks exchanged heads for the sequence: its queries are all kv_length tokens of it.
  bool whole_sequence = false;
  bool decay = false;  // adamw: weight decay applies to every tensor of this operation
  Place place{};
};

// An action's variables as an operation sees them.
constexpr Variables bound_to(const Operation& op, Variables v) {
  if (op.whole_sequence) v.query_length = v.kv_length;
  return v;
}

// The operand that plays a role, the first of those that repeat; one without a buffer where there is none.
inline const Operand& operand(const Operation& op, Role role) {
  static constexpr Operand kAbsent;
  const int i = index_of(op.kind, role);
  return i < 0 || static_cast<std::size_t>(i) >= op.operands.size()
             ? kAbsent
             : op.operands[static_cast<std::size_t>(i)];
}
inline bool has(const Operation& op, Role role) {
  return operand(op, role).buffer != kNoBuffer;
}

}  // namespace sim
