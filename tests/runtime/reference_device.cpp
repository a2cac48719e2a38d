#include "tests/runtime/reference_device.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/cpu/arguments.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/route_reference.h"
#include "tests/kernels/segments_reference.h"
#include "tests/kernels/state_space_reference.h"

namespace tests {
namespace {

using K = sim::OpKind;
using R = sim::Role;
using S = runtime::RunSettings;
using Tensor = reference::Tensor<double>;
using Keys = reference::SegmentKeys<double>;

// Operands as the reference takes and gives them.
class Arguments : public runtime::Arguments {
 public:
  using runtime::Arguments::Arguments;

  double* f64(R role) const { return as<double>(role); }
  double* f64(std::size_t operand) const { return as<double>(operand); }
  // Empty where the operand is absent.
  std::span<double> all(R role) const {
    const runtime::BoundOperand* const o = find(role);
    if (!o || !o->data) return {};
    return {f64(role), static_cast<std::size_t>(o->bytes) / sizeof(double)};
  }
  Tensor get(R role) const {
    const std::span<const double> values = all(role);
    return {values.begin(), values.end()};
  }
  void put(R role, const Tensor& values) const {
    std::copy(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(all(role).size()), f64(role));
  }
  // What a sum begins with: what is there, or zeros where the operation begins it.
  Tensor sum(R role) const { return updates(role) ? get(role) : Tensor(all(role).size()); }
  std::vector<std::int32_t> ids(R role) const {
    const runtime::BoundOperand* const o = find(role);
    if (!o || !o->data) return {};
    return {i32(role), i32(role) + o->bytes / static_cast<std::int64_t>(sizeof(std::int32_t))};
  }
};
using A = Arguments;
using Kernel = void (*)(const A&, const S&);

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}
Tensor part(const Tensor& of, std::int64_t begin, std::int64_t count) {
  return {of.begin() + begin, of.begin() + begin + count};
}

// ---- Embedding. Ranks that divide the vocabulary have its rows from `first` on.

void embedding(const A& a, const S& settings) {
  const kernels::EmbeddingShape s = a.embedding();
  const std::int64_t first = settings.vocabulary.first;
  for (std::int64_t row = 0; row < s.B * s.T; ++row)
    for (std::int64_t c = 0; c < s.C; ++c) {
      const std::int64_t token = a.i32(R::tokens)[row] - first;
      double value = token >= 0 && token < s.V ? a.f64(R::weight)[token * s.C + c] : 0;
      if (a.f64(R::position_weight) && first == 0) value += a.f64(R::position_weight)[row % s.T * s.C + c];
      a.f64(R::out)[row * s.C + c] = value;
    }
}

void embedding_backward(const A& a, const S& settings) {
  const kernels::EmbeddingShape s = a.embedding();
  for (std::int64_t row = 0; row < s.B * s.T; ++row)
    for (std::int64_t c = 0; c < s.C; ++c) {
      const std::int64_t token = a.i32(R::tokens)[row] - settings.vocabulary.first;
      const double gradient = a.f64(R::dout)[row * s.C + c];
      if (token >= 0 && token < s.V) a.f64(R::dweight)[token * s.C + c] += gradient;
      if (a.f64(R::dposition_weight)) a.f64(R::dposition_weight)[row % s.T * s.C + c] += gradient;
    }
}

// ---- Norms.

void layernorm(const A& a, const S&) {
  Tensor mean, rstd;
  a.put(R::out, reference::layernorm_forward<double>(a.get(R::inp), a.get(R::weight), a.get(R::bias),
                                                     a.scalar(), a.rows(), a.hidden(), &mean, &rstd));
  a.put(R::mean, mean);
  a.put(R::rstd, rstd);
}

void rmsnorm(const A& a, const S&) {
  Tensor rstd;
  a.put(R::out, reference::rmsnorm_forward<double>(a.get(R::inp), a.get(R::weight), a.scalar(), a.rows(),
                                                   a.hidden(), &rstd));
  a.put(R::rstd, rstd);
}

// Backward operations have no epsilon: statistics are those that forward kept. Gradients add to the stream's.
void norm_backward(const A& a, const double* mean) {
  const std::int64_t C = a.hidden();
  for (std::int64_t r = 0; r < a.rows(); ++r) {
    const double rstd = a.f64(R::rstd)[r], m = mean ? mean[r] : 0;
    const double *const dout = a.f64(R::dout) + r * C, *const inp = a.f64(R::inp) + r * C;
    double scaled_mean = 0, slope = 0;
    for (std::int64_t c = 0; c < C; ++c) {
      const double normed = (inp[c] - m) * rstd, scaled = dout[c] * a.f64(R::weight)[c];
      if (mean) scaled_mean += scaled / static_cast<double>(C);
      slope += scaled * normed / static_cast<double>(C);
      if (a.f64(R::dweight)) a.f64(R::dweight)[c] += dout[c] * normed;
      if (mean && a.f64(R::dbias)) a.f64(R::dbias)[c] += dout[c];
    }
    for (std::int64_t c = 0; c < C; ++c)
      a.f64(R::dinp)[r * C + c] +=
          rstd * (dout[c] * a.f64(R::weight)[c] - scaled_mean - (inp[c] - m) * rstd * slope);
  }
}

// ---- Products; of experts one group after the other.

void matmul_backward_weight(const A& a, const S&) {
  Tensor dweight = a.sum(R::dweight);
  Tensor dbias = a.all(R::dbias).empty() ? Tensor(at(a.cols())) : a.sum(R::dbias);
  reference::matmul_backward_weight(dweight, dbias, a.get(R::dout), a.get(R::inp), a.matmul());
  a.put(R::dweight, dweight);
  a.put(R::dbias, dbias);
}

std::vector<std::int64_t> offsets(const A& a) {
  if (const auto known = a.group_offsets(); !known.empty()) return {known.begin(), known.end()};
  std::vector<std::int64_t> begins(at(a.grouped_count() + 1));
  for (const std::int32_t expert : a.ids(R::indices))
    for (std::size_t after = at(expert) + 1; after < begins.size(); ++after) ++begins[after];
  return begins;
}

// act(group, its shape, first row) for each that has rows.
void each_group(const A& a, const auto& act) {
  const std::vector<std::int64_t> begins = offsets(a);
  for (std::size_t g = 0; g + 1 < begins.size(); ++g)
    if (begins[g + 1] > begins[g])
      act(static_cast<std::int64_t>(g), kernels::MatmulShape{begins[g + 1] - begins[g], a.cols(), a.inner()},
          begins[g]);
}

void grouped_matmul(const A& a, const S&) {
  const Tensor inp = a.get(R::inp), weight = a.get(R::weight), bias = a.get(R::bias);
  each_group(a, [&](std::int64_t g, kernels::MatmulShape s, std::int64_t row) {
    const Tensor out = reference::matmul_forward<double>(
        part(inp, row * s.K, s.M * s.K), part(weight, g * s.N * s.K, s.N * s.K),
        bias.empty() ? Tensor() : part(bias, g * s.N, s.N), {}, s);
    std::copy(out.begin(), out.end(), a.f64(R::out) + row * s.N);
  });
}

void grouped_matmul_backward_input(const A& a, const S&) {
  const Tensor dout = a.get(R::dout), weight = a.get(R::weight);
  each_group(a, [&](std::int64_t g, kernels::MatmulShape s, std::int64_t row) {
    const Tensor dinp = reference::matmul_backward_input<double>(
        Tensor(at(s.M * s.K)), part(dout, row * s.N, s.M * s.N), part(weight, g * s.N * s.K, s.N * s.K), s);
    std::copy(dinp.begin(), dinp.end(), a.f64(R::dinp) + row * s.K);
  });
}

void grouped_matmul_backward_weight(const A& a, const S&) {
  const Tensor dout = a.get(R::dout), inp = a.get(R::inp);
  each_group(a, [&](std::int64_t g, kernels::MatmulShape s, std::int64_t row) {
    Tensor dweight(at(s.N * s.K)), dbias(at(s.N));
    reference::matmul_backward_weight<double>(dweight, dbias, part(dout, row * s.N, s.M * s.N),
                                              part(inp, row * s.K, s.M * s.K), s);
    for (std::size_t i = 0; i < dweight.size(); ++i) a.f64(R::dweight)[at(g * s.N * s.K) + i] += dweight[i];
    for (std::size_t i = 0; i < dbias.size() && a.f64(R::dbias); ++i)
      a.f64(R::dbias)[at(g * s.N) + i] += dbias[i];
  });
}

// ---- Experts.

void route(const A& a, const S&) {
  const kernels::RouteShape s = a.route();
  const Tensor logits = a.get(R::logits), bias = a.get(R::bias);
  for (std::int64_t r = 0; r < s.R; ++r) {
    const test::Routed routed = test::route_row(part(logits, r * s.E, s.E), bias, s, a.routing());
    std::copy(routed.weights.begin(), routed.weights.end(), a.f64(R::weights) + r * s.K);
    std::copy(routed.indices.begin(), routed.indices.end(), a.i32(R::indices) + r * s.K);
  }
}

// The gradient of a softmax over all experts, whose chosen weights are normalised or not: by the chain rule,
// one expert's logit after the other.
void route_backward(const A& a, const S&) {
  const kernels::RouteShape s = a.route();
  const kernels::RouteSettings settings = a.routing();
  for (std::int64_t r = 0; r < s.R; ++r) {
    const double* const logits = a.f64(R::logits) + r * s.E;
    const double* const upward = a.f64(R::dweights) + r * s.K;
    const std::int32_t* const chosen = a.i32(R::indices) + r * s.K;
    std::vector<double> scores(at(s.E)), dscores(at(s.E));
    double all = 0, sum = 0;
    for (std::int64_t e = 0; e < s.E; ++e) all += scores[at(e)] = std::exp(logits[e]);
    for (double& score : scores) score /= all;
    for (std::int64_t k = 0; k < s.K; ++k) sum += scores[at(chosen[k])];
    // weight_k = scale score_k / sum
    for (std::int64_t k = 0; k < s.K; ++k) {
      dscores[at(chosen[k])] += upward[k] * settings.scale / (settings.normalised ? sum : 1);
      if (settings.normalised)
        for (std::int64_t j = 0; j < s.K; ++j)
          dscores[at(chosen[j])] -= upward[k] * settings.scale * scores[at(chosen[k])] / (sum * sum);
    }
    // score_e = exp(logit_e) / all
    for (std::int64_t e = 0; e < s.E; ++e) {
      double gradient = 0;
      for (std::int64_t f = 0; f < s.E; ++f)
        gradient += dscores[at(f)] * scores[at(f)] * ((e == f ? 1 : 0) - scores[at(e)]);
      a.f64(R::dlogits)[r * s.E + e] = gradient;
    }
  }
}

// Choices ordered by expert, those of one expert as the tokens are.
std::vector<std::int64_t> by_expert(const A& a) {
  const std::vector<std::int32_t> experts = a.ids(R::indices);
  std::vector<std::int64_t> order(experts.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t x, std::int64_t y) { return experts[at(x)] < experts[at(y)]; });
  return order;
}

void permute(const A& a, const S&) {
  const kernels::PermuteShape s = a.permutation();
  const std::vector<std::int64_t> order = by_expert(a);
  for (std::size_t place = 0; place < order.size(); ++place) {
    std::copy_n(a.f64(R::inp) + order[place] / s.K * s.C, s.C, a.f64(R::out) + place * at(s.C));
    if (a.f64(R::row_weights)) a.f64(R::row_weights)[place] = a.f64(R::weights)[order[place]];
  }
}

void unpermute(const A& a, const S&) {
  const kernels::PermuteShape s = a.permutation();
  const std::vector<std::int64_t> order = by_expert(a);
  std::fill_n(a.f64(R::out), s.R * s.C, 0.0);
  for (std::size_t place = 0; place < order.size(); ++place) {
    double* const out = a.f64(R::out) + order[place] / s.K * s.C;
    for (std::int64_t c = 0; c < s.C; ++c) out[c] += a.f64(R::inp)[place * at(s.C) + at(c)];
    if (a.f64(R::weights)) a.f64(R::weights)[order[place]] = a.f64(R::row_weights)[place];
  }
}

// ---- Attention.

std::int64_t packed_width(const kernels::AttentionShape& s) {
  return (s.H + 2 * s.G) * s.D;
}

void rotate(double* qkv, const A& a, double direction) {
  const kernels::RopeShape s = a.rope();
  const std::int64_t half = s.D / 2;
  for (std::int64_t row = 0; row < s.B * s.T; ++row)
    for (std::int64_t head = 0; head < s.H + s.G; ++head)
      for (std::int64_t i = 0; i < half; ++i) {
        const double* const angles = a.f64(R::table) + row % s.T * s.D;
        const double cosine = angles[i], sine = direction * angles[half + i];
        double* const pair = qkv + (row * (s.H + 2 * s.G) + head) * s.D + i;
        const double x = pair[0], y = pair[half];
        pair[0] = x * cosine - y * sine;
        pair[half] = x * sine + y * cosine;
      }
}

// A rank's own keys, in its packed qkv.
Keys own_keys(const A& a, double* dqkv, const S& settings) {
  const kernels::AttentionShape s = a.attention();
  return {settings.context, a.f64(R::qkv) + s.H * s.D, dqkv ? dqkv + s.H * s.D : nullptr, packed_width(s)};
}
// Those of all ranks, one after the other, or of the one whose keys have come so many steps.
std::vector<Keys> gathered_keys(const A& a, double* dkv, const S& settings) {
  const kernels::AttentionShape s = a.attention();
  const std::int64_t stride = 2 * s.G * s.D, of_rank = s.B * s.T * stride, ranks = settings.context.ranks;
  if (a.f64(R::other_kv)) {
    const auto steps = static_cast<std::int64_t>(a.scalar());
    return {{{ranks, (settings.context.rank + ranks - steps) % ranks}, a.f64(R::other_kv), dkv, stride}};
  }
  std::vector<Keys> keys;
  for (std::int64_t r = 0; r < ranks; ++r)
    keys.push_back({{ranks, r}, a.f64(R::all_kv) + r * of_rank, dkv ? dkv + r * of_rank : nullptr, stride});
  return keys;
}
bool has_keys_of_others(const A& a) {
  return a.f64(R::all_kv) || a.f64(R::other_kv);
}
// Without others' keys a flash attention's queries are of a whole sequence, or of all heads of one.
S whole(const A& a, S settings, K kind) {
  if (kind == K::attention_flash && !has_keys_of_others(a)) settings.context = {};
  return settings;
}

template <K kind>
void attention(const A& a, const S& given) {
  const S settings = whole(a, given, kind);
  const std::vector<Keys> keys = has_keys_of_others(a) ? gathered_keys(a, nullptr, settings)
                                                       : std::vector{own_keys(a, nullptr, settings)};
  reference::attention_segments_forward(a.f64(R::out), a.f64(R::lse), a.f64(R::qkv), settings.context, keys,
                                        a.attention());
}

template <K kind>
void attention_backward(const A& a, const S& given) {
  const S settings = whole(a, given, kind);
  const bool others = has_keys_of_others(a);
  // What a ring's later steps add to, its first one begins.
  if (!others || kind == K::attention_flash) std::ranges::fill(a.all(R::dqkv), 0.0);
  if (others) std::ranges::fill(a.all(R::dkv), 0.0);
  const std::vector<Keys> keys =
      others ? gathered_keys(a, a.f64(R::dkv), settings) : std::vector{own_keys(a, a.f64(R::dqkv), settings)};
  reference::attention_segments_backward(a.f64(R::dqkv), a.f64(R::dout), a.f64(R::qkv), a.f64(R::out),
                                         a.f64(R::lse), settings.context, keys, a.attention());
}

// ---- Activations, whose rows may have weights.

struct RowWeight {
  double value = 1, slope = 0;
};
RowWeight row_weight(const A& a, std::int64_t r) {
  if (a.all(R::row_weights).empty()) return {};
  const double weight = a.f64(R::row_weights)[r];
  if (!a.row_weights().sigmoid) return {weight, 1};
  const double sigmoid = 1 / (1 + std::exp(-weight));
  return {sigmoid, sigmoid * (1 - sigmoid)};
}

void swiglu(const A& a, const S&) {
  Tensor out = reference::swiglu_forward(a.get(R::gate_up), a.rows(), a.cols());
  for (std::int64_t i = 0; i < a.rows() * a.cols(); ++i) out[at(i)] *= row_weight(a, i / a.cols()).value;
  a.put(R::out, out);
}

void swiglu_backward(const A& a, const S&) {
  const Tensor gate_up = a.get(R::gate_up), dout = a.get(R::dout);
  const Tensor unweighted = reference::swiglu_forward(gate_up, a.rows(), a.cols());
  Tensor upward = dout, drow_weights(at(a.rows()));
  for (std::int64_t i = 0; i < a.rows() * a.cols(); ++i) {
    const RowWeight weight = row_weight(a, i / a.cols());
    upward[at(i)] *= weight.value;
    drow_weights[at(i / a.cols())] += weight.slope * dout[at(i)] * unweighted[at(i)];
  }
  a.put(R::dgate_up, reference::swiglu_backward(upward, gate_up, a.rows(), a.cols()));
  a.put(R::drow_weights, drow_weights);
}

void add(const A& a, const S&) {
  for (std::int64_t i = 0; i < a.rows() * a.cols(); ++i)
    a.f64(R::out)[i] = a.f64(R::a)[i] + (a.f64(R::b) ? a.f64(R::b)[i] : 0) +
                       (a.f64(R::bias) ? a.f64(R::bias)[i % a.cols()] : 0);
}

// Between a matrix and columns of wider rows.
void add_columns(const A& a, const S&) {
  for (std::int64_t i = 0; i < a.rows() * a.cols(); ++i)
    a.f64(R::out)[i / a.cols() * a.inner() + a.columns().first + i % a.cols()] +=
        double{a.scalar()} * a.f64(R::inp)[i];
}
void take_columns(const A& a, const S&) {
  for (std::int64_t i = 0; i < a.rows() * a.cols(); ++i)
    a.f64(R::out)[i] =
        double{a.scalar()} * a.f64(R::inp)[i / a.cols() * a.inner() + a.columns().first + i % a.cols()];
}

// ---- State-space mixers, whose inputs are columns of a projection's rows.

Tensor columns(const A& a, R projected, std::int64_t first, std::int64_t count) {
  Tensor out;
  for (std::int64_t r = 0; r < a.batch() * a.query_length(); ++r) {
    const double* const row = a.f64(projected) + r * a.projected_columns() + first;
    out.insert(out.end(), row, row + count);
  }
  return out;
}
void put_columns(const A& a, R projected, std::int64_t first, std::int64_t count, const Tensor& values) {
  for (std::int64_t r = 0; r < a.batch() * a.query_length(); ++r)
    std::copy_n(values.begin() + r * count, count, a.f64(projected) + r * a.projected_columns() + first);
}

void causal_conv(const A& a, const S&) {
  const kernels::CausalConvShape s = a.conv();
  const Tensor bias = a.all(R::bias).empty() ? Tensor(at(s.C)) : a.get(R::bias);
  a.put(R::out, reference::causal_conv_forward(columns(a, R::projected, a.scan().inner(), s.C),
                                               a.get(R::weight), bias, s));
}

void causal_conv_backward(const A& a, const S&) {
  const kernels::CausalConvShape s = a.conv();
  const Tensor bias = a.all(R::bias).empty() ? Tensor(at(s.C)) : a.get(R::bias);
  Tensor dinp(at(s.B * s.T * s.C)), dweight = a.get(R::dweight);
  Tensor dbias = a.all(R::dbias).empty() ? Tensor(at(s.C)) : a.get(R::dbias);
  reference::causal_conv_backward(dinp, dweight, dbias, a.get(R::dout),
                                  columns(a, R::projected, a.scan().inner(), s.C), a.get(R::weight), bias, s);
  put_columns(a, R::dprojected, a.scan().inner(), s.C, dinp);
  a.put(R::dweight, dweight);
  a.put(R::dbias, dbias);
}

reference::ScanInput<double> scan_input(const A& a) {
  const kernels::SelectiveScanShape s = a.scan();
  const Tensor heads = a.get(R::head_weights);
  return {a.get(R::xbc), columns(a, R::projected, s.inner() + s.columns(), s.H), part(heads, 0, s.H),
          part(heads, s.H, s.H), part(heads, 2 * s.H, s.H)};
}

void selective_scan(const A& a, const S&) {
  const kernels::SelectiveScanShape s = a.scan();
  Tensor state(at(s.B * s.H * s.N * s.P));
  a.put(R::out, reference::selective_scan_forward(scan_input(a), s, state));
}

void selective_scan_backward(const A& a, const S&) {
  const kernels::SelectiveScanShape s = a.scan();
  const Tensor heads = a.get(R::dhead_weights);
  reference::ScanInput<double> gradients{Tensor(a.all(R::dxbc).size()), Tensor(at(s.B * s.T * s.H)),
                                         part(heads, 0, s.H), part(heads, s.H, s.H),
                                         part(heads, 2 * s.H, s.H)};
  reference::selective_scan_backward(gradients, a.get(R::dout), scan_input(a), s);
  a.put(R::dxbc, gradients.xbc);
  put_columns(a, R::dprojected, s.inner() + s.columns(), s.H, gradients.dt);
  Tensor dheads = gradients.dt_bias;
  dheads.insert(dheads.end(), gradients.a_log.begin(), gradients.a_log.end());
  dheads.insert(dheads.end(), gradients.d.begin(), gradients.d.end());
  a.put(R::dhead_weights, dheads);
}

void gated_norm(const A& a, const S&) {
  Tensor rstd;
  a.put(R::out,
        reference::gated_norm_forward<double>(a.get(R::inp), columns(a, R::projected, 0, a.scan().inner()),
                                              a.get(R::weight), a.scalar(), a.gated_norm(), &rstd));
  a.put(R::rstd, rstd);
}

// From the statistics that forward kept: u = inp silu(gate), out = u rstd weight.
void gated_norm_backward(const A& a, const S&) {
  const kernels::GatedNormShape s = a.gated_norm();
  const std::int64_t width = s.C / s.G;
  const Tensor inp = a.get(R::inp), gate = columns(a, R::projected, 0, s.C), dout = a.get(R::dout);
  Tensor dinp(inp.size()), dgate(gate.size());
  for (std::int64_t group = 0; group < s.R * s.G; ++group) {
    const double rstd = a.f64(R::rstd)[group];
    const auto normed = [&](std::size_t i) { return inp[i] * reference::silu(gate[i]) * rstd; };
    const auto scaled = [&](std::size_t i) { return dout[i] * a.f64(R::weight)[i % at(s.C)]; };
    double slope = 0;
    for (std::size_t i = at(group * width); i < at((group + 1) * width); ++i) {
      slope += scaled(i) * normed(i) / static_cast<double>(width);
      a.f64(R::dweight)[i % at(s.C)] += dout[i] * normed(i);
    }
    for (std::size_t i = at(group * width); i < at((group + 1) * width); ++i) {
      const double du = rstd * (scaled(i) - normed(i) * slope);
      dinp[i] = du * reference::silu(gate[i]);
      dgate[i] = du * inp[i] * reference::silu_derivative(gate[i]);
    }
  }
  a.put(R::dinp, dinp);
  put_columns(a, R::dprojected, 0, s.C, dgate);
}

// ---- The loss.

void cross_entropy_statistics(const A& a, const S& settings) {
  const kernels::VocabularyPart own = settings.vocabulary;
  for (std::int64_t r = 0; r < a.rows(); ++r) {
    const double* const row = a.f64(R::logits) + r * a.vocab();
    double* const of_row = a.f64(R::statistics) + 3 * r;
    const std::int64_t target = a.i32(R::targets)[r] - own.first;
    of_row[0] = *std::max_element(row, row + own.count);
    of_row[1] = 0;
    for (std::int64_t v = 0; v < own.count; ++v) of_row[1] += std::exp(row[v] - of_row[0]);
    of_row[2] = target >= 0 && target < own.count ? row[target] : 0;
  }
}

// The loss over all columns, or over those that this rank has: then the others' sums stand beside them.
void cross_entropy(const A& a, const S& settings) {
  const std::span<const double> statistics = a.all(R::statistics);
  const bool divided = !statistics.empty();
  const kernels::VocabularyPart own = divided ? settings.vocabulary : kernels::VocabularyPart{0, a.words()};
  const std::int64_t parts = static_cast<std::int64_t>(statistics.size()) / 3 / a.rows();
  for (std::int64_t r = 0; r < a.rows(); ++r) {
    double* const row = a.f64(R::logits) + r * a.vocab();
    const std::int32_t target = a.i32(R::targets)[r];
    if (target < 0) {
      a.f64(R::losses)[r] = 0;
      std::fill_n(row, a.vocab(), 0.0);
      continue;
    }
    double highest = -std::numeric_limits<double>::infinity(), sum = 0, of_target = divided ? 0 : row[target];
    for (std::int64_t v = 0; !divided && v < own.count; ++v) highest = std::max(highest, row[v]);
    for (std::int64_t v = 0; !divided && v < own.count; ++v) sum += std::exp(row[v] - highest);
    for (std::int64_t p = 0; p < parts; ++p)
      highest = std::max(highest, statistics[at(3 * (p * a.rows() + r))]);
    for (std::int64_t p = 0; p < parts; ++p) {
      const double* const of_part = &statistics[at(3 * (p * a.rows() + r))];
      sum += of_part[1] * std::exp(of_part[0] - highest);
      of_target += of_part[2];
    }
    a.f64(R::losses)[r] = std::log(sum) + highest - of_target;
    for (std::int64_t v = 0; v < a.vocab(); ++v) {
      const double probability = v < own.count ? std::exp(row[v] - highest) / sum : 0;
      row[v] = (probability - (own.first + v == target && v < own.count ? 1 : 0)) * a.scalar();
    }
  }
}

// ---- The optimizer.

enum GradientNorm { kSumOfSquares, kNorm, kClipScale };

void squared_norm(const A& a, const S&) {
  const double share = a.scalar() == 0 ? 1 : double{a.scalar()};
  double squares = 0;
  for (std::size_t i = 1; i < a.operands(); ++i)
    for (std::int64_t e = 0; e < a.count(i); ++e) squares += a.f64(i)[e] * a.f64(i)[e];
  a.f64(R::norm)[kSumOfSquares] += share * squares;
}

void clip_scale(const A& a, const S& settings) {
  double* const norm = a.f64(R::norm);
  const double most = settings.max_gradient_norm;
  norm[kNorm] = std::sqrt(norm[kSumOfSquares]);
  norm[kClipScale] = most > 0 && norm[kNorm] > most ? most / (norm[kNorm] + 1e-6) : 1;
}

void adamw(const A& a, const S& settings) {
  constexpr std::size_t kGroup = 5;  // parameter, gradient, two moments, no master copy
  for (std::size_t i = 1; i + kGroup <= a.operands(); i += kGroup) {
    const auto get = [&](std::size_t operand) {
      return Tensor(a.f64(operand), a.f64(operand) + a.count(operand));
    };
    Tensor parameter = get(i), moment1 = get(i + 2), moment2 = get(i + 3);
    reference::adamw<double>(parameter, get(i + 1), moment1, moment2, a.decay(), a.f64(R::norm)[kClipScale],
                             settings.adamw);
    std::copy(parameter.begin(), parameter.end(), a.f64(i));
    std::copy(moment1.begin(), moment1.end(), a.f64(i + 2));
    std::copy(moment2.begin(), moment2.end(), a.f64(i + 3));
  }
}

void zero(const A& a, const S&) {
  for (std::size_t i = 0; i < a.operands(); ++i)
    std::memset(a.as<std::byte>(i), 0, static_cast<std::size_t>(a.bytes(i)));
}

// Pairs: where to, where from. One of the two may be padded where it is a shard.
void copy_pairs(const A& a, const S&) {
  for (std::size_t i = 0; i + 1 < a.operands(); i += 2)
    std::memcpy(a.as<std::byte>(i), a.as<std::byte>(i + 1),
                static_cast<std::size_t>(std::min(a.bytes(i), a.bytes(i + 1))));
}

const std::map<K, Kernel>& kernels_by_kind() {
  static const std::map<K, Kernel> all{
      {K::embedding, embedding},
      {K::embedding_backward, embedding_backward},
      {K::layernorm, layernorm},
      {K::layernorm_backward, [](const A& a, const S&) { norm_backward(a, a.f64(R::mean)); }},
      {K::rmsnorm, rmsnorm},
      {K::rmsnorm_backward, [](const A& a, const S&) { norm_backward(a, nullptr); }},
      {K::matmul,
       [](const A& a, const S&) {
         a.put(R::out, reference::matmul_forward(a.get(R::inp), a.get(R::weight), a.get(R::bias),
                                                 a.get(R::residual), a.matmul()));
       }},
      {K::matmul_backward_input,
       [](const A& a, const S&) {
         a.put(R::dinp, reference::matmul_backward_input(a.sum(R::dinp), a.get(R::dout), a.get(R::weight),
                                                         a.matmul()));
       }},
      {K::matmul_backward_weight, matmul_backward_weight},
      {K::grouped_matmul, grouped_matmul},
      {K::grouped_matmul_backward_input, grouped_matmul_backward_input},
      {K::grouped_matmul_backward_weight, grouped_matmul_backward_weight},
      {K::route, route},
      {K::route_backward, route_backward},
      {K::permute, permute},
      {K::unpermute, unpermute},
      {K::rope, [](const A& a, const S&) { rotate(a.f64(R::qkv), a, 1); }},
      {K::rope_backward, [](const A& a, const S&) { rotate(a.f64(R::dqkv), a, -1); }},
      {K::attention_flash, attention<K::attention_flash>},
      {K::attention_flash_backward, attention_backward<K::attention_flash>},
      {K::attention_partial, attention<K::attention_partial>},
      {K::attention_partial_backward, attention_backward<K::attention_partial>},
      {K::attention_merge,
       [](const A& a, const S&) {
         reference::attention_merge(a.f64(R::out), a.f64(R::lse), a.f64(R::part), a.f64(R::part_lse),
                                    a.attention());
       }},
      {K::causal_conv, causal_conv},
      {K::causal_conv_backward, causal_conv_backward},
      {K::selective_scan, selective_scan},
      {K::selective_scan_backward, selective_scan_backward},
      {K::gated_norm, gated_norm},
      {K::gated_norm_backward, gated_norm_backward},
      {K::gelu, [](const A& a, const S&) { a.put(R::out, reference::gelu_forward(a.get(R::inp))); }},
      {K::gelu_backward,
       [](const A& a, const S&) { a.put(R::dinp, reference::gelu_backward(a.get(R::dout), a.get(R::inp))); }},
      {K::squared_relu,
       [](const A& a, const S&) { a.put(R::out, reference::squared_relu_forward(a.get(R::inp))); }},
      {K::squared_relu_backward,
       [](const A& a, const S&) {
         a.put(R::dinp, reference::squared_relu_backward(a.get(R::dout), a.get(R::inp)));
       }},
      {K::swiglu, swiglu},
      {K::swiglu_backward, swiglu_backward},
      {K::add, add},
      {K::add_columns, add_columns},
      {K::take_columns, take_columns},
      {K::zero, zero},
      {K::copy_to_host, copy_pairs},
      {K::copy_from_host, copy_pairs},
      {K::cross_entropy_statistics, cross_entropy_statistics},
      {K::cross_entropy, cross_entropy},
      {K::squared_norm, squared_norm},
      {K::clip_scale, clip_scale},
      {K::adamw, adamw},
  };
  return all;
}

// Memory and time stamps are the processor's.
class ReferenceDevice final : public runtime::Device {
 public:
  std::string name() const override { return "the plain reference in double"; }
  std::span<const sim::DType> dtypes() const override {
    static constexpr std::array kTypes{sim::DType::fp32};
    return kTypes;
  }
  sim::DType single_precision() const override { return sim::DType::fp64; }
  bool shares_host_memory() const override { return true; }
  bool supports(const sim::Operation& operation, std::span<const sim::DType> types) const override {
    for (std::size_t i = 0; i < types.size(); ++i)
      if (operation.operands[i].buffer != sim::kNoBuffer && types[i] != sim::DType::fp64 &&
          types[i] != sim::DType::int32)
        return false;
    return kernels_by_kind().contains(operation.kind);
  }
  void run(const runtime::BoundOperation& operation, const S& settings) override {
    kernels_by_kind().at(operation.operation->kind)(A(operation), settings);
  }

  sim::Bytes available() const override { return processor_->available(); }
  std::byte* allocate(sim::Bytes size) override { return processor_->allocate(size); }
  void release(std::byte* memory, sim::Bytes size) noexcept override { processor_->release(memory, size); }
  sim::Bytes resident(const std::byte* memory, sim::Bytes size) const override {
    return processor_->resident(memory, size);
  }
  sim::Bytes in_use() const override { return processor_->in_use(); }
  void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
    processor_->copy_to_device(to, from);
  }
  void copy_from_device(std::span<std::byte> to, const std::byte* from) override {
    processor_->copy_from_device(to, from);
  }
  void record(std::size_t index) override { processor_->record(index); }
  void synchronise() override { processor_->synchronise(); }
  void stamps(std::span<double> seconds) const override { processor_->stamps(seconds); }

 private:
  std::unique_ptr<runtime::Device> processor_ = runtime::make_cpu_device(1);
};

}  // namespace

std::unique_ptr<runtime::Device> make_reference_device() {
  return std::make_unique<ReferenceDevice>();
}

}  // namespace tests
