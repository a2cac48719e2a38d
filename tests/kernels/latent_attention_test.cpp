// Latent attention against its definition in double, against finite differences, and against itself: what is
// absorbed equals what is expanded.
#include "kernels/latent_attention.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/rope.h"
#include "kernels/threads.h"
#include "tests/kernels/coded_activations.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/latent_reference.h"

using kernels::LatentShape;
using test::kBackward;
using test::kForward;
using test::normal_tensor;
using test::to_double;

namespace {

// B, T, H, N, P, V, L; lengths around the tile of 64, values wider and narrower than keys.
const std::vector<LatentShape> kShapes = {{1, 1, 1, 2, 2, 3, 4},
                                          {2, 17, 3, 8, 4, 6, 10},
                                          {1, 65, 2, 16, 8, 40, 24},
                                          {1, 130, 2, 20, 6, 12, 30},
                                          {2, 70, 4, 12, 8, 16, 16, {.window = 9}}};

std::vector<float> expanded(const test::LatentTensors<float>& x) {
  std::vector<float> kv = x.up;
  kv.insert(kv.end(), x.rotary.begin(), x.rotary.end());
  return kv;
}

test::LatentAttention<float> run(const test::LatentTensors<float>& x, const LatentShape& s) {
  const std::vector<float> kv = expanded(x);
  test::LatentAttention<float> a{std::vector<float>(x.dout.size(), NAN),
                                 std::vector<float>(static_cast<std::size_t>(s.B * s.H * s.T), NAN),
                                 std::vector<float>(x.q.size(), NAN), std::vector<float>(kv.size(), NAN)};
  kernels::cpu::attention_latent_forward(a.out.data(), a.lse.data(), x.q.data(), kv.data(), s);
  kernels::cpu::attention_latent_backward(a.dq.data(), a.dkv.data(), x.dout.data(), x.q.data(), kv.data(),
                                          a.out.data(), a.lse.data(), s);
  return a;
}

double loss(const test::LatentTensors<double>& x, const LatentShape& s) {
  const std::vector<double> out = test::latent_attention_of(x, s).out;
  double sum = 0;
  for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * x.dout[i];
  return sum;
}

}  // namespace

TEST_CASE("latent attention, forward and backward, is as accurate as plain loops") {
  for (const LatentShape& s : kShapes) {
    CAPTURE(s.B, s.T, s.H, s.N, s.P, s.V, s.mask.window);
    const test::LatentTensors<float> x = test::drawn_latents(s);
    const test::LatentAttention<float> kernel = run(x, s), plain = test::latent_attention_of(x, s);
    const test::LatentAttention<double> exact = test::latent_attention_of(test::widened(x), s);
    test::check_as_accurate_as_plain(kernel.out, plain.out, exact.out, kForward);
    test::check_as_accurate_as_plain(kernel.lse, plain.lse, exact.lse, kForward);
    test::check_as_accurate_as_plain(kernel.dq, plain.dq, exact.dq, kBackward);
    test::check_as_accurate_as_plain(kernel.dkv, plain.dkv, exact.dkv, kBackward);
  }
}

TEST_CASE("the reference's gradients of latent attention are its finite differences") {
  const LatentShape s{1, 5, 2, 3, 2, 4, 6};
  test::LatentTensors<double> x = test::widened(test::drawn_latents(s));
  const test::LatentAttention<double> gradients = test::latent_attention_of(x, s);
  constexpr double kStep = 1e-5;
  const auto check = [&](std::vector<double>& values, const double* gradient) {
    for (std::size_t i = 0; i < values.size(); i += 3) {
      const double before = values[i];
      values[i] = before + kStep;
      const double above = loss(x, s);
      values[i] = before - kStep;
      const double below = loss(x, s);
      values[i] = before;
      CHECK((above - below) / (2 * kStep) == Approx(gradient[i]).epsilon(1e-6).margin(1e-8));
    }
  };
  check(x.q, gradients.dq.data());
  check(x.up, gradients.dkv.data());
  check(x.rotary, gradients.dkv.data() + x.up.size());
}

TEST_CASE("latent attention gives the same bits on any number of threads") {
  const LatentShape s{2, 90, 3, 8, 4, 12, 10};
  const test::LatentTensors<float> x = test::drawn_latents(s);
  kernels::cpu::set_threads(1);
  const test::LatentAttention<float> one = run(x, s);
  for (const int threads : {2, 3, 5}) {
    kernels::cpu::set_threads(threads);
    const test::LatentAttention<float> again = run(x, s);
    CHECK(one.out == again.out);
    CHECK(one.dq == again.dq);
    CHECK(one.dkv == again.dkv);
  }
  kernels::cpu::set_threads(2);
}

TEST_CASE("rotating a latent's key back undoes it, for each head that had a copy") {
  const LatentShape s{2, 7, 3, 4, 6, 5, 8};
  std::vector<float> table(static_cast<std::size_t>(s.T * s.P));
  kernels::cpu::rope_table(table.data(), 100, {}, s.T, s.P);
  const std::int64_t rows = s.B * s.T;
  std::vector<float> q = normal_tensor(rows * s.H * s.query(), 1);
  const std::vector<float> q_before = q;
  // The key is the last columns of a wider row.
  std::vector<float> down = normal_tensor(rows * s.cached(), 2);
  const std::vector<float> down_before = down;
  std::vector<float> kv(static_cast<std::size_t>(rows * s.expanded()), 0.0f);
  kernels::cpu::rope_latent_forward(q.data(), {down.data() + s.L, s.cached()}, kv.data(), table.data(),
                                    nullptr, s);
  const float* const copies = kv.data() + rows * s.H * (s.N + s.V);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < s.cached(); ++i) {
      if (i < s.L)
        CHECK(down[static_cast<std::size_t>(r * s.cached() + i)] ==
              down_before[static_cast<std::size_t>(r * s.cached() + i)]);
      for (std::int64_t h = 0; i >= s.L && h < s.H; ++h)
        CHECK(copies[(r * s.H + h) * s.P + i - s.L] == down[static_cast<std::size_t>(r * s.cached() + i)]);
    }
  std::vector<float> dkey(static_cast<std::size_t>(rows * s.P), NAN);
  kernels::cpu::rope_latent_backward(q.data(), dkey.data(), kv.data(), table.data(), s);
  for (std::size_t i = 0; i < q.size(); ++i) CHECK(q[i] == Approx(q_before[i]).margin(1e-6));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < s.P; ++i)
      CHECK(dkey[static_cast<std::size_t>(r * s.P + i)] ==
            Approx(3 * down_before[static_cast<std::size_t>(r * s.cached() + s.L + i)]).margin(1e-5));
}

TEST_CASE("absorbing an up-projection in codes is absorbing the values that its codes stand for", "[long]") {
  // Rows of a head begin anywhere in a tile of codes: heads of 20 + 12 and of 7 + 5 rows. Heads of 16 + 16
  // and of 32 + 16 are whole tiles, with few tokens and with many.
  for (const LatentShape& s : {LatentShape{1, 1, 3, 20, 4, 12, 256}, LatentShape{1, 2, 5, 7, 2, 5, 256},
                               LatentShape{2, 3, 2, 16, 4, 16, 512}, LatentShape{1, 1, 4, 32, 4, 16, 256},
                               LatentShape{3, 7, 2, 16, 4, 16, 256}})
    for (const kernels::QuantisedFormat f : kernels::kKernelFormats) {
      CAPTURE(s.B, s.T, s.H, s.N, s.V, s.L, f.bits, f.minima, f.blocks);
      const std::int64_t rows = s.B * s.T, stored = s.H * (s.N + s.V);
      std::vector<float> weight = normal_tensor(stored * s.L, 1);
      std::vector<std::byte> codes(static_cast<std::size_t>(f.code_bytes(stored, s.L))),
          numbers(static_cast<std::size_t>(f.number_bytes(stored, s.L)));
      const kernels::QuantisedWeight up{codes.data(), numbers.data(), f};
      kernels::cpu::quantise(up, weight.data(), stored, s.L);
      kernels::cpu::dequantise(weight.data(), up, stored, s.L);
      // What the product in codes rounds activations to is rounded no further.
      const std::vector<float> q = normal_tensor(rows * s.H * s.query(), 2),
                               attended = test::coded(normal_tensor(rows * s.H * s.L, 3));
      const auto absorbed = [&](auto up_weight) {
        std::vector<float> both(static_cast<std::size_t>(rows * s.H * (s.L + s.V)), NAN);
        kernels::cpu::absorb_keys(both.data(), q.data(), up_weight, s);
        kernels::cpu::absorb_values(both.data() + rows * s.H * s.L, attended.data(), up_weight, s);
        return both;
      };
      const auto by_loops = [&](auto zero) {
        std::vector<decltype(zero)> both;
        const auto add_sum = [&](const float* a, const float* b, std::int64_t count, std::int64_t b_stride) {
          auto sum = zero;
          for (std::int64_t i = 0; i < count; ++i) sum += static_cast<decltype(zero)>(a[i]) * b[i * b_stride];
          both.push_back(sum);
        };
        for (std::int64_t row = 0; row < rows * s.H; ++row) {
          const float* const of_head = weight.data() + row % s.H * (s.N + s.V) * s.L;
          for (std::int64_t l = 0; l < s.L; ++l) add_sum(q.data() + row * s.query(), of_head + l, s.N, s.L);
        }
        for (std::int64_t row = 0; row < rows * s.H; ++row) {
          const float* const of_head = weight.data() + (row % s.H * (s.N + s.V) + s.N) * s.L;
          for (std::int64_t v = 0; v < s.V; ++v)
            add_sum(attended.data() + row * s.L, of_head + v * s.L, s.L, 1);
        }
        return both;
      };
      kernels::cpu::set_threads(1);
      const auto alone = absorbed(up);
      kernels::cpu::set_threads(3);
      CHECK(absorbed(up) == alone);
      kernels::cpu::set_threads(0);
      test::check_as_accurate_as_plain(alone, by_loops(0.0f), by_loops(0.0), kForward);
    }
}

TEST_CASE("attention to cached latents with absorbed products is attention to what they expand to",
          "[long]") {
  for (const LatentShape& s : {LatentShape{2, 12, 3, 8, 4, 6, 10}, LatentShape{1, 140, 40, 6, 4, 8, 12}})
    for (const std::int64_t block : {std::int64_t{0}, std::int64_t{8}}) {
      CAPTURE(s.T, s.H, block);
      const std::int64_t rows = s.B * s.T;
      const std::vector<float> q = normal_tensor(rows * s.H * s.query(), 1),
                               latent = normal_tensor(rows * s.L, 2), key = normal_tensor(rows * s.P, 3),
                               weight = normal_tensor(s.H * (s.N + s.V) * s.L, 4, 0.5f);
      // Expanded, by the definition.
      const auto expand = [&](auto zero) {
        using Real = decltype(zero);
        test::LatentTensors<Real> x{
            {q.begin(), q.end()}, {}, {}, std::vector<Real>(static_cast<std::size_t>(rows * s.H * s.V))};
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t row = 0; row < s.H * (s.N + s.V); ++row) {
            Real sum = 0;
            for (std::int64_t l = 0; l < s.L; ++l)
              sum += static_cast<Real>(weight[static_cast<std::size_t>(row * s.L + l)]) *
                     static_cast<Real>(latent[static_cast<std::size_t>(r * s.L + l)]);
            x.up.push_back(sum);
          }
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t h = 0; h < s.H; ++h)
            for (std::int64_t i = 0; i < s.P; ++i)
              x.rotary.push_back(static_cast<Real>(key[static_cast<std::size_t>(r * s.P + i)]));
        return test::latent_attention_of(x, s).out;
      };
      // Absorbed, a token at a time.
      const std::int64_t blocks = block > 0 ? (s.T + block - 1) / block : 1;
      std::vector<std::int32_t> table;
      for (std::int64_t b = 0; b < s.B; ++b)
        for (std::int64_t i = 0; i < blocks; ++i) table.push_back(static_cast<std::int32_t>(i * s.B + b));
      const std::int64_t capacity = block > 0 ? block : s.T;
      std::vector<float> memory(static_cast<std::size_t>(s.B * blocks * capacity * s.cached()), NAN);
      const kernels::cpu::LatentCache cache{memory.data(), capacity, block > 0 ? table.data() : nullptr,
                                            blocks};
      std::vector<float> out(static_cast<std::size_t>(rows * s.H * s.V), NAN);
      LatentShape step = s;
      step.T = 1;
      for (std::int64_t t = 0; t < s.T; ++t) {
        const auto of_token = [&](const std::vector<float>& all, std::int64_t width) {
          std::vector<float> part;
          for (std::int64_t b = 0; b < s.B; ++b)
            part.insert(part.end(), all.begin() + (b * s.T + t) * width,
                        all.begin() + (b * s.T + t + 1) * width);
          return part;
        };
        const std::vector<float> queries = of_token(q, s.H * s.query()), latents = of_token(latent, s.L),
                                 keys = of_token(key, s.P);
        const std::vector<std::int32_t> positions(static_cast<std::size_t>(s.B),
                                                  static_cast<std::int32_t>(t));
        kernels::cpu::latent_append(cache, latents.data(), {keys.data(), s.P}, positions.data(), step);
        std::vector<float> absorbed(static_cast<std::size_t>(s.B * s.H * s.L), NAN), attended = absorbed;
        std::vector<float> values(static_cast<std::size_t>(s.B * s.H * s.V), NAN);
        kernels::cpu::absorb_keys(absorbed.data(), queries.data(), weight.data(), step);
        kernels::cpu::attention_latent_cached(attended.data(), absorbed.data(), queries.data(), cache,
                                              positions.data(), step);
        kernels::cpu::absorb_values(values.data(), attended.data(), weight.data(), step);
        for (std::int64_t b = 0; b < s.B; ++b)
          std::copy_n(values.begin() + b * s.H * s.V, s.H * s.V, out.begin() + (b * s.T + t) * s.H * s.V);
      }
      test::check_as_accurate_as_plain(out, expand(0.0f), expand(0.0), kForward);
    }
}
