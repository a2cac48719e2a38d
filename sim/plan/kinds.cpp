#include "sim/plan/kinds.h"

namespace sim {
namespace {

using K = OpKind;
using R = Role;
using F = Family;
using D = Direction;
using C = Curve;
using enum Measure;

// ---- Operands: what the kind does to one, how many elements it has, and how it differs from one full pass.

struct Row : OperandInfo {
  constexpr Row(Role r, Access a, Product n, Size how) : OperandInfo{r, a, false, how, n} {}
  // Only `some` of its elements are touched; with `beside`, only where an operand of that role is there.
  constexpr Row touching(Product some, Role beside = R::none) const {
    Row row = *this;
    row.touched = some;
    row.touched_beside = beside;
    return row;
  }
  constexpr Row passing(int reads, int writes) const {
    Row row = *this;
    row.passes = Passes{reads, writes};
    return row;
  }
  constexpr Row passing_beside(Role beside, int reads, int writes) const {
    Row row = *this;
    row.more_beside = beside;
    row.more = {reads, writes};
    return row;
  }
};

struct AtLeast {
  Product elements;
};
constexpr AtLeast at_least(Product elements) {
  return {elements};
}

constexpr Row operand(Role role, Access access, Product elements) {
  return {role, access, elements, OperandInfo::Size::exactly};
}
constexpr Row operand(Role role, Access access, AtLeast size) {
  return {role, access, size.elements, OperandInfo::Size::at_least};
}
constexpr Row operand(Role role, Access access) {
  return {role, access, {}, OperandInfo::Size::any};
}
// Operands that are read; written; read and written (or only written, by operations that begin a sum).
constexpr Row in(Role role, auto... elements) {
  return operand(role, Access::read, elements...);
}
constexpr Row out(Role role, auto... elements) {
  return operand(role, Access::write, elements...);
}
constexpr Row sum(Role role, auto... elements) {
  return operand(role, Access::update, elements...);
}
constexpr Row maybe(Row row) {
  row.optional = true;
  return row;
}

// ---- FLOPs.

constexpr Arithmetic elementwise(Product flops) {
  return {.flops = flops};
}
constexpr Arithmetic on_each(double flops, Role role) {
  return {.flops = Product(flops), .each = role};
}
constexpr Arithmetic tensor_cores(Product flops, Product model_flops) {
  return {.flops = flops, .model_flops = model_flops, .tensor_cores = true};
}
constexpr Arithmetic tensor_cores(Product flops) {
  return tensor_cores(flops, flops);
}

constexpr Product one{1.0};

// Sizes that many kinds share.
constexpr Product row_vectors = rows * hidden, matrix = rows * cols;
constexpr Product qkv_size = tokens * packed_heads * head_dim, query_size = tokens * heads * head_dim;
constexpr Product queries_and_keys = tokens * query_key_heads * head_dim, row_sums = tokens * heads;
constexpr Product values_size = tokens * heads * value_dim, head_kv = tokens * heads * key_value_dim;
constexpr Product scores = tokens * heads * kv_length, of_all = 2 * batch * kv_heads * kv_length * head_dim;
constexpr Product own_kv = 2 * tokens * kv_heads * head_dim, rotary = tokens * heads * rope_dim;
constexpr Product cache_size = batch * kv_heads * cached_tokens * head_dim;
constexpr Product kept = batch * kept_tokens * kv_heads * head_dim;
constexpr Product seen = batch * seen_keys * kv_heads * head_dim;

// Products of scores and of values, 2 FLOPs each for a pair of tokens and an element of a head. Standard
// attention also computes the pairs that the mask then hides.
constexpr Product visible = 4 * heads * head_dim * pairs, square = 4 * heads * head_dim * tokens * kv_length;
constexpr Product visible_latent = 2 * heads * key_value_dim * pairs;
// State-space mixers.
constexpr Product scanned = rows * heads * head_dim, convolved = rows * scan_columns;
constexpr Product projection = rows * projected_columns, time_steps = rows * heads;
constexpr Product product_flops = 2 * rows * cols * inner;
constexpr Arithmetic dense = tensor_cores(product_flops);
constexpr Arithmetic by_expert = tensor_cores(product_flops, product_flops* useful_share);

// A few bytes a row beside rows of thousands of bytes: this traffic is not counted.
constexpr Row choice = maybe(in(R::indices).passing(0, 0));

constexpr Operands activation{out(R::out, matrix), in(R::inp, matrix)};
constexpr Operands activation_backward{out(R::dinp, matrix), in(R::dout, matrix), in(R::inp, matrix)};
// With experts each row is multiplied by its weight.
constexpr Operands ungated{out(R::out, matrix), in(R::inp, matrix), maybe(in(R::row_weights, rows))};
constexpr Operands ungated_backward{out(R::dinp, matrix), in(R::dout, matrix), in(R::inp, matrix),
                                    maybe(in(R::row_weights, rows)), maybe(out(R::drow_weights, rows))};
constexpr Operands gated{out(R::out, matrix), in(R::gate_up, 2 * matrix), maybe(in(R::row_weights, rows))};
constexpr Operands gated_backward{out(R::dgate_up, 2 * matrix), in(R::dout, matrix),
                                  in(R::gate_up, 2 * matrix), maybe(in(R::row_weights, rows)),
                                  maybe(out(R::drow_weights, rows))};

}  // namespace

// clang-format off
constexpr std::array<KindInfo, kOpKinds> kKinds{{
// Where ranks divide the vocabulary, each writes the rows of its own tokens, positions added, and zeros for
// the rest; gradients of positions are taken from all rows.
{K::embedding, F::embeddings, D::forward, C::streamed,
 {out(R::out, row_vectors), in(R::tokens, rows), in(R::weight, vocab * hidden).touching(row_vectors),
  maybe(in(R::position_weight, at_least(kv_length * hidden)).touching(query_length * hidden)),
  maybe(in(R::positions, batch)),
  maybe(in(R::weight_scales, vocab * scale_groups).touching(rows * scale_groups))},
 elementwise(row_vectors)},
{K::embedding_backward, F::embeddings, D::backward, C::streamed,
 {sum(R::dweight, vocab * hidden).touching(row_vectors),
  maybe(sum(R::dposition_weight, at_least(kv_length * hidden)).touching(query_length * hidden)),
  in(R::dout, row_vectors), in(R::tokens, rows)},
 elementwise(row_vectors)},

// ---- Norms. Operation::scalar is epsilon.
{K::layernorm, F::norms, D::forward, C::streamed,
 {out(R::out, row_vectors), maybe(out(R::mean, rows)), maybe(out(R::rstd, rows)), in(R::inp, row_vectors),
  maybe(in(R::weight, hidden)), maybe(in(R::bias, hidden))},
 elementwise(8 * row_vectors)},  // mean 1, variance 3, normalise 2, gain and bias 2
{K::layernorm_backward, F::norms, D::backward, C::streamed,
 {sum(R::dinp, row_vectors), maybe(sum(R::dweight, hidden)), maybe(sum(R::dbias, hidden)), in(R::dout, row_vectors),
  in(R::inp, row_vectors), maybe(in(R::weight, hidden)), in(R::mean, rows), in(R::rstd, rows)},
 elementwise(15 * row_vectors)},  // two means 5, dinp 5, dweight and dbias 3, the normalised input again 2
{K::rmsnorm, F::norms, D::forward, C::streamed,
 {out(R::out, row_vectors), maybe(out(R::rstd, rows)), in(R::inp, row_vectors), in(R::weight, hidden)},
 elementwise(4 * row_vectors)},  // mean of squares 2, normalise 1, gain 1
{K::rmsnorm_backward, F::norms, D::backward, C::streamed,
 {sum(R::dinp, row_vectors), maybe(sum(R::dweight, hidden)), in(R::dout, row_vectors), in(R::inp, row_vectors),
  in(R::weight, hidden), in(R::rstd, rows)},
 elementwise(10 * row_vectors)},  // one mean 3, dinp 4, dweight 2, the normalised input again 1

// ---- Matrix products: out (rows M, cols N), weight (N, inner K). The residual may be the result. Weights in fewer than 16 bits
// have scales, and some have zeros, (N, scale_groups): one for each run of columns of a row.
{K::matmul, F::products, D::forward, C::product,
 {out(R::out, matrix), in(R::inp, rows * inner), in(R::weight, cols * inner), maybe(in(R::bias, cols)),
  maybe(in(R::residual, matrix)), maybe(in(R::weight_scales, cols * scale_groups)),
  maybe(in(R::weight_zeros, cols * scale_groups))},
 dense},
{K::matmul_backward_input, F::products, D::input_gradient, C::product,
 {out(R::dinp, rows * inner), in(R::dout, matrix), in(R::weight, cols * inner)},
 dense},
{K::matmul_backward_weight, F::products, D::weight_gradient, C::product,
 {sum(R::dweight, cols * inner), maybe(sum(R::dbias, cols)), in(R::dout, matrix), in(R::inp, rows * inner)},
 dense},

// ---- Experts. One product with its own weight for each group (here: expert) that a rank holds. The groups'
// rows are stored one after the other: out (M, N), weight (groups, N, K), bias (groups, N). Where the rank
// chose for all of its rows, the experts chosen for all tokens say the rows of each group; else groups have
// equally many. Operation::scalar: share of rows that is no padding or excess of the busiest rank; 0: all.
{K::grouped_matmul, F::products, D::forward, C::grouped_product,
 {out(R::out, matrix), in(R::inp, rows * inner),
  in(R::weight, groups * cols * inner).touching(hit_experts * cols * inner), maybe(in(R::bias, groups * cols)),
  choice,
  maybe(in(R::weight_scales, groups * stored_rows * scale_groups).touching(hit_experts * stored_rows * scale_groups)),
  maybe(in(R::weight_zeros, groups * stored_rows * scale_groups).touching(hit_experts * stored_rows * scale_groups))},
 by_expert},
{K::grouped_matmul_backward_input, F::products, D::input_gradient,
 C::grouped_product,
 {out(R::dinp, rows * inner), in(R::dout, matrix),
  in(R::weight, groups * cols * inner).touching(hit_experts * cols * inner), choice},
 by_expert},
{K::grouped_matmul_backward_weight, F::products, D::weight_gradient,
 C::grouped_product,
 {sum(R::dweight, groups * cols * inner), maybe(sum(R::dbias, groups * cols)), in(R::dout, matrix),
  in(R::inp, rows * inner), choice},
 by_expert},
// Chooses `chosen` of the experts for each row, and their weights.
{K::route, F::elementwise, D::forward, C::streamed,
 {out(R::weights, rows * chosen), out(R::indices, rows * chosen), in(R::logits, rows * experts),
  maybe(in(R::bias, experts))},
 elementwise(rows * experts * softmax_and_choice)},  // softmax 4, and a comparison for each of the chosen
{K::route_backward, F::elementwise, D::backward, C::streamed,
 {out(R::dlogits, rows * experts), in(R::dweights, rows * chosen), in(R::weights, rows * chosen),
  in(R::indices, rows * chosen), in(R::logits, rows * experts), maybe(sum(R::dbias, experts)),
  maybe(in(R::bias, experts))},
 elementwise(4 * rows * experts)},
// Each row once for each of its experts, ordered by expert, which makes `inner` rows with the places that
// stay empty; the sum of these rows. Weights (rows, chosen) go with them as weights of rows (inner), or back.
{K::permute, F::elementwise, D::any, C::scattered,
 {out(R::out, inner * cols), in(R::inp, matrix), in(R::indices, rows * chosen), maybe(out(R::row_weights, inner)),
  maybe(in(R::weights, rows * chosen))}},
{K::unpermute, F::elementwise, D::any, C::scattered,
 {out(R::out, matrix), in(R::inp, inner * cols), in(R::indices, rows * chosen),
  maybe(out(R::weights, rows * chosen)), maybe(in(R::row_weights, inner))},
 elementwise(inner * cols)},

// ---- Attention. Sequences and lengths are variables; qkv is packed (rows, (heads + 2 kv_heads) head_dim).
// Dims::window is how many keys a query sees; 0: all. Dims::chunk is the length of segments: a query sees
// only the keys before it in its segment; 0: no segments. A sink is a learned score of a head that takes part
// in the softmax of every row and has no value. qk_norm is RMSNorm of queries and keys; values are copied.
{K::qk_norm, F::norms, D::forward, C::streamed,
 {out(R::out, qkv_size).touching(queries_and_keys), maybe(out(R::rstd, tokens * query_key_heads)),
  in(R::inp, qkv_size).touching(queries_and_keys), maybe(in(R::weight))},
 elementwise(4 * queries_and_keys)},
{K::qk_norm_backward, F::norms, D::backward, C::streamed,
 {sum(R::dqkv, qkv_size).touching(queries_and_keys), maybe(sum(R::dweight)),
  in(R::inp, qkv_size).touching(queries_and_keys), maybe(in(R::weight)), in(R::rstd, tokens * query_key_heads)},
 elementwise(10 * queries_and_keys)},
// Values do not change. The table has a row for each position.
{K::rope, F::elementwise, D::forward, C::streamed,
 {sum(R::qkv, qkv_size).touching(queries_and_keys),
  in(R::table, at_least(kv_length * head_dim)).touching(query_length * head_dim), maybe(in(R::positions, batch))},
 elementwise(3 * queries_and_keys)},  // 6 for each pair of elements
{K::rope_backward, F::elementwise, D::backward, C::streamed,
 {sum(R::dqkv, qkv_size).touching(queries_and_keys),
  in(R::table, at_least(kv_length * head_dim)).touching(query_length * head_dim)},
 elementwise(3 * queries_and_keys)},
// all_kv: keys and values of all ranks of a context-parallel group (batch, kv_length, 2 kv_heads head_dim).
// The queries are then two segments of the sequence, one from each end, so that every rank sees equally many
// pairs. dkv is of all ranks, and dqkv takes only the queries' part. Ranks that divide heads only for
// attention have the sinks of all heads.
{K::attention_flash, F::attention, D::forward, C::flash_attention,
 {out(R::out, query_size), maybe(out(R::lse, row_sums)), in(R::qkv, qkv_size), maybe(in(R::all_kv, of_all)),
  maybe(in(R::sinks, at_least(heads)))},
 tensor_cores(visible)},
{K::attention_flash_backward, F::attention, D::backward, C::flash_attention,
 {out(R::dqkv, qkv_size), in(R::dout, query_size), in(R::qkv, qkv_size), in(R::out, query_size),
  in(R::lse, row_sums), maybe(in(R::all_kv, of_all)), maybe(out(R::dkv, of_all)),
  maybe(in(R::sinks, at_least(heads))), maybe(sum(R::dsinks, at_least(heads)))},
 tensor_cores(2.5 * visible, 2 * visible)},  // five products, where forward has two: the scores once more
// Latent attention: q (rows, heads head_dim); kv (rows, heads (head_dim + value_dim)): the up-projection's
// result, and behind all its rows a copy of the one rotary key (rows, rope_dim) for each head. The cache is
// (batch, tokens, rank + rope_dim): in decoding, one key of head_dim for all heads, whose first value_dim
// columns are the value. inp is then the queries times the keys' up-projection; q's rotated part is read.
{K::rope_latent, F::elementwise, D::forward, C::streamed,
 {sum(R::q, query_size).touching(rotary), sum(R::key, tokens * rope_dim),
  maybe(sum(R::kv, head_kv).touching(rotary).passing(0, 1)),
  in(R::table, at_least(kv_length * rope_dim)).touching(query_length * rope_dim), maybe(in(R::positions, batch))},
 elementwise(3 * tokens * heads_and_key * rope_dim)},  // 6 for each pair of elements
{K::rope_latent_backward, F::elementwise, D::backward, C::streamed,
 {sum(R::dq, query_size).touching(rotary), out(R::dkey, tokens * rope_dim), in(R::dkv, head_kv).touching(rotary),
  in(R::table, at_least(kv_length * rope_dim)).touching(query_length * rope_dim)},
 elementwise(3 * tokens * heads_and_key * rope_dim)},
{K::attention_latent, F::attention, D::forward, C::flash_attention,
 {out(R::out, values_size), maybe(out(R::lse, row_sums)), in(R::q, query_size), in(R::kv, head_kv)},
 tensor_cores(visible_latent)},  // scores by head_dim, values by value_dim
{K::attention_latent_backward, F::attention, D::backward, C::flash_attention,
 {out(R::dq, query_size), out(R::dkv, head_kv), in(R::dout, values_size), in(R::q, query_size), in(R::kv, head_kv),
  in(R::out, values_size), in(R::lse, row_sums)},
 tensor_cores(2.5 * visible_latent, 2 * visible_latent)},
{K::latent_append, F::attention, D::forward, C::streamed,
 {sum(R::cache, at_least(cache_size)).touching(tokens * head_dim).passing(0, 1), in(R::latent, tokens * latent_dim),
  in(R::key, tokens * rope_dim), in(R::positions, batch), maybe(in(R::block_table, at_least(batch)))}},
{K::attention_latent_cached, F::attention, D::forward, C::latent_cached_attention,
 {out(R::out, values_size), in(R::inp, values_size), in(R::q).touching(rotary),
  in(R::cache, at_least(cache_size)).touching(batch * kv_length * head_dim), in(R::positions, batch),
  maybe(in(R::block_table, at_least(batch)))},
 tensor_cores(visible_latent)},
// Attention in steps of a ring: a rank's queries with the keys and values of one rank (rows, 2 kv_heads
// head_dim). These are its own, in qkv, or another rank's, and then only the queries of qkv are read. A rank
// has segments from both ends of the sequence, so half of the pairs see each other, whatever their ranks.
// Operation::scalar is how many steps the keys have come.
{K::attention_partial, F::attention, D::forward, C::flash_attention,
 {out(R::out, query_size), out(R::lse, row_sums), in(R::qkv, qkv_size).touching(query_size, R::other_kv),
  maybe(in(R::other_kv, own_kv)), maybe(in(R::sinks, heads))},
 tensor_cores(visible)},
{K::attention_partial_backward, F::attention, D::backward, C::flash_attention,
 {sum(R::dqkv, qkv_size).touching(query_size, R::other_kv), maybe(out(R::dkv, own_kv)), in(R::dout, query_size),
  in(R::qkv, qkv_size).touching(query_size, R::other_kv), in(R::out, query_size), in(R::lse, row_sums),
  maybe(in(R::other_kv, own_kv)), maybe(in(R::sinks, heads)), maybe(sum(R::dsinks, heads))},
 tensor_cores(2.5 * visible, 2 * visible)},
// Merges results of two parts of the keys: two weights a row; scale, scale and add.
{K::attention_merge, F::attention, D::forward, C::streamed,
 {sum(R::out, query_size), sum(R::lse, row_sums), in(R::part, query_size), in(R::part_lse, row_sums)},
 elementwise(3 * query_size)},
// The first product writes scores, softmax rewrites them, products read them. With dropout on probabilities,
// the mask and what it leaves of them are kept beside them. Scores that the mask hides are computed, too.
{K::attention_standard, F::attention, D::forward, C::standard_attention,
 {out(R::out, query_size), out(R::probabilities, scores).passing(2, 2),  // softmax in place; product or dropout
  in(R::qkv, qkv_size), maybe(out(R::mask, scores)), maybe(out(R::dropped, scores).passing(1, 1)),
  maybe(in(R::sinks, heads))},
 tensor_cores(square, visible)},
{K::attention_standard_backward, F::attention, D::backward, C::standard_attention,
 {out(R::dqkv, qkv_size),
  out(R::dprobabilities, scores).passing(3, 2).passing_beside(R::dropped, 4, 3),  // product, [dropout], softmax,
  in(R::dout, query_size), in(R::qkv, qkv_size),                                  // two products
  in(R::probabilities, scores).passing(2, 0).passing_beside(R::dropped, 1, 0),    // softmax, [the values' product]
  maybe(in(R::mask, scores)), maybe(in(R::dropped, scores)), maybe(sum(R::dsinks, heads))},
 tensor_cores(2 * square, 2 * visible)},
// A cache is (batch, kv_heads, tokens, head_dim). With a block table it is (batch * blocks, kv_heads, tokens
// of a block, head_dim), and the table (batch, blocks) says which block holds a sequence's next tokens. With
// scales (2, kv_heads), of keys, then of values, it is in fp8 (e4m3), divided by the scale of the head.
{K::kv_append, F::attention, D::forward, C::streamed,
 {sum(R::k_cache, at_least(cache_size)).touching(kept).passing(0, 1),
  sum(R::v_cache, at_least(cache_size)).touching(kept).passing(0, 1), in(R::qkv, qkv_size).touching(2 * kept),
  in(R::positions, batch), maybe(in(R::block_table, at_least(batch))), maybe(in(R::scales, 2 * kv_heads))}},
{K::attention_cached, F::attention, D::forward, C::cached_attention,
 {out(R::out, query_size), in(R::qkv, qkv_size).touching(query_size),
  in(R::k_cache, at_least(cache_size)).touching(seen), in(R::v_cache, at_least(cache_size)).touching(seen),
  in(R::positions, batch), maybe(in(R::block_table, at_least(batch))), maybe(in(R::scales, 2 * kv_heads)),
  maybe(in(R::sinks, heads))},
 tensor_cores(visible)},

// ---- State-space mixers (kernels/selective_scan.h, causal_conv.h, gated_norm.h). A row of the projection is a gate (heads
// head_dim), x, B and C (scan_columns), a time step a head. Head weights are three of each head: the time step's bias, the
// decay's logarithm, the skip. With a history or states the positions say where a sequence's new tokens begin. The projection's
// gradient is written in parts, the norm's first.
{K::causal_conv, F::elementwise, D::forward, C::streamed,
 {out(R::out, convolved), in(R::projected, projection).touching(convolved), in(R::weight, scan_columns * taps),
  maybe(in(R::bias, scan_columns)), maybe(sum(R::history, batch * earlier_taps * scan_columns)),
  maybe(in(R::positions, batch))},
 elementwise(convolved * taps_and_gate)},
{K::causal_conv_backward, F::elementwise, D::backward, C::streamed,
 {sum(R::dprojected, projection).touching(convolved).passing(0, 1), sum(R::dweight, scan_columns * taps),
  maybe(sum(R::dbias, scan_columns)), in(R::dout, convolved), in(R::projected, projection).touching(convolved),
  in(R::weight, scan_columns * taps), maybe(in(R::bias, scan_columns))},
 elementwise(3 * convolved * taps_and_gate)},  // forward again, inputs' and weights' gradients
{K::selective_scan, F::scans, D::forward, C::scan,
 {out(R::out, scanned), in(R::xbc, convolved), in(R::projected, projection).touching(time_steps),
  in(R::head_weights, 3 * Product(heads)),
  maybe(sum(R::states, batch * heads * Measure::states * head_dim)), maybe(in(R::positions, batch))},
 tensor_cores(tokens * scan_work)},
{K::selective_scan_backward, F::scans, D::backward, C::scan,
 {out(R::dxbc, convolved), sum(R::dprojected, projection).touching(time_steps).passing(0, 1),
  sum(R::dhead_weights, 3 * Product(heads)), in(R::dout, scanned), in(R::xbc, convolved),
  in(R::projected, projection).touching(time_steps), in(R::head_weights, 3 * Product(heads)),
  out(R::chunk_states).passing(1, 1)},
 tensor_cores(tokens * scan_backward_work, 2 * tokens * scan_work)},
{K::gated_norm, F::norms, D::forward, C::streamed,
 {out(R::out, scanned), maybe(out(R::rstd, rows * groups)), in(R::inp, scanned),
  in(R::projected, projection).touching(scanned), in(R::weight, heads * head_dim)},
 elementwise(10 * scanned)},  // gate 6, mean of squares 2, normalise 1, gain 1
{K::gated_norm_backward, F::norms, D::backward, C::streamed,
 {out(R::dinp, scanned), out(R::dprojected, projection).touching(scanned), sum(R::dweight, heads * head_dim),
  in(R::dout, scanned), in(R::inp, scanned), in(R::projected, projection).touching(scanned),
  in(R::weight, heads * head_dim), in(R::rstd, rows * groups)},
 elementwise(26 * scanned)},  // as RMSNorm's 10, the gate twice, its slope 4

// ---- Elements of (rows, cols). dinp may be dout.
{K::gelu, F::elementwise, D::forward, C::streamed, activation,
 elementwise(9 * matrix)},  // tanh form: the cubic 5, tanh 1, the rest 3
{K::gelu_backward, F::elementwise, D::backward, C::streamed, activation_backward,
 elementwise(18 * matrix)},
{K::relu, F::elementwise, D::forward, C::streamed, activation, elementwise(matrix)},
{K::relu_backward, F::elementwise, D::backward, C::streamed, activation_backward,
 elementwise(matrix)},
{K::squared_relu, F::elementwise, D::forward, C::streamed, ungated, elementwise(2 * matrix)},
{K::squared_relu_backward, F::elementwise, D::backward, C::streamed, ungated_backward,
 elementwise(3 * matrix)},
// GELU by the error function: 8 for this function, and an exponential more for its slope.
{K::gelu_exact, F::elementwise, D::forward, C::streamed, activation, elementwise(12 * matrix)},
{K::gelu_exact_backward, F::elementwise, D::backward, C::streamed, activation_backward,
 elementwise(18 * matrix)},
// With experts each row is multiplied by its weight.
{K::swiglu, F::elementwise, D::forward, C::streamed, gated,
 elementwise(6 * matrix)},  // sigmoid 4, two products
{K::swiglu_backward, F::elementwise, D::backward, C::streamed, gated_backward,
 elementwise(12 * matrix)},
{K::geglu, F::elementwise, D::forward, C::streamed, gated, elementwise(10 * matrix)},
{K::geglu_backward, F::elementwise, D::backward, C::streamed, gated_backward,
 elementwise(20 * matrix)},
{K::clamped_swiglu, F::elementwise, D::forward, C::streamed, gated,
 elementwise(10 * matrix)},  // as swiglu, and two clamps, a scale and a sum more
{K::clamped_swiglu_backward, F::elementwise, D::backward, C::streamed, gated_backward,
 elementwise(18 * matrix)},
// Multiplies experts' rows by their weights, where no activation does so. out may be inp.
{K::weigh_rows, F::elementwise, D::forward, C::streamed,
 {out(R::out, matrix), in(R::inp, matrix), in(R::row_weights, rows)}, elementwise(matrix)},
{K::weigh_rows_backward, F::elementwise, D::backward, C::streamed,
 {out(R::dinp, matrix), in(R::dout, matrix), in(R::inp, matrix), in(R::row_weights, rows), out(R::drow_weights, rows)},
 elementwise(3 * matrix)},
// a + b + bias; a copy of a where neither b nor bias is there.
{K::add, F::elementwise, D::any, C::streamed,
 {out(R::out, matrix), in(R::a, matrix), maybe(in(R::b, matrix)), maybe(in(R::bias, cols))},
 elementwise(matrix)},
// Between a matrix and `cols` columns, from Dims::first_column on, of rows that are `inner` wide: add_columns
// adds to the columns, take_columns reads them. The values are multiplied by Operation::scalar.
{K::add_columns, F::elementwise, D::any, C::streamed,
 {sum(R::out, rows * inner).touching(matrix), in(R::inp, matrix)}, elementwise(2 * matrix)},
{K::take_columns, F::elementwise, D::any, C::streamed,
 {out(R::out, matrix), in(R::inp, rows * inner).touching(matrix)}, elementwise(matrix)},
// Bias first, then mask and scale.
{K::dropout, F::elementwise, D::forward, C::streamed,
 {out(R::out, matrix), out(R::mask, matrix), in(R::inp, matrix), maybe(in(R::bias, cols))},
 elementwise(2 * matrix)},
{K::dropout_backward, F::elementwise, D::backward, C::streamed,
 {out(R::dinp, matrix), in(R::dout, matrix), in(R::mask, matrix)},
 elementwise(2 * matrix)},
{K::gather_last, F::elementwise, D::forward, C::streamed,
 {out(R::out, batch * cols), in(R::inp, matrix).touching(batch * cols)}},
// Conversion to fp8: the largest value becomes Operation::scalar, 448 in e4m3, 57344 in e5m2. FLOPs: absolute
// value and maximum, scale and rounding. It reads twice, because the scale must be known before it is used.
{K::quantise, F::elementwise, D::any, C::streamed,
 {out(R::out, at_least(one)), in(R::inp, at_least(one)).passing(2, 0)},
 on_each(4, R::inp)},
// Converts weights in fewer bits to the type of their product. Their scales may be in fewer bits, too.
{K::dequantise, F::elementwise, D::any, C::streamed,
 {out(R::out, at_least(one)), in(R::weight, at_least(one)), in(R::scale1, at_least(one)), maybe(in(R::scale2))},
 on_each(2, R::out)},
{K::zero, F::elementwise, D::any, C::streamed, {{out(R::buffer)}, 1}},

// ---- The loss, of (rows, vocab). Where ranks divide the vocabulary, a row's statistics are its maximum, the
// sum of exponentials below it and the target's logit on this rank. The loss follows from those of all ranks.
// Logits become their gradient, scaled by Operation::scalar: 1 / tokens of a step.
{K::cross_entropy_statistics, F::loss, D::forward, C::streamed,
 {out(R::statistics, 3 * rows), in(R::logits, rows * vocab), in(R::targets, rows)},
 elementwise(4 * rows * vocab)},  // maximum 1, exponential 2, sum 1
{K::cross_entropy, F::loss, D::any, C::streamed,
 {sum(R::logits, rows * vocab), out(R::losses, rows), in(R::targets, rows),
  maybe(in(R::statistics, at_least(3 * rows)))},
 elementwise(6 * rows * vocab)},  // maximum 1, exponential 2, sum 1, gradient 2
{K::sample, F::sampling, D::forward, C::streamed,
 {out(R::tokens, rows), in(R::logits, rows * vocab)},
 elementwise(3 * rows * vocab)},  // scale, maximum or exponential and sum

// ---- The optimizer, for any number of tensors. R::norm is a sum of squares (each times Operation::scalar;
// 0: once), and later beside it the norm and the factor that gradients are scaled by.
{K::squared_norm, F::optimizer, D::any, C::streamed,
 {{sum(R::norm), in(R::gradient)}, 1}, on_each(2, R::gradient)},
{K::clip_scale, F::optimizer, D::any, C::streamed, {sum(R::norm, Product(3))},
 elementwise(Product(3))},
// Divides fp16 gradients by the factor that the loss was multiplied by. found: whether any is no number.
{K::unscale, F::optimizer, D::any, C::streamed,
 {{sum(R::found), sum(R::gradient)}, 1}, on_each(2, R::gradient)},  // a product, a comparison
// The host waits for the buffer's value.
{K::host_read, F::optimizer, D::any, C::streamed, {in(R::buffer, at_least(one))}},
// With a master copy the parameter is only written. Clip 1, moments 3 + 4, corrections 2, root and division 3,
// decay and step 4.
{K::adamw, F::optimizer, D::any, C::streamed,
 {{in(R::norm), sum(R::parameter), in(R::gradient), sum(R::moment1), sum(R::moment2), maybe(sum(R::master))}, 5},
 on_each(17, R::parameter)},
// In addition to adamw, for each moment: two products, absolute value and maximum, rounding.
{K::adamw_8bit, F::optimizer, D::any, C::streamed,
 {{in(R::norm), sum(R::parameter), in(R::gradient), sum(R::moment1), sum(R::moment2), sum(R::scale1), sum(R::scale2),
   maybe(sum(R::master))}, 7},
 on_each(27, R::parameter)},
// Sums of a gradient over rows and columns come first, then sizes of the updates that they scale and of the
// parameter, then the step. Clip 1, square 1, two sums 2, root of their product 3, step's size 3, step 4.
{K::adafactor, F::optimizer, D::any, C::streamed,
 {{in(R::norm), sum(R::parameter).passing(2, 1).passing_beside(R::master, 0, 1), in(R::gradient).passing(3, 0),
   sum(R::row_moment), maybe(sum(R::column_moment)), maybe(sum(R::master).passing(2, 1))}, 5},
 on_each(14, R::parameter)},
{K::sgd, F::optimizer, D::any, C::streamed,
 {{in(R::norm), sum(R::parameter), in(R::gradient), sum(R::moment1), maybe(sum(R::master))}, 4},
 on_each(7, R::parameter)},  // clip 1, momentum 2, decay and step 4
{K::lion, F::optimizer, D::any, C::streamed,
 {{in(R::norm), sum(R::parameter), in(R::gradient), sum(R::moment1), maybe(sum(R::master))}, 4},
 on_each(12, R::parameter)},  // clip 1, the sign's argument 3, sign 1, moment 3, decay and step 4
{K::muon_momentum, F::optimizer, D::any, C::streamed,
 {{in(R::norm), out(R::update), in(R::gradient), sum(R::moment1)}, 3},
 on_each(5, R::update)},  // clip 1, momentum 2, Nesterov's step 2
// Newton-Schulz iterations of `groups` matrices (rows, cols): each reads X twice and writes it once.
{K::orthogonalise, F::optimizer, D::any, C::newton_schulz,
 {sum(R::update, groups * rows * cols).passing(2 * kNewtonSchulzIterations, kNewtonSchulzIterations)},
 tensor_cores(groups * newton_schulz, {})},
{K::apply_update, F::optimizer, D::any, C::streamed,
 {{in(R::norm), sum(R::parameter), in(R::update), maybe(sum(R::master))}, 3},
 on_each(4, R::parameter)},  // decay and step

// ---- Between the device's memory and the host's; any number of pairs.
{K::copy_to_host, F::copies, D::any, C::streamed, {{out(R::host), in(R::device)}, 2}},
{K::copy_from_host, F::copies, D::any, C::streamed, {{out(R::device), in(R::host)}, 2}},

// ---- Collectives over Operation::group; several buffers, or pairs, are one message. send and receive: with
// the program that Action::peer names. A shard that is summed into keeps what it holds.
{K::all_reduce, F::communication, D::any, C::network,
 {{sum(R::buffer)}, 1}, on_each(1, R::buffer), CollectiveOperation::all_reduce},
{K::reduce_scatter, F::communication, D::any, C::network,
 {{sum(R::shard), in(R::buffer)}, 2}, on_each(1, R::buffer), CollectiveOperation::reduce_scatter},
{K::all_gather, F::communication, D::any, C::network,
 {{out(R::buffer), in(R::shard)}, 2}, {}, CollectiveOperation::all_gather},
// {groups, experts, chosen, chosen_groups} where copies of tokens are exchanged, one for each of a token's
// `chosen` experts, which lie in at most `chosen_groups` of the experts' groups, and where one copy goes to
// each node, whose ranks pass it on; zero where each copy goes straight to its rank. heads, kv_heads and
// head_dim where context-parallel ranks exchange rows of all heads for all rows of some heads.
{K::all_to_all, F::communication, D::any, C::network,
 {{out(R::out), in(R::inp)}, 2}, {}, CollectiveOperation::all_to_all},
// Sends to the next rank of a ring, and receives from the one before.
{K::exchange, F::communication, D::any, C::network,
 {{out(R::out), in(R::inp)}, 2}, {}, CollectiveOperation::send_receive},
{K::send, F::communication, D::any, C::network,
 {in(R::buffer, at_least(one))}, {}, CollectiveOperation::send_receive},
{K::receive, F::communication, D::any, C::network,
 {out(R::buffer, at_least(one))}, {}, CollectiveOperation::send_receive},
}};
// clang-format on

namespace {

constexpr bool rows_are_in_order() {
  for (std::size_t i = 0; i < kOpKinds; ++i)
    if (kKinds[i].kind != static_cast<OpKind>(i)) return false;
  return true;
}
static_assert(rows_are_in_order(), "each kind has its row, in the order of OpKind");

}  // namespace

Factors factors(OpKind product) {
  Role found[2] = {};
  std::size_t n = 0;
  for (const OperandInfo& o : info(product).operands)
    if (o.access == Access::read && !o.optional && n < 2) found[n++] = o.role;
  return {found[0], found[1]};
}

}  // namespace sim
