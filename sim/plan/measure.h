// The quantities that sizes, traffic and FLOPs of operations are products of (plan/kinds.cpp).
#pragma once
#include <array>
#include <cstdint>

#include "sim/plan/extent.h"

namespace sim {

struct Dims;
struct Operation;

// clang-format off
enum class Measure : std::uint8_t {
  // Dims of an operation, with the variables bound.
  rows, cols, inner, hidden, vocab, heads, kv_heads, head_dim, groups, experts, chosen, value_dim, rope_dim,
  // Variables of an action.
  batch, query_length, kv_length,
  tokens,             // batch * query_length
  packed_heads,       // heads + 2 kv_heads: queries, keys and values of a token
  query_key_heads,    // heads + kv_heads
  heads_and_key,      // heads + 1: latent attention's queries and the one rotary key
  key_value_dim,      // head_dim + value_dim
  latent_dim,         // head_dim - rope_dim: what a latent cache holds beside the rotary key
  softmax_and_choice, // 4 + chosen: FLOPs of routing, for a row and an expert
  pairs,              // of a query and a key, as attention's mask leaves them: attended_pairs()
  seen_keys,          // of a sequence's cache: those that its new queries see together
  cached_tokens,      // of a sequence: what its cache has room for at least
  kept_tokens,        // of a sequence: those of the new tokens that a cache keeps
  hit_experts,        // experts_hit()
  scale_groups,       // of a row of weights: each has a scale
  stored_rows,        // of a group's weight: cols, but where a product sums over the rows, inner
  states, taps,
  earlier_taps,       // taps - 1: tokens that a convolution looks back
  taps_and_gate,      // 2 taps + 5: FLOPs of a convolution and its SiLU, for a channel
  scan_columns,       // heads head_dim + 2 groups states: what a scan reads of a token, x | B | C
  projected_columns,  // those, a gate of heads head_dim, and a time step a head
  scan_work, scan_backward_work,  // of a token: scan_flops()
  useful_share,       // of the rows of grouped products: Operation::scalar
  newton_schulz,      // FLOPs to orthogonalise one matrix (rows, cols)
};
// clang-format on

// factor * measure * measure * ...; without a factor it is nothing.
struct Product {
  double factor = 0;
  std::array<Measure, 5> measures{};
  std::uint8_t count = 0;

  constexpr Product() = default;
  constexpr explicit Product(double f) : factor(f) {}
  constexpr Product(Measure m) : factor(1), measures{m}, count(1) {}  // NOLINT: a measure is a product of one
  constexpr const Measure* begin() const { return measures.data(); }
  constexpr const Measure* end() const { return measures.data() + count; }
  constexpr explicit operator bool() const { return factor != 0; }
};
constexpr Product operator*(Product p, Measure m) {
  p.measures.at(p.count++) = m;
  return p;
}
constexpr Product operator*(double factor, Product p) {
  p.factor *= factor;
  return p;
}
constexpr Product operator*(double factor, Measure m) {
  return factor * Product(m);
}
constexpr Product operator*(Measure a, Measure b) {
  return Product(a) * b;
}

// `v` are the variables as the operation sees them (bound_to()).
double value(Measure measure, const Operation& op, const Variables& v);
double value(const Product& product, const Operation& op, const Variables& v);
// Whether the product's value depends on Variables::kv_length.
bool depends_on_length(const Product& product);

// Pairs of a query and a key that causal attention lets see each other, over all sequences and one head. With
// a window a query sees the latest `window` keys, its own included. With a chunk it sees the keys of its own
// segment of `chunk` tokens, up to its own. 0: no such limit.
double visible_pairs(const Variables& v, std::int64_t window = 0, std::int64_t chunk = 0);

// The variables of the causal attention whose speed an operation on a context-parallel rank has. An operation
// on gathered keys is a part of attention with the queries of the whole sequence; a step of a ring is as fast
// as attention over the rank's own tokens.
Variables whole_attention(const Operation& op, Variables v);

// The pairs that an attention operation computes, over all sequences and one head. Work, prices and
// calibrations count them here.
double attended_pairs(const Operation& op, const Variables& v);

// How many of a rank's experts have their weights read. With a capacity it is all of them, since each has its
// places. Else it is those that get at least one row, in expectation of balanced and independent choices:
// groups (1 - (1 - chosen / experts)^tokens).
double experts_hit(const Operation& op, const Variables& v);

// FLOPs of the products of a selective scan, of one token (kernels/selective_scan.h): within a chunk of Q
// tokens, or of all where they are fewer, 2 Q states for each group and 2 Q head_dim + 4 states head_dim for
// each head. The backward pass takes three times the first term, twice the second and two and a half times
// the third: each product twice, and the states once more.
double scan_flops(const Dims& dims, const Variables& v, bool backward);

// Five iterations of X = aX + (bA + cA^2) X with A = X X^T, along the shorter side (Jordan et al. 2024,
// github.com/KellerJordan/Muon).
inline constexpr int kNewtonSchulzIterations = 5;

}  // namespace sim
