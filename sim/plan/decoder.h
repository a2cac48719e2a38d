// The mathematics of a pre-norm decoder, block by block, as lists of operations. Forward and backward stand
// beside each other; which buffers an intermediate result lies in (kept, recomputed, or scratch) is the
// caller's choice.
#pragma once
#include <string>
#include <vector>

#include "sim/plan/builder.h"
#include "sim/plan/context_parallel.h"
#include "sim/plan/latent_attention.h"
#include "sim/plan/moe.h"
#include "sim/plan/parameters.h"
#include "sim/plan/state_space.h"

namespace sim {

struct NormResult {
  BufferId out = kNoBuffer, mean = kNoBuffer, rstd = kNoBuffer;
};

// Intermediate results of one decoder layer; absent ones are kNoBuffer.
struct LayerResults {
  NormResult attention_norm;
  BufferId qkv_product = kNoBuffer, qk_rstd = kNoBuffer;  // before queries' and keys' norm
  BufferId qkv = kNoBuffer;                               // after rotation
  BufferId kv = kNoBuffer;                                // its keys and values, where other ranks read them
  LatentResults latent;                                   // in place of these
  NormResult state_space_norm;
  StateSpaceResults state_space;
  BufferId attention = kNoBuffer;
  BufferId qkv_of_heads = kNoBuffer,
           attention_of_heads = kNoBuffer;  // where ranks exchange sequence for heads
  BufferId lse = kNoBuffer;                 // flash
  BufferId probabilities = kNoBuffer, mask = kNoBuffer,
           dropped = kNoBuffer;                 // standard; the latter two: dropout
  BufferId attention_dropout_mask = kNoBuffer;  // of the projection's dropout
  BufferId middle = kNoBuffer;                  // residual stream between attention and feed-forward
  NormResult mlp_norm;
  // Where norms follow attention and feed-forward: what they read, and their statistics.
  BufferId attention_product = kNoBuffer, mlp_product = kNoBuffer;
  NormResult attention_output_norm, mlp_output_norm;
  BufferId mlp_up = kNoBuffer, mlp_activation = kNoBuffer;
  ExpertResults experts;
  BufferId mlp_dropout_mask = kNoBuffer;
  std::vector<BufferId> adapters;  // between their two products
};

BufferId kept(PlanBuilder& builder, const std::string& block, const std::string& name, DType dtype,
              const Shape& shape);
BufferId scratch(PlanBuilder& builder, const std::string& block, const std::string& name, DType dtype,
                 const Shape& shape);

// Adds the buffers of a training layer's results: all that a layer of any of these kinds needs.
LayerResults add_layer_results(PlanBuilder& builder, const std::string& block, AddBuffer add,
                               const std::vector<LayerKind>& kinds);
// Adds results that no backward pass will read, as scratch: without statistics, and with the residual stream
// in `residual`.
LayerResults add_inference_results(PlanBuilder& builder, const std::string& block, BufferId residual,
                                   bool kv_cache, LayerKind kind);

// Where generation finds and keeps earlier keys and values.
struct KvCache {
  BufferId k = kNoBuffer, v = kNoBuffer;
  BufferId table = kNoBuffer, scales = kNoBuffer;  // of blocks; of fp8
  LatentCache latent{};                            // in place of these
  StateSpaceCache states{};                        // of layers that have these instead
  explicit operator bool() const {
    return k != kNoBuffer || latent.latent != kNoBuffer || states.states != kNoBuffer;
  }
};

struct LayerContext {
  LayerKind kind;
  Operand residual_in{}, residual_out{};                   // read; written
  BufferId rope_table = kNoBuffer, positions = kNoBuffer;  // the layer's own table
  KvCache cache{};                                         // absent: attention over the action's own tokens
  // Scratch of the forward block: results of products whose kernels do not add the residual stream
  // themselves; with sequence parallelism also this rank's rows of these, and all rows of the norms' outputs.
  BufferId projection = kNoBuffer, projection_rows = kNoBuffer;
  BufferId attention_norm_gathered = kNoBuffer, state_space_norm_gathered = kNoBuffer,
           mlp_norm_gathered = kNoBuffer;
  BufferId output_norm = kNoBuffer;      // what norms behind attention and feed-forward give
  BufferId kv_of_all_ranks = kNoBuffer;  // context parallelism
  LatentScratch latent{};
  RingScratch ring{};
  ExpertScratch experts{};
};

// Adds the scratch of a forward or recompute block.
LayerContext with_scratch(PlanBuilder& builder, const std::string& block, LayerContext context);

std::vector<Operation> layer_forward(PlanBuilder& builder, const std::string& block,
                                     const DecoderParameters& p, const LayerResults& r,
                                     const LayerContext& c);
// Scratch for the keys and values of all context-parallel ranks; kNoBuffer where they are not gathered.
BufferId add_kv_of_all_ranks(PlanBuilder& builder, const std::string& block, const std::string& name);

// `gradient` is the residual stream's, updated in place from the layer's output to its input. Zero-bubble
// schedules run the products that give weights' gradients later, in an action of their own (`weight`, empty
// elsewhere): what these read is then kept.
inline std::string weight_block(const std::string& input_block) {
  return input_block.substr(0, input_block.rfind("_input")) + "_weight";
}
struct LayerBackward {
  std::vector<Operation> input, weight;
};
LayerBackward layer_backward(PlanBuilder& builder, const std::string& block, const DecoderParameters& p,
                             const LayerResults& r, const LayerContext& c, BufferId gradient);

std::vector<Operation> norm_forward(const PlanBuilder& builder, const std::string& id, const Affine& p,
                                    const NormResult& r, Operand inp, Extent rows);
std::vector<Operation> norm_backward(const PlanBuilder& builder, const std::string& id, const Affine& p,
                                     const NormResult& r, Operand inp, BufferId dinp, BufferId dout);
NormResult add_norm_result(PlanBuilder& builder, const std::string& block, const std::string& name,
                           AddBuffer add, bool statistics);

// Adds the rotary table of layers with windows, of `rows` positions; kNoBuffer where theirs is the model's.
BufferId add_local_rope_table(PlanBuilder& builder, std::int64_t rows);

// out = embedding_multiplier * inp, of this rank's rows; the same for gradients. `suffix`: forward, backward.
Operation scale_embedding(const PlanBuilder& builder, const std::string& suffix, Operand out, BufferId inp);

// Collectives of tensor parallelism, sums over its ranks of (rows, hidden) results; empty without it. With
// sequence parallelism a rank keeps its own rows alone, in `rows`; else all are in `whole`.
std::vector<Operation> sum_over_tensor_ranks(const PlanBuilder& builder, const std::string& id, Phase pass,
                                             BufferId whole, BufferId rows);

// Gathers what sequence parallelism divides: each rank's `rows` into `whole`.
Operation gather_rows(const PlanBuilder& builder, const std::string& id, Phase pass, BufferId whole,
                      BufferId rows);

// The type that a product with a weight computes in. Engines multiply fp8 weights as they are; Ridgepoint's
// kernels expand weights of fewer bits on the way (kernels/cuda/gemv.h), and all software expands integers.
DType product_type(const PlanBuilder& builder, BufferId weight);
// Lets a forward product read the scales and zeros that its weight has.
void add_scales(const PlanBuilder& builder, BufferId weight, Operation& product);
// out (rows, cols) = inp (rows, inner) W^T [+ bias] [+ residual]
Operation matmul(const PlanBuilder& builder, const std::string& id, Operand out, Operand inp, const Affine& p,
                 Operand residual, Dims dims);
// The two backward products of a matmul. The weight's comes first: what only it reads can then be freed.
std::vector<Operation> matmul_backward(const PlanBuilder& builder, const std::string& id, BufferId dinp,
                                       BufferId dout, BufferId inp, const Affine& p, Dims dims);

}  // namespace sim
