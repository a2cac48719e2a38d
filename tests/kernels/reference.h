// The oracle: every operation of kernels/ as textbook loops, one scalar at a time, in the arithmetic of Real.
// With double it is what the kernels are held to; with float it is the plain implementation whose rounding
// error sets the allowance. Shapes and meanings are those of kernels/*.h.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"
#include "kernels/optimizer.h"
#include "kernels/rope.h"

namespace reference {

template <class Real>
using Tensor = std::vector<Real>;

template <class Real>
Tensor<Real> zeros(std::int64_t count) {
  return Tensor<Real>(static_cast<std::size_t>(count), Real(0));
}

// -----------------------------------------------------------------------------------------------------------------
// matmul

template <class Real>
Tensor<Real> matmul_forward(const Tensor<Real>& inp, const Tensor<Real>& weight, const Tensor<Real>& bias,
                            const Tensor<Real>& residual, kernels::MatmulShape s) {
  auto out = zeros<Real>(s.M * s.N);
  for (std::int64_t m = 0; m < s.M; ++m)
    for (std::int64_t n = 0; n < s.N; ++n) {
      Real sum = 0;
      for (std::int64_t k = 0; k < s.K; ++k) sum += inp[m * s.K + k] * weight[n * s.K + k];
      if (!bias.empty()) sum += bias[n];
      if (!residual.empty()) sum += residual[m * s.N + n];
      out[m * s.N + n] = sum;
    }
  return out;
}

template <class Real>
Tensor<Real> matmul_backward_input(Tensor<Real> dinp, const Tensor<Real>& dout, const Tensor<Real>& weight,
                                   kernels::MatmulShape s) {
  for (std::int64_t m = 0; m < s.M; ++m)
    for (std::int64_t k = 0; k < s.K; ++k) {
      Real sum = 0;
      for (std::int64_t n = 0; n < s.N; ++n) sum += dout[m * s.N + n] * weight[n * s.K + k];
      dinp[m * s.K + k] += sum;
    }
  return dinp;
}

template <class Real>
void matmul_backward_weight(Tensor<Real>& dweight, Tensor<Real>& dbias, const Tensor<Real>& dout,
                            const Tensor<Real>& inp, kernels::MatmulShape s) {
  for (std::int64_t n = 0; n < s.N; ++n) {
    for (std::int64_t k = 0; k < s.K; ++k) {
      Real sum = 0;
      for (std::int64_t m = 0; m < s.M; ++m) sum += dout[m * s.N + n] * inp[m * s.K + k];
      dweight[n * s.K + k] += sum;
    }
    Real sum = 0;
    for (std::int64_t m = 0; m < s.M; ++m) sum += dout[m * s.N + n];
    dbias[n] += sum;
  }
}

// ------------------------------------------------------------------------------------------------------------------
// norms

template <class Real>
Tensor<Real> layernorm_forward(const Tensor<Real>& inp, const Tensor<Real>& weight, const Tensor<Real>& bias,
                               Real eps, std::int64_t R, std::int64_t C, Tensor<Real>* mean = nullptr,
                               Tensor<Real>* rstd = nullptr) {
  auto out = zeros<Real>(R * C);
  for (std::int64_t r = 0; r < R; ++r) {
    Real sum = 0, squares = 0;
    for (std::int64_t c = 0; c < C; ++c) sum += inp[r * C + c];
    const Real m = sum / static_cast<Real>(C);
    for (std::int64_t c = 0; c < C; ++c) squares += (inp[r * C + c] - m) * (inp[r * C + c] - m);
    const Real s = 1 / std::sqrt(squares / static_cast<Real>(C) + eps);
    for (std::int64_t c = 0; c < C; ++c) out[r * C + c] = (inp[r * C + c] - m) * s * weight[c] + bias[c];
    if (mean) mean->push_back(m);
    if (rstd) rstd->push_back(s);
  }
  return out;
}

template <class Real>
void layernorm_backward(Tensor<Real>& dinp, Tensor<Real>& dweight, Tensor<Real>& dbias,
                        const Tensor<Real>& dout, const Tensor<Real>& inp, const Tensor<Real>& weight,
                        Real eps, std::int64_t R, std::int64_t C) {
  Tensor<Real> mean, rstd;
  layernorm_forward(inp, weight, zeros<Real>(C), eps, R, C, &mean, &rstd);
  for (std::int64_t r = 0; r < R; ++r) {
    Real scaled_mean = 0, slope = 0;
    for (std::int64_t c = 0; c < C; ++c) {
      const Real normed = (inp[r * C + c] - mean[r]) * rstd[r];
      const Real scaled = dout[r * C + c] * weight[c];
      scaled_mean += scaled / static_cast<Real>(C);
      slope += scaled * normed / static_cast<Real>(C);
      dweight[c] += dout[r * C + c] * normed;
      dbias[c] += dout[r * C + c];
    }
    for (std::int64_t c = 0; c < C; ++c) {
      const Real normed = (inp[r * C + c] - mean[r]) * rstd[r];
      dinp[r * C + c] += rstd[r] * (dout[r * C + c] * weight[c] - scaled_mean - normed * slope);
    }
  }
}

template <class Real>
Tensor<Real> rmsnorm_forward(const Tensor<Real>& inp, const Tensor<Real>& weight, Real eps, std::int64_t R,
                             std::int64_t C, Tensor<Real>* rstd = nullptr) {
  auto out = zeros<Real>(R * C);
  for (std::int64_t r = 0; r < R; ++r) {
    Real squares = 0;
    for (std::int64_t c = 0; c < C; ++c) squares += inp[r * C + c] * inp[r * C + c];
    const Real s = 1 / std::sqrt(squares / static_cast<Real>(C) + eps);
    for (std::int64_t c = 0; c < C; ++c) out[r * C + c] = inp[r * C + c] * s * weight[c];
    if (rstd) rstd->push_back(s);
  }
  return out;
}

template <class Real>
void rmsnorm_backward(Tensor<Real>& dinp, Tensor<Real>& dweight, const Tensor<Real>& dout,
                      const Tensor<Real>& inp, const Tensor<Real>& weight, Real eps, std::int64_t R,
                      std::int64_t C) {
  Tensor<Real> rstd;
  rmsnorm_forward(inp, weight, eps, R, C, &rstd);
  for (std::int64_t r = 0; r < R; ++r) {
    Real slope = 0;
    for (std::int64_t c = 0; c < C; ++c) {
      const Real normed = inp[r * C + c] * rstd[r];
      slope += dout[r * C + c] * weight[c] * normed / static_cast<Real>(C);
      dweight[c] += dout[r * C + c] * normed;
    }
    for (std::int64_t c = 0; c < C; ++c)
      dinp[r * C + c] += rstd[r] * (dout[r * C + c] * weight[c] - inp[r * C + c] * rstd[r] * slope);
  }
}

// ------------------------------------------------------------------------------------------------------------
// activations

template <class Real>
Real gelu(Real x) {  // Hendrycks & Gimpel 2016, the tanh approximation
  return Real(0.5) * x * (1 + std::tanh(Real(0.79788456080286535588) * (x + Real(0.044715) * x * x * x)));
}

template <class Real>
Real gelu_derivative(Real x) {
  const Real t = std::tanh(Real(0.79788456080286535588) * (x + Real(0.044715) * x * x * x));
  const Real slope = Real(0.79788456080286535588) * (1 + 3 * Real(0.044715) * x * x);
  return Real(0.5) * (1 + t) + Real(0.5) * x * (1 - t * t) * slope;
}

template <class Real>
Real silu(Real x) {
  return x / (1 + std::exp(-x));
}

template <class Real>
Real silu_derivative(Real x) {
  const Real s = 1 / (1 + std::exp(-x));
  return s * (1 + x * (1 - s));
}

template <class Real>
Tensor<Real> gelu_forward(const Tensor<Real>& inp) {
  Tensor<Real> out;
  for (const Real x : inp) out.push_back(gelu(x));
  return out;
}

template <class Real>
Tensor<Real> gelu_backward(const Tensor<Real>& dout, const Tensor<Real>& inp) {
  Tensor<Real> dinp;
  for (std::size_t i = 0; i < inp.size(); ++i) dinp.push_back(dout[i] * gelu_derivative(inp[i]));
  return dinp;
}

template <class Real>
Tensor<Real> swiglu_forward(const Tensor<Real>& gate_up, std::int64_t R, std::int64_t F) {
  auto out = zeros<Real>(R * F);
  for (std::int64_t r = 0; r < R; ++r)
    for (std::int64_t f = 0; f < F; ++f)
      out[r * F + f] = silu(gate_up[r * 2 * F + f]) * gate_up[r * 2 * F + F + f];
  return out;
}

template <class Real>
Tensor<Real> swiglu_backward(const Tensor<Real>& dout, const Tensor<Real>& gate_up, std::int64_t R,
                             std::int64_t F) {
  auto dgate_up = zeros<Real>(R * 2 * F);
  for (std::int64_t r = 0; r < R; ++r)
    for (std::int64_t f = 0; f < F; ++f) {
      const Real gate = gate_up[r * 2 * F + f], up = gate_up[r * 2 * F + F + f];
      dgate_up[r * 2 * F + f] = dout[r * F + f] * up * silu_derivative(gate);
      dgate_up[r * 2 * F + F + f] = dout[r * F + f] * silu(gate);
    }
  return dgate_up;
}

// --------------------------------------------------------------------------------------------------------------
// attention

// Index of element d of head `index` (queries first, then keys, then values) of token t in packed qkv.
inline std::int64_t packed(kernels::AttentionShape s, std::int64_t b, std::int64_t t, std::int64_t index,
                           std::int64_t d) {
  return ((b * s.T + t) * (s.H + 2 * s.G) + index) * s.D + d;
}

// probabilities (B, H, T, T), under a causal mask zero above the diagonal; lse (B, H, T).
// Whether query i sees key j of those before it, by the definitions of a window and of chunks.
inline bool sees(const kernels::AttentionMask& mask, std::int64_t i, std::int64_t j) {
  return (mask.window == 0 || i - j < mask.window) && (mask.chunk == 0 || i / mask.chunk == j / mask.chunk);
}

// ALiBi's slopes of n heads: a geometric sequence that begins with its ratio, 2^(-8/n); where n is no power
// of two, those of the power below, then every other one of twice that power (Press et al. 2022, section 3
// and its code).
inline std::vector<double> alibi_slopes(std::int64_t n) {
  std::int64_t power = 1;
  while (2 * power <= n) power *= 2;
  const auto sequence = [](std::int64_t of) {
    std::vector<double> all;
    for (std::int64_t i = 1; i <= of; ++i)
      all.push_back(std::pow(2.0, -8.0 * static_cast<double>(i) / static_cast<double>(of)));
    return all;
  };
  std::vector<double> slopes = sequence(power);
  const std::vector<double> further = sequence(2 * power);
  for (std::size_t i = 0; slopes.size() < static_cast<std::size_t>(n); i += 2) slopes.push_back(further[i]);
  return slopes;
}

template <class Real>
Tensor<Real> attention_forward(const Tensor<Real>& qkv, kernels::AttentionShape s,
                               Tensor<Real>* probabilities = nullptr, Tensor<Real>* lse = nullptr,
                               bool causal = true) {
  auto out = zeros<Real>(s.B * s.T * s.H * s.D);
  if (probabilities) *probabilities = zeros<Real>(s.B * s.H * s.T * s.T);
  if (lse) *lse = zeros<Real>(s.B * s.H * s.T);
  const Real scale = 1 / std::sqrt(static_cast<Real>(s.D));
  auto p = zeros<Real>(s.T);
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t h = 0; h < s.H; ++h)
      for (std::int64_t i = 0; i < s.T; ++i) {
        const std::int64_t key_head = s.H + h / (s.H / s.G), value_head = key_head + s.G;
        const std::int64_t keys = causal ? i + 1 : s.T;
        const Real slope =
            s.mask.alibi ? static_cast<Real>(alibi_slopes(s.H)[static_cast<std::size_t>(h)]) : Real(0);
        Real highest = -std::numeric_limits<Real>::infinity();
        for (std::int64_t j = 0; j < keys; ++j) {
          p[j] = -std::numeric_limits<Real>::infinity();
          if (!sees(s.mask, i, j)) continue;
          Real score = 0;
          for (std::int64_t d = 0; d < s.D; ++d)
            score += qkv[packed(s, b, i, h, d)] * qkv[packed(s, b, j, key_head, d)];
          score *= scale;
          if (s.mask.cap > 0) score = s.mask.cap * std::tanh(score / s.mask.cap);
          p[j] = score + slope * static_cast<Real>(j - i);
          highest = std::max(highest, p[j]);
        }
        Real sum = 0;
        for (std::int64_t j = 0; j < keys; ++j) {
          p[j] = std::exp(p[j] - highest);
          sum += p[j];
        }
        for (std::int64_t j = 0; j < keys; ++j) {
          p[j] /= sum;
          for (std::int64_t d = 0; d < s.D; ++d)
            out[((b * s.T + i) * s.H + h) * s.D + d] += p[j] * qkv[packed(s, b, j, value_head, d)];
          if (probabilities) (*probabilities)[((b * s.H + h) * s.T + i) * s.T + j] = p[j];
        }
        if (lse) (*lse)[(b * s.H + h) * s.T + i] = highest + std::log(sum);
      }
  return out;
}

template <class Real>
Tensor<Real> attention_backward(const Tensor<Real>& dout, const Tensor<Real>& qkv, kernels::AttentionShape s,
                                bool causal = true) {
  Tensor<Real> probabilities;
  attention_forward<Real>(qkv, s, &probabilities, nullptr, causal);
  auto dqkv = zeros<Real>(s.B * s.T * (s.H + 2 * s.G) * s.D);
  const Real scale = 1 / std::sqrt(static_cast<Real>(s.D));
  auto dp = zeros<Real>(s.T);
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t h = 0; h < s.H; ++h)
      for (std::int64_t i = 0; i < s.T; ++i) {
        const std::int64_t key_head = s.H + h / (s.H / s.G), value_head = key_head + s.G;
        const std::int64_t keys = causal ? i + 1 : s.T;
        const Real* p = &probabilities[((b * s.H + h) * s.T + i) * s.T];
        const Real* upward = &dout[((b * s.T + i) * s.H + h) * s.D];
        Real delta = 0;
        for (std::int64_t j = 0; j < keys; ++j) {
          dp[j] = 0;
          for (std::int64_t d = 0; d < s.D; ++d) {
            dp[j] += upward[d] * qkv[packed(s, b, j, value_head, d)];
            dqkv[packed(s, b, j, value_head, d)] += p[j] * upward[d];
          }
          delta += dp[j] * p[j];
        }
        for (std::int64_t j = 0; j < keys; ++j) {
          Real dscore = p[j] * (dp[j] - delta) * scale;
          if (s.mask.cap > 0) {
            Real score = 0;
            for (std::int64_t d = 0; d < s.D; ++d)
              score += qkv[packed(s, b, i, h, d)] * qkv[packed(s, b, j, key_head, d)];
            const Real tangent = std::tanh(score * scale / s.mask.cap);
            dscore *= 1 - tangent * tangent;
          }
          for (std::int64_t d = 0; d < s.D; ++d) {
            dqkv[packed(s, b, i, h, d)] += dscore * qkv[packed(s, b, j, key_head, d)];
            dqkv[packed(s, b, j, key_head, d)] += dscore * qkv[packed(s, b, i, h, d)];
          }
        }
      }
  return dqkv;
}

// ----------------------------------------------------------------------------------------------------------
// cross-entropy

// Returns the losses; logits become gradients.
template <class Real>
Tensor<Real> cross_entropy(Tensor<Real>& logits, const std::vector<std::int32_t>& targets, Real scale,
                           std::int64_t R, std::int64_t V) {
  auto losses = zeros<Real>(R);
  for (std::int64_t r = 0; r < R; ++r) {
    Real* row = &logits[r * V];
    if (targets[r] < 0) {
      std::fill_n(row, V, Real(0));
      continue;
    }
    const Real highest = *std::max_element(row, row + V);
    Real sum = 0;
    for (std::int64_t v = 0; v < V; ++v) sum += std::exp(row[v] - highest);
    losses[r] = highest + std::log(sum) - row[targets[r]];
    for (std::int64_t v = 0; v < V; ++v)
      row[v] = (std::exp(row[v] - highest) / sum - (v == targets[r] ? Real(1) : Real(0))) * scale;
  }
  return losses;
}

// --------------------------------------------------------------------------------------------------------------
// embedding

template <class Real>
Tensor<Real> embedding_forward(const std::vector<std::int32_t>& tokens, const Tensor<Real>& weight,
                               const Tensor<Real>& position_weight,
                               const std::vector<std::int32_t>& positions, kernels::EmbeddingShape s) {
  auto out = zeros<Real>(s.B * s.T * s.C);
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t t = 0; t < s.T; ++t)
      for (std::int64_t c = 0; c < s.C; ++c)
        out[(b * s.T + t) * s.C + c] =
            weight[tokens[b * s.T + t] * s.C + c] +
            (position_weight.empty() ? Real(0) : position_weight[(positions[b] + t) * s.C + c]);
  return out;
}

template <class Real>
void embedding_backward(Tensor<Real>& dweight, Tensor<Real>& dposition_weight, const Tensor<Real>& dout,
                        const std::vector<std::int32_t>& tokens, kernels::EmbeddingShape s) {
  for (std::int64_t row = 0; row < s.B * s.T; ++row)
    for (std::int64_t c = 0; c < s.C; ++c) {
      dweight[tokens[row] * s.C + c] += dout[row * s.C + c];
      dposition_weight[row % s.T * s.C + c] += dout[row * s.C + c];
    }
}

// -------------------------------------------------------------------------------------------------------------------
// rope

// Rotates by complex multiplication: (x + iy) e^{i direction angle}, angle = position * frequencies[i].
template <class Real>
void rope(Tensor<Real>& qkv, const std::vector<double>& frequencies,
          const std::vector<std::int32_t>& positions, double direction, kernels::RopeShape s) {
  const std::int64_t half = s.D / 2;
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t t = 0; t < s.T; ++t)
      for (std::int64_t head = 0; head < s.H + s.G; ++head)
        for (std::int64_t i = 0; i < half; ++i) {
          const double angle = direction * static_cast<double>(positions[b] + t) * frequencies[i];
          const Real cosine = static_cast<Real>(std::cos(angle)), sine = static_cast<Real>(std::sin(angle));
          const std::int64_t at = ((b * s.T + t) * (s.H + 2 * s.G) + head) * s.D + i;
          const Real x = qkv[at], y = qkv[at + half];
          qkv[at] = x * cosine - y * sine;
          qkv[at + half] = x * sine + y * cosine;
        }
}

// --------------------------------------------------------------------------------------------------------------
// optimizer

// Loshchilov & Hutter 2019, algorithm 2, with torch.optim.AdamW's placing of eps.
template <class Real>
void adamw(Tensor<Real>& parameter, const Tensor<Real>& gradient, Tensor<Real>& moment1,
           Tensor<Real>& moment2, bool decay, Real gradient_scale, const kernels::AdamWSettings& a) {
  const Real lr = a.learning_rate, beta1 = a.beta1, beta2 = a.beta2;
  const Real correction1 = 1 - std::pow(beta1, static_cast<Real>(a.step));
  const Real correction2 = 1 - std::pow(beta2, static_cast<Real>(a.step));
  for (std::size_t i = 0; i < parameter.size(); ++i) {
    const Real g = gradient[i] * gradient_scale;
    if (decay) parameter[i] -= lr * a.weight_decay * parameter[i];
    moment1[i] = beta1 * moment1[i] + (1 - beta1) * g;
    moment2[i] = beta2 * moment2[i] + (1 - beta2) * g * g;
    const Real m = moment1[i] / correction1, v = moment2[i] / correction2;
    parameter[i] -= lr * m / (std::sqrt(v) + a.eps);
  }
}

}  // namespace reference
