// The short convolution before a state-space layer's scan: each channel on its own, over the last K tokens,
// then SiLU (Mamba, Gu & Dao 2023, arXiv 2312.00752, section 3.4).
//   pre[t, c] = bias[c] + sum_k weight[c, k] inp[t - (K - 1) + k, c];
//   out[t, c] = pre[t, c] sigmoid(pre[t, c])
// Tokens before a sequence's first are zero. FLOPs: 2 B T C K, and those of SiLU.
#pragma once
#include <cstdint>

namespace kernels {

// B sequences of T tokens, C channels, K taps.
struct CausalConvShape {
  std::int64_t B, T, C, K;
};

namespace cpu {

// out (B, T, C); inp: row (b, t) is the C floats at inp + (b T + t) inp_stride; weight (C, K), bias (C),
// which may be null. history (B, K - 1, C), oldest first, may be null: the inputs before the first token,
// replaced by those before the next call's. Where first_positions (B) is null or says 0 for a sequence, what
// its history holds on entry counts as zero.
void causal_conv_forward(float* out, float* history, const float* inp, std::int64_t inp_stride,
                         const float* weight, const float* bias, const std::int32_t* first_positions,
                         CausalConvShape s);

// Without a history. dinp = gradient, rows as inp's, dinp_stride apart; dweight (C, K) +=; dbias (C) +=, may
// be null.
void causal_conv_backward(float* dinp, std::int64_t dinp_stride, float* dweight, float* dbias,
                          const float* dout, const float* inp, std::int64_t inp_stride, const float* weight,
                          const float* bias, CausalConvShape s);

}  // namespace cpu
}  // namespace kernels
