// The operations of kernels/ that work row by row, and attention, on tensors in bf16: rows are widened to
// fp32 in the first caches, worked on there by the kernels of fp32, and rounded once on their way back. What
// reaches memory is 16 bits; sums are fp32. Shapes and meanings are those of the fp32 kernels' headers.
#pragma once
#include <cstdint>
#include <span>

#include "kernels/attention.h"
#include "kernels/cuda/types.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/optimizer.h"
#include "kernels/qk_norm.h"
#include "kernels/rope.h"

namespace kernels {

// A tensor of AdamW's in bf16; without a master copy the parameter itself is updated, and rounded to nearest.
struct AdamWTensorBf16 {
  cuda::bf16* parameter;
  const cuda::bf16* gradient;
  float *moment1, *moment2, *master;
  std::int64_t count;
  bool decay;
};

namespace cpu {

using cuda::bf16;

void embedding_forward(bf16* out, const std::int32_t* tokens, const bf16* weight, const bf16* position_weight,
                       const std::int32_t* positions, EmbeddingShape s);
// The gradients of a token's rows are summed in fp32 before they join what is there.
void embedding_backward(bf16* dweight, bf16* dposition_weight, const bf16* dout, const std::int32_t* tokens,
                        EmbeddingShape s);

void layernorm_forward(bf16* out, float* mean, float* rstd, const bf16* inp, const bf16* weight,
                       const bf16* bias, float eps, std::int64_t R, std::int64_t C);
void layernorm_backward(bf16* dinp, bf16* dweight, bf16* dbias, const bf16* dout, const bf16* inp,
                        const bf16* weight, const float* mean, const float* rstd, std::int64_t R,
                        std::int64_t C);
void rmsnorm_forward(bf16* out, float* rstd, const bf16* inp, const bf16* weight, float eps, std::int64_t R,
                     std::int64_t C);
void rmsnorm_backward(bf16* dinp, bf16* dweight, const bf16* dout, const bf16* inp, const bf16* weight,
                      const float* rstd, std::int64_t R, std::int64_t C);

// Activations of activation.h that have no gate, by their kernels on fp32.
using ActivationForward = void (*)(float* out, const float* inp, std::int64_t R, std::int64_t F);
using ActivationBackward = void (*)(float* dinp, const float* dout, const float* inp, std::int64_t R,
                                    std::int64_t F);
void activation_forward(ActivationForward kernel, bf16* out, const bf16* inp, std::int64_t R, std::int64_t F);
void activation_backward(ActivationBackward kernel, bf16* dinp, const bf16* dout, const bf16* inp,
                         std::int64_t R, std::int64_t F);

// Norms of queries and keys (qk_norm.h); the gains' gradients are summed in fp32 before they join what is
// there.
void qk_norm_forward(bf16* out, float* rstd, const bf16* inp, const bf16* weight, float eps, QkNormShape s);
void qk_norm_backward(bf16* dqkv, bf16* dweight, const bf16* inp, const bf16* weight, const float* rstd,
                      QkNormShape s);

// out (R, C) = scale * inp's columns (elementwise.h).
void take_columns(bf16* out, const bf16* inp, float scale, std::int64_t R, Columns columns);
void add(bf16* out, const bf16* a, const bf16* b, std::int64_t R, std::int64_t C);

void rope_forward(bf16* qkv, const float* table, const std::int32_t* positions, RopeShape s);
void rope_backward(bf16* dqkv, const float* table, RopeShape s);

// By packed tiles where these fit (attention_packed.h). Elsewhere each thread holds one head's
// queries, keys, values and outputs in fp32, and their gradients: at most (8 + 2 H / G) T D floats. ALiBi is
// in fp32 alone. Sinks (H) are this argument, or null.
void attention_flash_forward(bf16* out, float* lse, const bf16* qkv, AttentionShape s,
                             const bf16* sinks = nullptr);
void attention_flash_backward(bf16* dqkv, const bf16* dout, const bf16* qkv, const bf16* out,
                              const float* lse, AttentionShape s);
// dsinks (H) += their gradient.
void attention_sinks_backward(bf16* dsinks, const bf16* dout, const bf16* out, const float* lse,
                              const bf16* sinks, AttentionShape s);
// New tokens' rows are held in fp32: (H + 2G) D floats each.
void kv_append(const KvCache& cache, const bf16* qkv, const std::int32_t* positions, AttentionShape s);
void attention_cached(bf16* out, const bf16* qkv, const KvCache& cache, const std::int32_t* positions,
                      AttentionShape s, const bf16* sinks = nullptr);

void cross_entropy_forward_backward(bf16* logits_to_dlogits, float* losses, const std::int32_t* targets,
                                    float scale, std::int64_t R, std::int64_t V, std::int64_t words,
                                    float cap = 0);

void squared_norm(double* sum_of_squares, const bf16* gradient, std::int64_t count);
void adamw(const AdamWTensorBf16& tensor, const float* gradient_scale, const AdamWSettings& settings);

}  // namespace cpu
}  // namespace kernels
