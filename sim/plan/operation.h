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
  // kv_heads) head_dim). `window` is how many keys a query sees, 0: all.
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
  // With dropout on the probabilities: its mask and what it leaves of them are kept beside them.
  attention_standard,           // out=, probabilities=, qkv, [mask=], [dropped=]
  attention_standard_backward,  // dqkv=, dprobabilities=, dout, qkv, probabilities, [mask], [dropped]
  kv_append,                    // k_cache+=, v_cache+=, qkv, positions
  attention_cached,             // out=, qkv, k_cache, v_cache, positions
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
  adamw,  // norm, then groups of five: parameter+=, gradient, moment1+=, moment2+=, [master+=]; with a master
          // copy the parameter is only written
  // collectives over Operation::group; several buffers, or pairs, are one message. send and receive: with the
  // program that Action::peer names
  all_reduce,      // buffer+=...
  reduce_scatter,  // shard= (or +=), buffer; ...
  all_gather,      // buffer=, shard; ...
  all_to_all,      // out=, inp; ...
  send,            // buffer
  receive,         // buffer=
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
  std::int64_t window = 0;
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
  bool decay = false;       // adamw: weight decay applies to every tensor of this operation
};

constexpr bool is_collective(OpKind k) {
  return k >= OpKind::all_reduce;
}

}  // namespace sim
