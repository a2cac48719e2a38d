// The oracle of state-space layers' operations, as textbook loops in the arithmetic of Real: the scan as its
// recurrence, token by token, and its gradient back through time. Shapes are those of kernels/*.h; every row
// is contiguous.
#pragma once
#include <cmath>

#include "kernels/causal_conv.h"
#include "kernels/gated_norm.h"
#include "kernels/selective_scan.h"
#include "tests/kernels/reference.h"

namespace reference {

template <class Real>
Tensor<Real> squared_relu_forward(const Tensor<Real>& inp) {
  Tensor<Real> out;
  for (const Real x : inp) out.push_back(x > 0 ? x * x : Real(0));
  return out;
}

template <class Real>
Tensor<Real> squared_relu_backward(const Tensor<Real>& dout, const Tensor<Real>& inp) {
  Tensor<Real> dinp;
  for (std::size_t i = 0; i < inp.size(); ++i) dinp.push_back(inp[i] > 0 ? 2 * inp[i] * dout[i] : Real(0));
  return dinp;
}

// pre (B, T, C), before SiLU.
template <class Real>
Tensor<Real> causal_conv_sums(const Tensor<Real>& inp, const Tensor<Real>& weight, const Tensor<Real>& bias,
                              kernels::CausalConvShape s) {
  auto pre = zeros<Real>(s.B * s.T * s.C);
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t t = 0; t < s.T; ++t)
      for (std::int64_t c = 0; c < s.C; ++c) {
        Real sum = bias[c];
        for (std::int64_t k = 0; k < s.K; ++k)
          if (t - (s.K - 1) + k >= 0)
            sum += weight[c * s.K + k] * inp[(b * s.T + t - (s.K - 1) + k) * s.C + c];
        pre[(b * s.T + t) * s.C + c] = sum;
      }
  return pre;
}

template <class Real>
Tensor<Real> causal_conv_forward(const Tensor<Real>& inp, const Tensor<Real>& weight,
                                 const Tensor<Real>& bias, kernels::CausalConvShape s) {
  auto out = causal_conv_sums(inp, weight, bias, s);
  for (Real& x : out) x = silu(x);
  return out;
}

template <class Real>
void causal_conv_backward(Tensor<Real>& dinp, Tensor<Real>& dweight, Tensor<Real>& dbias,
                          const Tensor<Real>& dout, const Tensor<Real>& inp, const Tensor<Real>& weight,
                          const Tensor<Real>& bias, kernels::CausalConvShape s) {
  const auto pre = causal_conv_sums(inp, weight, bias, s);
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t t = 0; t < s.T; ++t)
      for (std::int64_t c = 0; c < s.C; ++c) {
        const std::int64_t at = (b * s.T + t) * s.C + c;
        const Real dpre = dout[at] * silu_derivative(pre[at]);
        dbias[c] += dpre;
        for (std::int64_t k = 0; k < s.K; ++k) {
          if (t - (s.K - 1) + k < 0) continue;
          const std::int64_t from = (b * s.T + t - (s.K - 1) + k) * s.C + c;
          dweight[c * s.K + k] += dpre * inp[from];
          dinp[from] += dpre * weight[c * s.K + k];
        }
      }
}

template <class Real>
Tensor<Real> gated_norm_forward(const Tensor<Real>& inp, const Tensor<Real>& gate, const Tensor<Real>& weight,
                                Real eps, kernels::GatedNormShape s, Tensor<Real>* rstd = nullptr) {
  auto out = zeros<Real>(s.R * s.C);
  const std::int64_t width = s.C / s.G;
  for (std::int64_t group = 0; group < s.R * s.G; ++group) {
    Real squares = 0;
    for (std::int64_t i = group * width; i < (group + 1) * width; ++i) {
      out[i] = inp[i] * silu(gate[i]);
      squares += out[i] * out[i];
    }
    const Real r = 1 / std::sqrt(squares / static_cast<Real>(width) + eps);
    for (std::int64_t i = group * width; i < (group + 1) * width; ++i) out[i] = out[i] * r * weight[i % s.C];
    if (rstd) rstd->push_back(r);
  }
  return out;
}

template <class Real>
void gated_norm_backward(Tensor<Real>& dinp, Tensor<Real>& dgate, Tensor<Real>& dweight,
                         const Tensor<Real>& dout, const Tensor<Real>& inp, const Tensor<Real>& gate,
                         const Tensor<Real>& weight, Real eps, kernels::GatedNormShape s) {
  Tensor<Real> rstd;
  gated_norm_forward(inp, gate, weight, eps, s, &rstd);
  const std::int64_t width = s.C / s.G;
  for (std::int64_t group = 0; group < s.R * s.G; ++group) {
    Real slope = 0;
    for (std::int64_t i = group * width; i < (group + 1) * width; ++i) {
      const Real normed = inp[i] * silu(gate[i]) * rstd[group];
      slope += dout[i] * weight[i % s.C] * normed / static_cast<Real>(width);
      dweight[i % s.C] += dout[i] * normed;
    }
    for (std::int64_t i = group * width; i < (group + 1) * width; ++i) {
      const Real u = inp[i] * silu(gate[i]);
      const Real du = rstd[group] * (dout[i] * weight[i % s.C] - u * rstd[group] * slope);
      dinp[i] += du * silu(gate[i]);
      dgate[i] += du * inp[i] * silu_derivative(gate[i]);
    }
  }
}

template <class Real>
struct ScanInput {
  Tensor<Real> xbc, dt, dt_bias, a_log, d;

  template <class Other>
  ScanInput<Other> in() const {
    const auto to = [](const Tensor<Real>& v) { return Tensor<Other>(v.begin(), v.end()); };
    return {to(xbc), to(dt), to(dt_bias), to(a_log), to(d)};
  }
};

// One head's place in the rows, and its time step at a token.
template <class Real>
struct ScanHead {
  const ScanInput<Real>& inp;
  kernels::SelectiveScanShape s;
  std::int64_t h;

  std::int64_t x(std::int64_t r) const { return r * s.columns() + h * s.P; }
  std::int64_t b(std::int64_t r) const { return r * s.columns() + s.H * s.P + h / (s.H / s.G) * s.N; }
  std::int64_t c(std::int64_t r) const { return b(r) + s.G * s.N; }
  Real raw(std::int64_t r) const { return inp.dt[r * s.H + h] + inp.dt_bias[h]; }
  Real dt(std::int64_t r) const { return raw(r) > 20 ? raw(r) : std::log1p(std::exp(raw(r))); }
  Real a() const { return -std::exp(inp.a_log[h]); }
  Real decay(std::int64_t r) const { return std::exp(dt(r) * a()); }
};

// state (B, H, N, P): from what it holds to what it is after the last token. before: the state before each
// token, (B, H, T, N, P).
template <class Real>
Tensor<Real> selective_scan_forward(const ScanInput<Real>& inp, kernels::SelectiveScanShape s,
                                    Tensor<Real>& state, Tensor<Real>* before = nullptr) {
  auto y = zeros<Real>(s.B * s.T * s.H * s.P);
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t h = 0; h < s.H; ++h) {
      const ScanHead<Real> head{inp, s, h};
      Real* S = &state[(b * s.H + h) * s.N * s.P];
      for (std::int64_t t = 0; t < s.T; ++t) {
        const std::int64_t r = b * s.T + t;
        if (before) before->insert(before->end(), S, S + s.N * s.P);
        const Real decay = head.decay(r), dt = head.dt(r);
        for (std::int64_t p = 0; p < s.P; ++p) {
          Real sum = 0;
          for (std::int64_t n = 0; n < s.N; ++n) {
            Real& element = S[n * s.P + p];
            element = decay * element + dt * inp.xbc[head.b(r) + n] * inp.xbc[head.x(r) + p];
            sum += inp.xbc[head.c(r) + n] * element;
          }
          y[(r * s.H + h) * s.P + p] = sum + inp.d[h] * inp.xbc[head.x(r) + p];
        }
      }
    }
  return y;
}

// Gradients are added to those of `out`, whose tensors have the shapes of the input's.
template <class Real>
void selective_scan_backward(ScanInput<Real>& out, const Tensor<Real>& dout, const ScanInput<Real>& inp,
                             kernels::SelectiveScanShape s) {
  auto state = zeros<Real>(s.B * s.H * s.N * s.P);
  Tensor<Real> before;
  selective_scan_forward(inp, s, state, &before);
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t h = 0; h < s.H; ++h) {
      const ScanHead<Real> head{inp, s, h};
      auto dS = zeros<Real>(s.N * s.P);
      for (std::int64_t t = s.T - 1; t >= 0; --t) {
        const std::int64_t r = b * s.T + t;
        const Real* S = &before[((b * s.H + h) * s.T + t) * s.N * s.P];
        const Real decay = head.decay(r), dt = head.dt(r);
        Real ddecay = 0, ddt = 0;
        for (std::int64_t p = 0; p < s.P; ++p) {
          const Real dy = dout[(r * s.H + h) * s.P + p], x = inp.xbc[head.x(r) + p];
          out.d[h] += dy * x;
          out.xbc[head.x(r) + p] += inp.d[h] * dy;
          for (std::int64_t n = 0; n < s.N; ++n) {
            const Real bn = inp.xbc[head.b(r) + n], cn = inp.xbc[head.c(r) + n];
            Real& d = dS[n * s.P + p];
            out.xbc[head.c(r) + n] += dy * (decay * S[n * s.P + p] + dt * bn * x);
            d += dy * cn;
            ddecay += d * S[n * s.P + p];
            ddt += d * bn * x;
            out.xbc[head.b(r) + n] += d * dt * x;
            out.xbc[head.x(r) + p] += d * dt * bn;
            d *= decay;
          }
        }
        ddt += ddecay * decay * head.a();
        out.a_log[h] += ddecay * decay * dt * head.a();
        const Real slope = ddt / (1 + std::exp(-head.raw(r)));
        out.dt[r * s.H + h] += slope;
        out.dt_bias[h] += slope;
      }
    }
}

}  // namespace reference
