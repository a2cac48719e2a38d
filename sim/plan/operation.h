// The operations that plans are made of. A kind is priced in cost/work.h and executed by the runtime's kernel
// of that kind; neither knows of layers or models.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/dtype.h"
#include "sim/plan/extent.h"

namespace sim {

// Operands by kind, in order; [x] may be absent (kNoBuffer). "=" is written, "+=" is read and added to.
// Dimensions that a kind uses stand in braces; they are fields of Operation::dims.
enum class OpKind {
  // {rows, hidden, vocab}
  // Where ranks divide the vocabulary, each writes the rows of its own tokens, positions added, and zeros for
  // the rest; gradients of positions are taken from all rows.
  embedding,           // out=, tokens, weight, [position_weight], [positions]
  embedding_backward,  // dweight+=, [dposition_weight+=], dout, tokens
  // {rows, hidden}
  layernorm,           // out=, [mean=], [rstd=], inp, weight, bias
  layernorm_backward,  // dinp+=, dweight+=, dbias+=, dout, inp, weight, mean, rstd
  rmsnorm,             // out=, [rstd=], inp, weight
  rmsnorm_backward,    // dinp+=, dweight+=, dout, inp, weight, rstd
  // {rows M, cols N, inner K}: out (M, N), weight (N, K)
  matmul,                  // out=, inp, weight, [bias], [residual]   (residual may be out)
  matmul_backward_input,   // dinp=, dout, weight
  matmul_backward_weight,  // dweight+=, [dbias+=], dout, inp
  // {rows, cols N, inner K, groups, experts, chosen}: products with a weight each, over the groups (here:
  // experts) that a rank holds, whose rows are stored one after the other: out (M, N), weight (groups, N, K).
  // `scalar` is the share of rows that is no padding and no excess of the busiest rank; 0: all.
  grouped_matmul,                  // out=, inp, weight, [bias (groups, N)]
  grouped_matmul_backward_input,   // dinp=, dout, weight
  grouped_matmul_backward_weight,  // dweight+=, [dbias+=], dout, inp
  // {rows, experts, chosen}: for each row `chosen` of the experts, and their weights
  route,  // weights= (rows, chosen), indices= (rows, chosen), logits (rows, experts), [bias (experts)]
  route_backward,  // dlogits=, dweights, weights, indices, logits, [dbias+=]
  // {rows, cols, inner, chosen}: each row once for each of its experts, ordered by expert, which makes
  // `inner`
  // rows with the places that stay empty; the sum of these rows. Weights go with them.
  permute,    // out= (inner, cols), inp (rows, cols), indices, [out= (inner)], [weights (rows, chosen)]
  unpermute,  // out= (rows, cols), inp (inner, cols), indices, [out= (rows, chosen)], [weights (inner)]
  // {heads, kv_heads, head_dim}, sequences and lengths from the variables; qkv packed (rows, (heads + 2
  // kv_heads) head_dim). `window` is how many keys a query sees, 0: all; `chunk` how long the stretches are
  // within which it sees those before it, 0: there are none.
  qk_norm,           // out=, [rstd=], inp, weight   (RMSNorm of queries and keys; values are copied)
  qk_norm_backward,  // dqkv+=, dweight+=, inp, weight, rstd
  rope,              // qkv+=, table, [positions]
  rope_backward,     // dqkv+=, table
  // With keys and values of all ranks of a context-parallel group (batch, kv_length, 2 kv_heads head_dim),
  // the
  // queries are two stretches of the sequence, one from each end, so that every rank sees as many pairs; dkv
  // is
  // then of all ranks, and dqkv takes the queries' part alone.
  attention_flash,           // out=, [lse=], qkv, [kv]
  attention_flash_backward,  // dqkv=, dout, qkv, out, lse, [kv], [dkv=]
  // Latent attention, {heads, head_dim of queries and keys, value_dim, rope_dim}: q (rows, heads head_dim);
  // kv
  // (rows, heads (head_dim + value_dim)) with a copy of the one turned key (rows, rope_dim) for each head.
  // The cache
  // is (batch, tokens, rank + rope_dim): while decoding it is one key of head_dim for all heads, and its
  // first
  // value_dim columns are the value.
  rope_latent,                // q+=, key+=, [kv+=], table, [positions]
  rope_latent_backward,       // dq+=, dkey=, dkv, table
  attention_latent,           // out= (rows, heads value_dim), [lse=], q, kv
  attention_latent_backward,  // dq=, dkv=, dout, q, kv, out, lse
  latent_append,              // cache+=, latent (rows, head_dim - rope_dim), key, positions, [table]
  attention_latent_cached,    // out=, q (rows, heads head_dim), cache, positions, [table]
  // Attention in steps of a ring: a rank's queries and the keys and values of one rank, (rows, 2 kv_heads
  // head_dim).
  // Of two stretches from both ends of the sequence, half of the pairs see each other, whatever rank they are
  // of.
  attention_partial,           // out=, lse=, qkv, kv
  attention_partial_backward,  // dqkv+= (queries' part), dkv+=, dout, qkv, out, lse, kv
  attention_merge,             // out+=, lse+=, out, lse   (of two parts of the keys)
  // With dropout on the probabilities: its mask and what it leaves of them are kept beside them.
  attention_standard,           // out=, probabilities=, qkv, [mask=], [dropped=]
  attention_standard_backward,  // dqkv=, dprobabilities=, dout, qkv, probabilities, [mask], [dropped]
  // A cache is (batch, kv_heads, tokens, head_dim). With a table it is (batch * blocks, kv_heads, tokens of a
  // block, head_dim), and the table (batch, blocks) says which block holds a sequence's next tokens. With
  // scales (2, kv_heads), of keys, then of values, it is in fp8 (e4m3): what is stored is divided by its
  // head's.
  kv_append,         // k_cache+=, v_cache+=, qkv, positions, [table], [scales]
  attention_cached,  // out=, qkv, k_cache, v_cache, positions, [table], [scales]
  // {rows, cols}
  gelu,                   // out=, inp
  gelu_backward,          // dinp=, dout, inp   (dinp may be dout)
  relu,                   // as gelu
  relu_backward,          //
  squared_relu,           //
  squared_relu_backward,  //
  // With experts each row is multiplied by its weight (rows).
  swiglu,            // out= (rows, cols), gate_up (rows, 2 cols), [weights]
  swiglu_backward,   // dgate_up=, dout, gate_up, [weights], [dweights=]
  geglu,             // as swiglu
  geglu_backward,    //
  add,               // out=, a, [b], [bias (cols)]   (neither: a copy)
  dropout,           // out=, mask=, inp, [bias (cols)]   (bias first, then dropout)
  dropout_backward,  // dinp=, dout, mask
  gather_last,       // out= (batch, cols), inp (rows, cols)
  quantise,          // out= (fp8), inp   (the largest becomes `scalar`: 448 in e4m3, 57344 in e5m2)
  zero,              // any number of buffers=
  // {rows, vocab}
  // Where ranks divide the vocabulary: each row's maximum, sum of exponentials below it and target's logit on
  // this rank; from those of all ranks the loss follows.
  cross_entropy_statistics,  // statistics= (rows, 3), logits, targets
  cross_entropy,             // logits+= (becomes its gradient), losses=, targets, [statistics of all ranks]
  sample,                    // tokens=, logits
  // optimizer; multi-tensor: operands repeat
  squared_norm,  // norm+=, gradient...   (scalar: what squares are multiplied by; 0: 1)
  clip_scale,    // norm+= (sum of squares in, norm and scale out)
  unscale,    // found+= (whether any is no number), gradient+=...   (fp16: what the loss was multiplied by)
  host_read,  // buffer   (the host waits for its value)
  adamw,  // norm, then groups of five: parameter+=, gradient, moment1+=, moment2+=, [master+=]; with a master
          // copy the parameter is only written
  adamw_8bit,     // norm, then groups of seven: as adamw, with the moments' scales+= before the master copy
  adafactor,      // norm, then groups of five: parameter+=, gradient, rows+=, [columns+=], [master+=]
  sgd,            // norm, then groups of four: parameter+=, gradient, moment1+=, [master+=]
  muon_momentum,  // norm, then groups of three: update=, gradient, moment1+=
  orthogonalise,  // {rows, cols, groups}: update+=, by five Newton-Schulz iterations
  apply_update,   // groups of three: parameter+=, update, [master+=]
  // between the device's memory and the host's; any number of pairs
  copy_to_host,    // host=, device; ...
  copy_from_host,  // device=, host; ...
  // collectives over Operation::group; several buffers, or pairs, are one message. send and receive: with the
  // program that Action::peer names
  all_reduce,      // buffer+=...
  reduce_scatter,  // shard= (or +=), buffer; ...
  all_gather,      // buffer=, shard; ...
  // {groups, experts, chosen, chosen_groups} where copies of tokens are exchanged, one for each of a token's
  // `chosen` experts, which lie in at most `chosen_groups` of the experts' groups, and where one copy crosses
  // to each node, whose ranks pass it on; zero where each copy goes straight to its rank.
  all_to_all,  // out=, inp; ...
  exchange,    // out=, inp; ...: to the next rank of a ring, from the one before
  send,        // buffer
  receive,     // buffer=
};

std::string_view name(OpKind kind);

using BufferId = std::int32_t;
inline constexpr BufferId kNoBuffer = -1;

enum class Access { read, write, update };

struct Operand {
  BufferId buffer = kNoBuffer;
  Access access = Access::read;
  std::int32_t layer_offset = 0;  // a per-layer buffer's instance is at action.layer + layer_offset
};

// The subset that a kind names in the list above; the others stay zero.
struct Dims {
  Extent rows = 0, cols = 0, inner = 0;
  std::int64_t hidden = 0, vocab = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t groups = 0, experts = 0, chosen = 0;
  std::int64_t value_dim = 0, rope_dim = 0;
  std::int64_t window = 0, chunk = 0;
  std::int64_t chosen_groups = 0;
  bool operator==(const Dims&) const = default;
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
  float scalar =
      0;  // norms: epsilon; cross_entropy: what a token's gradient is scaled by, 1 / tokens of a step
  std::int32_t group = -1;  // collectives: index into Plan::groups
  // Runs beside the next operation of its block, and the one after that waits for both.
  bool beside_next = false;
  // Attention over heads that were exchanged for the sequence: queries are all kv_length tokens of it.
  bool whole_sequence = false;
  bool decay = false;  // adamw: weight decay applies to every tensor of this operation
};

// How many operands repeat, after the norm where there is one; 0: the kind has no groups.
constexpr std::size_t operands_in_group(OpKind k) {
  switch (k) {
    case OpKind::adamw:
    case OpKind::adafactor:
      return 5;
    case OpKind::adamw_8bit:
      return 7;
    case OpKind::sgd:
      return 4;
    case OpKind::muon_momentum:
    case OpKind::apply_update:
      return 3;
    default:
      return 0;
  }
}

// An action's variables as an operation sees them.
constexpr Variables bound_to(const Operation& op, Variables v) {
  if (op.whole_sequence) v.query_length = v.kv_length;
  return v;
}

constexpr bool is_collective(OpKind k) {
  return k >= OpKind::all_reduce;
}

}  // namespace sim
