// Routing, permutation and products of experts as the GPU's kernels compute them, thread by thread.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "kernels/cuda/feed_forward.h"
#include "kernels/cuda/grouped_matmul.h"
#include "kernels/cuda/permute.h"
#include "kernels/cuda/route.h"
#include "tests/cuda/on_gpu.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/route_reference.h"

namespace cuda = kernels::cuda;
using cuda::Type;
using test::kBackward;
using test::kForward;
using test::to_double;
using tests::check_as_accurate_as_plain;
using tests::DeviceArray;
using tests::in_every_order;
using tests::no_scratch;
using tests::normal_tensor;
using tests::OnGpu;
using tests::rounded;
using tests::Scratch;

namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// Three different experts a row; the last of E has none.
std::vector<std::int32_t> choices(const kernels::PermuteShape& s) {
  std::vector<std::int32_t> indices;
  for (std::int32_t r = 0; r < s.R; ++r)
    for (std::int32_t k = 0; k < s.K; ++k)
      indices.push_back((r * r + 2 * k) % static_cast<std::int32_t>(s.E - 1));
  return indices;
}

}  // namespace

TEST_CASE(
    "A router on the GPU chooses the experts of its definition, with weights as accurate as the CPU's") {
  for (const test::RouteCase& c : test::kRouteCases)
    for (const Type type : {Type::f32, Type::bf16}) {
      const kernels::RouteShape s = c.shape;
      CAPTURE(s.R, s.E, s.K, s.groups, c.settings.sigmoid, c.settings.normalised);
      const auto logits = test::normal_tensor(s.R * s.E, 1, 2.0f);
      const auto bias = c.bias ? normal_tensor(s.E, 2, type, 0.3f) : std::vector<float>{};
      const auto upward = test::normal_tensor(s.R * s.K, 3);
      const float* const bias_or_null = c.bias ? bias.data() : nullptr;

      std::vector<double> exact;
      std::vector<std::int32_t> expected;
      for (std::int64_t r = 0; r < s.R; ++r) {
        const auto row = test::route_row({logits.begin() + r * s.E, logits.begin() + (r + 1) * s.E},
                                         to_double(bias), s, c.settings);
        exact.insert(exact.end(), row.weights.begin(), row.weights.end());
        expected.insert(expected.end(), row.indices.begin(), row.indices.end());
      }
      std::vector<float> plain(exact.size()), plain_dlogits(logits.size()), plain_dbias(at(s.E), 1);
      std::vector<std::int32_t> on_cpu(exact.size());
      kernels::cpu::route_forward(plain.data(), on_cpu.data(), logits.data(), bias_or_null, s, c.settings);
      kernels::cpu::route_backward(plain_dlogits.data(), plain_dbias.data(), upward.data(), on_cpu.data(),
                                   logits.data(), bias_or_null, s, c.settings);

      OnGpu<float> logits_there(logits), upward_there(upward),
          dlogits(std::vector<float>(logits.size(), NAN));
      OnGpu<float> weights(std::vector<float>(exact.size(), NAN));
      OnGpu<std::int32_t> indices(std::vector<std::int32_t>(exact.size(), -1));
      DeviceArray bias_there(bias, type);
      const cuda::ConstTensor bias_operand = c.bias ? cuda::ConstTensor(bias_there) : cuda::ConstTensor();
      std::vector<float> dbias;
      const auto values = in_every_order([&] {
        Scratch scratch;
        DeviceArray dbias_there(std::vector<float>(at(s.E), 1), Type::f32);
        cuda::route_forward(no_scratch(), weights.data(), indices.data(), logits_there.data(), bias_operand,
                            s, c.settings);
        cuda::route_backward(scratch.context(), dlogits.data(), dbias_there, upward_there.data(),
                             indices.data(), logits_there.data(), bias_operand, s, c.settings);
        dbias = dbias_there.values();
        return weights.values();
      });
      CHECK(indices.values() == expected);
      check_as_accurate_as_plain(values, plain, exact, Type::f32, kForward);
      // The CPU's gradients are held to finite differences (tests/kernels/experts_test.cpp).
      const auto gradients = dlogits.values();
      for (std::size_t i = 0; i < gradients.size(); ++i)
        CHECK(gradients[i] == Approx(plain_dlogits[i]).epsilon(1e-5).margin(1e-6));
      for (std::size_t e = 0; e < dbias.size(); ++e)
        CHECK(dbias[e] == Approx(plain_dbias[e]).epsilon(1e-5).margin(1e-5));
    }
}

TEST_CASE("Permuting on the GPU orders rows by expert, and unpermuting sums each token's rows") {
  // One part of choices and several, of which the last is not full; widths that vectors fill and do not.
  for (const kernels::PermuteShape s : {kernels::PermuteShape{50, 33, 7, 3}, {700, 8, 70, 3}})
    for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
      CAPTURE(s.R, s.C, s.E, static_cast<int>(type));
      const auto inp = normal_tensor(s.R * s.C, 1, type), weights = test::normal_tensor(s.R * s.K, 2);
      const auto indices = choices(s);
      std::vector<float> expected(at(s.R * s.K * s.C)), expected_weights(weights.size()), sums(inp.size());
      kernels::cpu::permute(expected.data(), expected_weights.data(), inp.data(), weights.data(),
                            indices.data(), s);
      kernels::cpu::unpermute(sums.data(), nullptr, expected.data(), nullptr, indices.data(), s);
      OnGpu<std::int32_t> indices_there(indices);
      OnGpu<float> weights_there(weights), row_weights(std::vector<float>(weights.size(), NAN)),
          weights_back(std::vector<float>(weights.size(), NAN));
      std::vector<float> back;
      const auto rows = in_every_order([&] {
        Scratch scratch;
        DeviceArray x(inp, type), out(s.R * s.K * s.C, type), sum(s.R * s.C, type);
        cuda::permute(scratch.context(), out, row_weights.data(), x, weights_there.data(),
                      indices_there.data(), s);
        cuda::unpermute(scratch.context(), sum, weights_back.data(), out, row_weights.data(),
                        indices_there.data(), s);
        back = sum.values();
        return out.values();
      });
      CHECK(rows == expected);
      CHECK(row_weights.values() == expected_weights);
      CHECK(weights_back.values() == weights);
      CHECK(back == rounded(sums, type));
    }
}

TEST_CASE("Products by expert on the GPU are as accurate as plain loops, whatever rows each expert has") {
  struct Case {
    std::vector<std::int32_t> offsets;
    kernels::cpu::GroupedShape s;
  };
  // Without rows, with one, with more than a tile; widths that fill tiles, whole vectors, neither.
  for (const Case& c :
       {Case{{0, 5, 5, 6, 140}, {24, 17}}, {{0, 0, 131, 132}, {136, 40}}, {{0, 3, 20}, {8, 264}}})
    for (const Type type : {Type::f32, Type::bf16, Type::f16})
      for (const Type gradient : {Type::f32, type}) {
        const auto E = static_cast<std::int64_t>(c.offsets.size()) - 1, R = std::int64_t{c.offsets.back()};
        const auto [N, K] = c.s;
        CAPTURE(R, N, K, static_cast<int>(type), static_cast<int>(gradient));
        const auto inp = normal_tensor(R * K, 1, type), weight = normal_tensor(E * N * K, 2, type),
                   bias = normal_tensor(E * N, 3, type), dout = normal_tensor(R * N, 4, type);
        const auto before = normal_tensor(E * N * K, 5, gradient),
                   bias_before = normal_tensor(E * N, 6, gradient);
        const auto reference_of = [&]<class Real>(Real) {
          const auto of = [](const std::vector<float>& values, std::int64_t first, std::int64_t count) {
            return std::vector<Real>(values.begin() + first, values.begin() + first + count);
          };
          std::vector<std::vector<Real>> all(4);
          for (std::int64_t e = 0; e < E; ++e) {
            const std::int64_t first = c.offsets[at(e)], rows = c.offsets[at(e + 1)] - first;
            const kernels::MatmulShape s{rows, N, K};
            const auto w = of(weight, e * N * K, N * K), x = of(inp, first * K, rows * K),
                       g = of(dout, first * N, rows * N);
            const auto out = reference::matmul_forward<Real>(x, w, of(bias, e * N, N), {}, s);
            const auto dinp = reference::matmul_backward_input<Real>(std::vector<Real>(x.size()), g, w, s);
            auto dweight = of(before, e * N * K, N * K), dbias = of(bias_before, e * N, N);
            reference::matmul_backward_weight<Real>(dweight, dbias, g, x, s);
            int i = 0;
            for (const auto& part : {out, dinp, dweight, dbias}) {
              all[at(i)].insert(all[at(i)].end(), part.begin(), part.end());
              ++i;
            }
          }
          return all;
        };
        const auto exact = reference_of(double{});
        const auto plain = reference_of(float{});
        std::vector<std::vector<float>> values(4);
        in_every_order([&] {
          OnGpu<std::int32_t> offsets(c.offsets);
          const cuda::GroupedRows rows{R, E, offsets.data()};
          DeviceArray x(inp, type), w(weight, type), b(bias, type), g(dout, type), out(R * N, type),
              dx(R * K, type), dw(before, gradient), db(bias_before, gradient);
          cuda::grouped_matmul_forward(no_scratch(), out, x, w, b, rows, c.s);
          cuda::grouped_matmul_backward_input(no_scratch(), dx, g, w, rows, c.s);
          cuda::grouped_matmul_backward_weight(no_scratch(), dw, db, g, x, rows, c.s);
          values = {out.values(), dx.values(), dw.values(), db.values()};
          std::vector<float> all;
          for (const auto& part : values) all.insert(all.end(), part.begin(), part.end());
          return all;
        });
        check_as_accurate_as_plain(values[0], rounded(plain[0], type), exact[0], type, kForward);
        check_as_accurate_as_plain(values[1], rounded(plain[1], type), exact[1], type, kBackward);
        check_as_accurate_as_plain(values[2], rounded(plain[2], gradient), exact[2], gradient, kBackward);
        check_as_accurate_as_plain(values[3], rounded(plain[3], gradient), exact[3], gradient, kBackward);
      }
}

namespace {

// out = activation(inp) [* up] * weight of the row; and what follows from dout.
template <class Real>
struct FeedForward {
  std::vector<Real> out, dinp, dweights;

  FeedForward(cuda::Activation activation, const std::vector<Real>& inp, const std::vector<Real>& dout,
              const std::vector<Real>& weights, bool sigmoid, std::int64_t R, std::int64_t F)
      : out(at(R * F)), dinp(inp.size()), dweights(at(R)) {
    const bool gated = cuda::is_gated(activation), clamped = activation == cuda::Activation::clamped_silu;
    for (std::int64_t r = 0; r < R; ++r) {
      Real factor = 1, slope = 1;
      if (!weights.empty()) {
        const Real s = 1 / (1 + std::exp(-weights[at(r)]));
        factor = sigmoid ? s : weights[at(r)];
        slope = sigmoid ? s * (1 - s) : Real(1);
      }
      for (std::int64_t f = 0; f < F; ++f) {
        const std::int64_t i = r * (gated ? 2 * F : F) + f;
        const Real x = inp[at(i)], stored = gated ? inp[at(i + F)] : Real(1), g = dout[at(r * F + f)];
        const Real positive = std::max(x, Real(0)), bounded = std::min(x, Real(7));
        const Real up = clamped ? std::clamp(stored, Real(-7), Real(7)) + 1 : stored;
        const Real up_slope = clamped && std::abs(stored) > 7 ? 0 : 1;
        const Real below = std::erfc(-x / std::sqrt(Real(2))) / 2;
        const Real density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<Real>);
        const Real gate = 1 / (1 + std::exp(Real(-1.702) * bounded));
        const auto [value, derivative] =
            activation == cuda::Activation::relu ? std::pair<Real, Real>{positive, x > 0 ? 1 : 0}
            : activation == cuda::Activation::squared_relu
                ? std::pair<Real, Real>{positive * positive, 2 * positive}
            : activation == cuda::Activation::gelu_exact
                ? std::pair<Real, Real>{x * below, below + x * density}
            : activation == cuda::Activation::none ? std::pair<Real, Real>{x, 1}
            : clamped
                ? std::pair<Real, Real>{bounded * gate, x > 7 ? 0 : gate * (1 + Real(1.702) * x * (1 - gate))}
            : activation == cuda::Activation::silu
                ? std::pair<Real, Real>{reference::silu(x), reference::silu_derivative(x)}
                : std::pair<Real, Real>{reference::gelu(x), reference::gelu_derivative(x)};
        out[at(r * F + f)] = value * up * factor;
        dinp[at(i)] = g * factor * up * derivative;
        if (gated) dinp[at(i + F)] = g * factor * value * up_slope;
        dweights[at(r)] += g * value * up * slope;
      }
    }
  }
};

}  // namespace

TEST_CASE("Activations with and without weights of rows are on the GPU as accurate as plain loops") {
  using cuda::Activation;
  const std::int64_t R = 5;
  for (const Activation activation :
       {Activation::relu, Activation::squared_relu, Activation::silu, Activation::gelu,
        Activation::gelu_exact, Activation::none, Activation::clamped_silu})
    for (const std::int64_t F : {17, 64, 2600})
      for (const Type type : {Type::f32, Type::bf16, Type::f16})
        for (const int weighted : {0, 1, 2}) {  // not; as they are; by their sigmoids
          CAPTURE(static_cast<int>(activation), F, static_cast<int>(type), weighted);
          const bool gated = cuda::is_gated(activation);
          const std::int64_t inputs = R * (gated ? 2 * F : F);
          const auto inp = normal_tensor(inputs, 1, type, 3), dout = normal_tensor(R * F, 2, type);
          const auto weights = weighted ? test::normal_tensor(R, 3) : std::vector<float>{};
          const FeedForward<double> exact(activation, to_double(inp), to_double(dout), to_double(weights),
                                          weighted == 2, R, F);
          const FeedForward<float> plain(activation, inp, dout, weights, weighted == 2, R, F);
          std::vector<float> dinp, dweights;
          const auto out = in_every_order([&] {
            DeviceArray x(inp, type), g(dout, type), y(R * F, type), dx(inputs, type);
            OnGpu<float> w(weighted ? weights : std::vector<float>(1)), dw(std::vector<float>(at(R), NAN));
            const cuda::RowWeights of_rows{weighted ? w.data() : nullptr, weighted == 2};
            float* const dw_or_null = weighted ? dw.data() : nullptr;
            if (gated) {
              cuda::gated_forward(no_scratch(), activation, y, x, R, F, of_rows);
              cuda::gated_backward(no_scratch(), activation, dx, g, x, R, F, of_rows, dw_or_null);
            } else {
              cuda::activation_forward(no_scratch(), activation, y, x, R, F, of_rows);
              cuda::activation_backward(no_scratch(), activation, dx, g, x, R, F, of_rows, dw_or_null);
            }
            dinp = dx.values(), dweights = dw.values();
            return y.values();
          });
          check_as_accurate_as_plain(out, rounded(plain.out, type), exact.out, type, kForward);
          check_as_accurate_as_plain(dinp, rounded(plain.dinp, type), exact.dinp, type, kBackward);
          if (weighted)
            check_as_accurate_as_plain(dweights, plain.dweights, exact.dweights, Type::f32, kBackward);
        }
}
