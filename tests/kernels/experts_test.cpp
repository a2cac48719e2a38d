// The router, the permutation of rows and products by expert, against their definitions in double and finite
// differences.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/bf16_values.h"
#include "kernels/grouped_matmul.h"
#include "kernels/matmul_bf16.h"
#include "kernels/permute.h"
#include "kernels/route.h"
#include "kernels/threads.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/route_reference.h"

using kernels::RouteSettings;
using kernels::RouteShape;
using test::kRouteCases;
using test::normal_tensor;
using test::route_row;
using test::RouteCase;
using test::Routed;

namespace {

std::vector<double> part(const std::vector<float>& all, std::int64_t first, std::int64_t count) {
  return {all.begin() + first, all.begin() + first + count};
}

}  // namespace

TEST_CASE("A router chooses the experts, with the weights, of its definition in double") {
  for (const RouteCase& c : kRouteCases) {
    const RouteShape s = c.shape;
    CAPTURE(s.R, s.E, s.K, s.groups, c.settings.sigmoid, c.settings.normalised);
    const auto logits = normal_tensor(s.R * s.E, 1, 2.0f);
    const auto bias = c.bias ? normal_tensor(s.E, 2, 0.3f) : std::vector<float>{};
    std::vector<float> weights(static_cast<std::size_t>(s.R * s.K), NAN);
    std::vector<std::int32_t> indices(weights.size(), -1);
    kernels::cpu::route_forward(weights.data(), indices.data(), logits.data(), c.bias ? bias.data() : nullptr,
                                s, c.settings);
    for (std::int64_t r = 0; r < s.R; ++r) {
      const Routed exact = route_row(part(logits, r * s.E, s.E), test::to_double(bias), s, c.settings);
      for (std::int64_t k = 0; k < s.K; ++k) {
        const auto at = static_cast<std::size_t>(r * s.K + k);
        CHECK(indices[at] == exact.indices[static_cast<std::size_t>(k)]);
        CHECK(weights[at] == Approx(exact.weights[static_cast<std::size_t>(k)]).epsilon(1e-5));
      }
    }
  }
}

TEST_CASE("A router's gradients are finite differences of its weights in double") {
  for (const RouteCase& c : kRouteCases) {
    const RouteShape s = c.shape;
    CAPTURE(s.R, s.E, s.K, s.groups, c.settings.sigmoid, c.settings.normalised);
    const auto logits = normal_tensor(s.R * s.E, 1, 2.0f), upward = normal_tensor(s.R * s.K, 3);
    const auto bias = c.bias ? normal_tensor(s.E, 2, 0.3f) : std::vector<float>{};
    const float* const bias_or_null = c.bias ? bias.data() : nullptr;
    std::vector<float> weights(upward.size()), dlogits(logits.size(), NAN),
        dbias(static_cast<std::size_t>(s.E), 1);
    std::vector<std::int32_t> indices(weights.size());
    kernels::cpu::route_forward(weights.data(), indices.data(), logits.data(), bias_or_null, s, c.settings);
    kernels::cpu::route_backward(dlogits.data(), dbias.data(), upward.data(), indices.data(), logits.data(),
                                 bias_or_null, s, c.settings);
    // The sum of upward times the weights of the row's choice.
    const auto value = [&](std::int64_t r, const std::vector<double>& row) {
      RouteShape all = s;  // the choice is fixed while the logits move
      all.K = s.E, all.groups = all.chosen_groups = 1;
      RouteSettings plain = c.settings;
      plain.normalised = false, plain.scale = 1;
      const Routed scores =
          route_row(row, c.settings.sigmoid ? std::vector<double>{} : test::to_double(bias), all, plain);
      double total = 0, sum = 0;
      for (std::int64_t k = 0; k < s.K; ++k) {
        const auto at = static_cast<std::size_t>(r * s.K + k);
        const auto place =
            std::find(scores.indices.begin(), scores.indices.end(), indices[at]) - scores.indices.begin();
        total += upward[at] * scores.weights[static_cast<std::size_t>(place)];
        sum += scores.weights[static_cast<std::size_t>(place)];
      }
      return c.settings.scale * total / (c.settings.normalised ? sum : 1);
    };
    std::vector<double> of_bias(static_cast<std::size_t>(s.E), 1);
    constexpr double kStep = 1e-5;
    for (std::int64_t r = 0; r < s.R; ++r)
      for (std::int64_t e = 0; e < s.E; ++e) {
        auto up = part(logits, r * s.E, s.E), down = up;
        up[static_cast<std::size_t>(e)] += kStep, down[static_cast<std::size_t>(e)] -= kStep;
        const double slope = (value(r, up) - value(r, down)) / (2 * kStep);
        CHECK(dlogits[static_cast<std::size_t>(r * s.E + e)] == Approx(slope).epsilon(1e-4).margin(2e-6));
        of_bias[static_cast<std::size_t>(e)] += slope;
      }
    const bool bias_learns = c.bias && !c.settings.sigmoid;
    for (std::size_t e = 0; e < dbias.size(); ++e)
      CHECK(dbias[e] == Approx(bias_learns ? of_bias[e] : 1.0).epsilon(1e-4).margin(1e-5));
  }
}

TEST_CASE("Permuting orders rows by expert, and unpermuting sums each token's rows") {
  const kernels::PermuteShape s{50, 33, 7, 3};
  const auto inp = normal_tensor(s.R * s.C, 1), weights = normal_tensor(s.R * s.K, 2);
  std::vector<std::int32_t> indices;
  for (std::int32_t r = 0; r < s.R; ++r)  // three different experts each; expert 6 has none
    for (std::int32_t k = 0; k < s.K; ++k) indices.push_back((r * r + 2 * k) % 6);
  std::vector<float> rows(static_cast<std::size_t>(s.R * s.K * s.C), NAN), row_weights(weights.size(), NAN);
  kernels::cpu::permute(rows.data(), row_weights.data(), inp.data(), weights.data(), indices.data(), s);

  const auto offsets = kernels::cpu::expert_offsets(indices.data(), s.R * s.K, s.E);
  REQUIRE(offsets.size() == 8);
  CHECK(offsets[6] == s.R * s.K);
  CHECK(offsets[7] == s.R * s.K);
  std::int64_t place = 0;
  for (std::int32_t e = 0; e < s.E; ++e) {
    CHECK(offsets[static_cast<std::size_t>(e)] == place);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] != e) continue;
      CHECK(row_weights[static_cast<std::size_t>(place)] == weights[i]);
      const auto row = static_cast<std::int64_t>(i) / s.K;
      CHECK(std::equal(inp.begin() + row * s.C, inp.begin() + (row + 1) * s.C, rows.begin() + place * s.C));
      ++place;
    }
  }

  std::vector<float> back(inp.size(), NAN), weights_back(weights.size(), NAN);
  for (const int threads : {1, 3}) {
    kernels::cpu::set_threads(threads);
    kernels::cpu::unpermute(back.data(), weights_back.data(), rows.data(), row_weights.data(), indices.data(),
                            s);
    CHECK(weights_back == weights);
    for (std::size_t i = 0; i < inp.size(); ++i) CHECK(back[i] == inp[i] + inp[i] + inp[i]);
  }
  kernels::cpu::set_threads(0);
}

TEST_CASE("Experts with a capacity take their first rows, and what is dropped adds nothing") {
  kernels::PermuteShape s{50, 9, 4, 2};
  const auto inp = normal_tensor(s.R * s.C, 1), weights = normal_tensor(s.R * s.K, 2);
  std::vector<std::int32_t> indices;
  for (std::int32_t r = 0; r < s.R; ++r)  // expert 0 has 50 rows, 1 and 2 some, 3 none
    for (const std::int32_t e : {0, 1 + (r * r) % 2}) indices.push_back(e);
  for (const std::int64_t places : {1, 7, 30, 50, 60}) {
    CAPTURE(places);
    s.places = places;
    std::vector<float> rows(static_cast<std::size_t>(s.E * places * s.C), NAN),
        row_weights(static_cast<std::size_t>(s.E * places), NAN);
    kernels::cpu::permute(rows.data(), row_weights.data(), inp.data(), weights.data(), indices.data(), s);
    // By the definition: token after token, choice after choice.
    std::vector<float> expected_rows(rows.size(), 0.0f), expected_weights(row_weights.size(), 0.0f);
    std::vector<std::int64_t> taken(static_cast<std::size_t>(s.E), 0);
    std::vector<float> expected_back(inp.size(), 0.0f), weights_of_kept = weights;
    for (std::int64_t i = 0; i < s.R * s.K; ++i) {
      const auto e = static_cast<std::size_t>(indices[static_cast<std::size_t>(i)]);
      if (taken[e] == places) {
        weights_of_kept[static_cast<std::size_t>(i)] = 0;
        continue;
      }
      const auto place = static_cast<std::int64_t>(e) * places + taken[e]++;
      expected_weights[static_cast<std::size_t>(place)] = weights[static_cast<std::size_t>(i)];
      for (std::int64_t c = 0; c < s.C; ++c) {
        const float x = inp[static_cast<std::size_t>(i / s.K * s.C + c)];
        expected_rows[static_cast<std::size_t>(place * s.C + c)] = x;
        expected_back[static_cast<std::size_t>(i / s.K * s.C + c)] += x;
      }
    }
    CHECK(rows == expected_rows);
    CHECK(row_weights == expected_weights);
    std::vector<float> back(inp.size(), NAN), weights_back(weights.size(), NAN);
    kernels::cpu::unpermute(back.data(), weights_back.data(), rows.data(), row_weights.data(), indices.data(),
                            s);
    CHECK(back == expected_back);
    CHECK(weights_back == weights_of_kept);
  }
}

TEST_CASE("Products by expert multiply each row by its own expert's weight") {
  // An expert without rows, with one, with many.
  const std::vector<std::int64_t> offsets{0, 5, 5, 6, 140};
  const std::int64_t rows = 140, E = 4;
  const kernels::cpu::GroupedShape s{24, 17};
  const auto inp = normal_tensor(rows * s.K, 1), weight = normal_tensor(E * s.N * s.K, 2),
             bias = normal_tensor(E * s.N, 3), dout = normal_tensor(rows * s.N, 4);
  std::vector<float> out(dout.size(), NAN), dinp(inp.size(), NAN);
  std::vector<float> dweight(weight.size(), 1), dbias(bias.size(), 1);
  kernels::cpu::grouped_matmul_forward(out.data(), inp.data(), weight.data(), bias.data(), offsets, s);
  kernels::cpu::grouped_matmul_backward_input(dinp.data(), dout.data(), weight.data(), offsets, s);
  kernels::cpu::grouped_matmul_backward_weight(dweight.data(), dbias.data(), dout.data(), inp.data(), offsets,
                                               s);
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  std::vector<double> exact_dweight(weight.size(), 1), exact_dbias(bias.size(), 1), exact_dinp(inp.size(), 0);
  for (std::int64_t e = 0; e < E; ++e)
    for (std::int64_t r = offsets[at(e)]; r < offsets[at(e + 1)]; ++r)
      for (std::int64_t n = 0; n < s.N; ++n) {
        double sum = bias[at(e * s.N + n)];
        const double upward = dout[at(r * s.N + n)];
        for (std::int64_t k = 0; k < s.K; ++k) {
          const auto w = at((e * s.N + n) * s.K + k);
          sum += static_cast<double>(inp[at(r * s.K + k)]) * weight[w];
          exact_dinp[at(r * s.K + k)] += upward * weight[w];
          exact_dweight[w] += upward * inp[at(r * s.K + k)];
        }
        exact_dbias[at(e * s.N + n)] += upward;
        CHECK(out[at(r * s.N + n)] == Approx(sum).epsilon(1e-5).margin(1e-5));
      }
  CHECK(test::worst_error(dinp, exact_dinp) <= 2e-5);
  CHECK(test::worst_error(dweight, exact_dweight) <= 5e-5);
  CHECK(test::worst_error(dbias, exact_dbias) <= 2e-5);
}

TEST_CASE("Products by expert in bf16 are those of each expert alone, bit for bit") {
  using kernels::cuda::bf16;
  const std::vector<std::int64_t> offsets{0, 70, 70, 71, 140};
  const std::int64_t rows = 140, E = 4;
  const kernels::cpu::GroupedShape s{48, 34};
  const auto narrow = [](std::int64_t count, int seed) {
    const auto wide = normal_tensor(count, seed);
    std::vector<bf16> all(wide.size());
    for (std::size_t i = 0; i < wide.size(); ++i) all[i] = kernels::cpu::rounded(wide[i]);
    return all;
  };
  const auto inp = narrow(rows * s.K, 1), weight = narrow(E * s.N * s.K, 2), bias = narrow(E * s.N, 3),
             dout = narrow(rows * s.N, 4), before = narrow(E * s.N * s.K, 5);
  auto out = narrow(rows * s.N, 6), dinp = narrow(rows * s.K, 7), dweight = before, dbias = bias;
  auto out_alone = out, dinp_alone = dinp, dweight_alone = before, dbias_alone = bias;
  kernels::cpu::grouped_matmul_forward(out.data(), inp.data(), weight.data(), bias.data(), offsets, s);
  kernels::cpu::grouped_matmul_backward_input(dinp.data(), dout.data(), weight.data(), offsets, s);
  kernels::cpu::grouped_matmul_backward_weight(dweight.data(), dbias.data(), dout.data(), inp.data(), offsets,
                                               s);
  for (std::int64_t e = 0; e < E; ++e) {
    const auto at = static_cast<std::size_t>(e);
    const std::int64_t row = offsets[at], of_weight = e * s.N * s.K;
    const kernels::MatmulShape alone{offsets[at + 1] - row, s.N, s.K};
    if (alone.M == 0) continue;
    kernels::cpu::matmul_forward({out_alone.data() + row * s.N, nullptr}, inp.data() + row * s.K,
                                 weight.data() + of_weight, bias.data() + e * s.N,
                                 static_cast<const bf16*>(nullptr), alone);
    kernels::cpu::matmul_backward_input(dinp_alone.data() + row * s.K, dout.data() + row * s.N,
                                        weight.data() + of_weight, false, alone);
    kernels::cpu::matmul_backward_weight(dweight_alone.data() + of_weight, dbias_alone.data() + e * s.N,
                                         dout.data() + row * s.N, inp.data() + row * s.K, alone);
  }
  const auto bits = [](const std::vector<bf16>& all) {
    std::vector<std::uint16_t> of(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) of[i] = all[i].bits;
    return of;
  };
  CHECK(bits(out) == bits(out_alone));
  CHECK(bits(dinp) == bits(dinp_alone));
  CHECK(bits(dweight) == bits(dweight_alone));
  CHECK(bits(dbias) == bits(dbias_alone));
  CHECK(bits(out) != bits(narrow(rows * s.N, 6)));
}
