// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): the hidden state is projected
// down to latents, these are normed and projected up to the queries of all heads and to their keys and
// values; beside them one key of all heads is turned by rotary embeddings. What is cached is the latent and
// the rotary key.
//
// Training and prefill expand keys and values and attend as usual. Decoding multiplies the queries by the
// keys' up-projection instead, attends to the cached latents themselves, and multiplies what comes out by the
// values' up-projection.
//
// Tensor-parallel ranks divide the up-projections; the down-projections are every rank's, of its own rows
// with sequence parallelism.
#pragma once
#include <string>
#include <vector>

#include "sim/plan/builder.h"
#include "sim/plan/parameters.h"

namespace sim {

// Intermediate results that backward reads.
struct LatentResults {
  BufferId q_down = kNoBuffer, q_rstd = kNoBuffer, q_latent = kNoBuffer;     // where queries have a latent
  BufferId kv_down = kNoBuffer, kv_rstd = kNoBuffer, kv_latent = kNoBuffer;  // kv_down: latent, then key
  BufferId kv_down_latent = kNoBuffer, key = kNoBuffer;                      // these two parts
  BufferId q = kNoBuffer;                                                    // of all heads, after rotation
  BufferId kv = kNoBuffer, kv_up = kNoBuffer;  // expanded with the rotary key; what the product writes of it
};
LatentResults add_latent_results(PlanBuilder& builder, const std::string& block, AddBuffer add,
                                 bool statistics);

// Scratch of a forward block, with sequence parallelism: all rows of what each rank has its own of.
struct LatentScratch {
  BufferId q_latent = kNoBuffer, kv_latent = kNoBuffer, key = kNoBuffer;
};
LatentScratch add_latent_scratch(PlanBuilder& builder, const std::string& block);

// What a layer's cache holds, (batch, tokens, kv_lora_rank + qk_rope_head_dim); absent: attention to the
// action's own tokens alone. `absorbed`: decoding.
struct LatentCache {
  BufferId latent = kNoBuffer;
  BufferId table = kNoBuffer;  // of its blocks
  bool absorbed = false;
};

// From the norm's output (`rows` of this rank, `whole` of all where these differ) to `out`, whose log-sum-exp
// is `lse`; table and positions of the rotary embeddings.
std::vector<Operation> latent_attention_forward(PlanBuilder& builder, const std::string& block,
                                                const LatentParameters& p, const LatentResults& r,
                                                const LatentScratch& scratch, const LatentCache& cache,
                                                LayerKind kind, BufferId rows, BufferId whole, BufferId out,
                                                BufferId lse, BufferId table, BufferId positions);

// From the gradient of what attention gives to that of the norm's output, for this rank's rows.
struct LatentBackward {
  std::vector<Operation> operations;
  BufferId dinp = kNoBuffer;
};
LatentBackward latent_attention_backward(PlanBuilder& builder, const std::string& block,
                                         const LatentParameters& p, const LatentResults& r, LayerKind kind,
                                         BufferId rows, BufferId out, BufferId lse, BufferId dout,
                                         BufferId table);

}  // namespace sim
