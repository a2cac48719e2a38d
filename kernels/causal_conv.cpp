#include "kernels/causal_conv.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/vector_math.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

// How many channels a task carries through all tokens. Their taps, rows and partial sums stay in the first
// cache. Each weight gradient belongs to one task, so its sum does not depend on the number of threads.
constexpr std::int64_t kChannels = 64;
constexpr std::int64_t kMostTaps = 8;

// A block of channels [first, first + count), with its taps transposed: one row of channels for each tap.
struct Channels {
  std::int64_t first, count, K;
  float taps[kMostTaps][kChannels];
  float bias[kChannels];
};

KERNELS_INLINE void load_channels(Channels& c, const float* weight, const float* bias, std::int64_t task,
                                  CausalConvShape s) {
  c.first = task * kChannels;
  c.count = std::min(kChannels, s.C - c.first);
  c.K = s.K;
  for (std::int64_t k = 0; k < s.K; ++k)
    for (std::int64_t i = 0; i < c.count; ++i) c.taps[k][i] = weight[(c.first + i) * s.K + k];
  for (std::int64_t i = 0; i < c.count; ++i) c.bias[i] = bias != nullptr ? bias[c.first + i] : 0.0f;
}

// The last K inputs of a block of channels, as pointers: row k is the input of tap k, null where there is
// none.
struct Taps {
  const float* row[kMostTaps];
};

// pre (count) = bias + sum of taps.
KERNELS_INLINE void convolve(float* pre, const Channels& c, const Taps& taps) {
#pragma omp simd
  for (std::int64_t i = 0; i < c.count; ++i) pre[i] = c.bias[i];
  for (std::int64_t k = 0; k < c.K; ++k) {
    const float* inp = taps.row[k];
    if (inp == nullptr) continue;
    const float* tap = c.taps[k];
#pragma omp simd
    for (std::int64_t i = 0; i < c.count; ++i) pre[i] += tap[i] * inp[i];
  }
}

// Inputs of sequence b's token t: from inp, and before the sequence's first token from the history, which is
// null where it is zero.
KERNELS_INLINE Taps taps_at(const float* inp, std::int64_t stride, const float* history, std::int64_t b,
                            std::int64_t t, std::int64_t first, CausalConvShape s) {
  Taps taps{};
  for (std::int64_t k = 0; k < s.K; ++k) {
    const std::int64_t from = t - (s.K - 1) + k;
    if (from >= 0)
      taps.row[k] = inp + (b * s.T + from) * stride + first;
    else if (history != nullptr)
      taps.row[k] = history + (b * (s.K - 1) + (s.K - 1) + from) * s.C + first;
  }
  return taps;
}

KERNELS_MULTIVERSION void forward_token(float* out, const Channels& c, const Taps& taps) {
  float pre[kChannels];
  convolve(pre, c, taps);
#pragma omp simd
  for (std::int64_t i = 0; i < c.count; ++i) out[i] = pre[i] * sigmoid_approx(pre[i]).value;
}

// The inputs before the token after the last: rows of inp, or older rows of the history itself, moved up.
void keep_history(float* history, const float* inp, std::int64_t stride, bool was_zero, std::int64_t b,
                  const Channels& c, CausalConvShape s) {
  for (std::int64_t k = 0; k + 1 < s.K; ++k) {
    float* to = history + (b * (s.K - 1) + k) * s.C + c.first;
    const std::int64_t from = s.T - (s.K - 1) + k;
    if (from >= 0)
      std::copy_n(inp + (b * s.T + from) * stride + c.first, c.count, to);
    else if (was_zero)
      std::fill_n(to, c.count, 0.0f);
    else
      std::copy_n(history + (b * (s.K - 1) + k + s.T) * s.C + c.first, c.count, to);
  }
}

// dpre = dout silu'(pre), and with it the weight gradients of this token.
KERNELS_MULTIVERSION void gradient_token(float* dpre, float (*dtaps)[kChannels], float* dbias,
                                         const float* dout, const Channels& c, const Taps& taps) {
  float pre[kChannels];
  convolve(pre, c, taps);
#pragma omp simd
  for (std::int64_t i = 0; i < c.count; ++i) {
    const Sigmoid gate = sigmoid_approx(pre[i]);
    dpre[i] = dout[i] * gate.value * (1.0f + pre[i] * gate.complement);
    dbias[i] += dpre[i];
  }
  for (std::int64_t k = 0; k < c.K; ++k) {
    const float* inp = taps.row[k];
    if (inp == nullptr) continue;
    float* dtap = dtaps[k];
#pragma omp simd
    for (std::int64_t i = 0; i < c.count; ++i) dtap[i] += dpre[i] * inp[i];
  }
}

// dinp (count) = a sum over the tokens that read this input: the token that lies j later reads it through tap
// K - 1 - j.
KERNELS_MULTIVERSION void input_gradient(float* dinp, const Channels& c, const Taps& later) {
#pragma omp simd
  for (std::int64_t i = 0; i < c.count; ++i) dinp[i] = 0.0f;
  for (std::int64_t j = 0; j < c.K; ++j) {
    const float* dpre = later.row[j];
    if (dpre == nullptr) continue;
    const float* tap = c.taps[c.K - 1 - j];
#pragma omp simd
    for (std::int64_t i = 0; i < c.count; ++i) dinp[i] += tap[i] * dpre[i];
  }
}

std::int64_t task_count(CausalConvShape s) {
  return (s.C + kChannels - 1) / kChannels;
}

}  // namespace

void causal_conv_forward(float* out, float* history, const float* inp, std::int64_t inp_stride,
                         const float* weight, const float* bias, const std::int32_t* first_positions,
                         CausalConvShape s) {
  parallel_ranges(task_count(s), s.B * s.T * kChannels * s.K, [=](std::int64_t begin, std::int64_t end) {
    Channels c;
    for (std::int64_t task = begin; task < end; ++task) {
      load_channels(c, weight, bias, task, s);
      for (std::int64_t b = 0; b < s.B; ++b) {
        const bool zero = history == nullptr || first_positions == nullptr || first_positions[b] == 0;
        for (std::int64_t t = 0; t < s.T; ++t)
          forward_token(out + (b * s.T + t) * s.C + c.first, c,
                        taps_at(inp, inp_stride, zero ? nullptr : history, b, t, c.first, s));
        if (history != nullptr) keep_history(history, inp, inp_stride, zero, b, c, s);
      }
    }
  });
}

void causal_conv_backward(float* dinp, std::int64_t dinp_stride, float* dweight, float* dbias,
                          const float* dout, const float* inp, std::int64_t inp_stride, const float* weight,
                          const float* bias, CausalConvShape s) {
  parallel_ranges(task_count(s), 3 * s.B * s.T * kChannels * s.K, [=](std::int64_t begin, std::int64_t end) {
    Channels c;
    for (std::int64_t task = begin; task < end; ++task) {
      load_channels(c, weight, bias, task, s);
      float dtaps[kMostTaps][kChannels] = {}, dbias_sum[kChannels] = {};
      float ring[kMostTaps][kChannels];  // dpre of the last K tokens that were visited
      for (std::int64_t b = 0; b < s.B; ++b)
        for (std::int64_t t = s.T - 1; t >= 0; --t) {
          gradient_token(ring[t % s.K], dtaps, dbias_sum, dout + (b * s.T + t) * s.C + c.first, c,
                         taps_at(inp, inp_stride, nullptr, b, t, c.first, s));
          Taps later{};
          for (std::int64_t j = 0; j < std::min(s.K, s.T - t); ++j) later.row[j] = ring[(t + j) % s.K];
          input_gradient(dinp + (b * s.T + t) * dinp_stride + c.first, c, later);
        }
      for (std::int64_t i = 0; i < c.count; ++i) {
        for (std::int64_t k = 0; k < s.K; ++k) dweight[(c.first + i) * s.K + k] += dtaps[k][i];
        if (dbias != nullptr) dbias[c.first + i] += dbias_sum[i];
      }
    }
  });
}

}  // namespace kernels::cpu
