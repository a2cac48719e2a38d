// Attention over the tokens of several context-parallel ranks, each of which has two segments of every
// sequence, one from each end (zigzag), so that all see as many pairs.
//
// ring: keys and values pass from rank to rank, while each rank attends to those that it has at the moment;
// the parts are merged by their log-sum-exp. Backward passes them round once more. Their gradients follow one
// step behind, and reach their own rank last (Liu et al. 2023, arXiv 2310.01889; Brandon et al. 2023, arXiv
// 2311.09431). all_to_all: each rank gives its rows of other ranks' heads for all rows of its own heads, and
// back (Jacobs et al. 2023, arXiv 2309.14509).
#pragma once
#include <array>
#include <string>
#include <vector>

#include "sim/plan/builder.h"
#include "sim/plan/parameters.h"

namespace sim {

// Whether ranks exchange keys and values in this way; false where there is one rank.
bool exchanges_by(const PlanBuilder& builder, ContextParallelComm comm);

// ---- ring

struct RingScratch {
  std::array<BufferId, 2> kv{kNoBuffer, kNoBuffer};  // in turn: what has come, what comes
  BufferId attention = kNoBuffer, lse = kNoBuffer;   // of one step
};
RingScratch add_ring_scratch(PlanBuilder& builder, const std::string& block);

// `kv` is the keys' and values' part of `qkv`. Dims are those of flash attention.
struct AttentionBuffers {
  BufferId qkv = kNoBuffer, kv = kNoBuffer, attention = kNoBuffer, lse = kNoBuffer;
  Tensor sinks;  // of all heads
};
std::vector<Operation> ring_attention_forward(const PlanBuilder& builder, const Dims& dims,
                                              const AttentionBuffers& a, const RingScratch& scratch);
// Writes d_qkv.
std::vector<Operation> ring_attention_backward(PlanBuilder& builder, const std::string& block,
                                               const Dims& dims, const AttentionBuffers& a, BufferId d_qkv,
                                               BufferId d_attention);

// ---- all-to-all

// All rows of the sequence, of a rank's own heads: (batch, kv_length, size / ranks).
Shape shape_of_heads(const PlanBuilder& builder, std::int64_t size);

// `of_heads` are the buffers of that shape; the other two are a rank's own rows.
std::vector<Operation> exchanged_attention_forward(const PlanBuilder& builder, const Dims& dims,
                                                   const AttentionBuffers& of_heads, BufferId qkv,
                                                   BufferId attention);
std::vector<Operation> exchanged_attention_backward(PlanBuilder& builder, const std::string& block,
                                                    const Dims& dims, const AttentionBuffers& of_heads,
                                                    BufferId d_qkv, BufferId d_attention);

}  // namespace sim
