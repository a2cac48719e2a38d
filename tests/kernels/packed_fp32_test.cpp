// Products of fp32 by packed tiles (kernels/matmul_packed.h), of fp32 and of parts in bf16, by the
// processor's instructions and without them, beside the BLAS and the double reference.
#include <bit>
#include <random>

#include "kernels/matmul.h"
#include "kernels/matmul_packed.h"
#include "kernels/threads.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/fp32_paths.h"
#include "tests/kernels/reference.h"

using kernels::MatmulShape;
using kernels::cpu::Fp32Products;
using test::FastestAgain;
using test::kBackward;
using test::kForward;
using test::normal_tensor;
using test::to_double;

namespace {

// Whole and partial tiles of 8 and 32, several blocks of 384 that are summed, of 256 beside each other, and
// of 256 and 512 rows, odd sums; the last four are enough work for AVX-512's tiles (TileKernels::least_work).
const std::vector<MatmulShape> kShapes = {{64, 96, 64},   {49, 33, 65},  {70, 40, 401}, {520, 40, 64},
                                          {65, 270, 260}, {70, 83, 401}, {520, 65, 67}, {77, 801, 66}};

}  // namespace

TEST_CASE("fp32 products by packed tiles, forward and backward, are as accurate as plain loops in fp32",
          "[long]") {
  const FastestAgain restore;
  for (const MatmulShape s : kShapes) {
    const auto inp = normal_tensor(s.M * s.K, 1), weight = normal_tensor(s.N * s.K, 2);
    const auto bias = normal_tensor(s.N, 3), residual = normal_tensor(s.M * s.N, 4);
    const auto plain_out = reference::matmul_forward(inp, weight, bias, residual, s);
    const auto exact_out =
        reference::matmul_forward(to_double(inp), to_double(weight), to_double(bias), to_double(residual), s);
    for (const bool accumulate : {false, true}) {
      const auto dinp_before = accumulate ? inp : reference::zeros<float>(s.M * s.K);
      const auto plain_dinp = reference::matmul_backward_input(dinp_before, residual, weight, s);
      const auto exact_dinp =
          reference::matmul_backward_input(to_double(dinp_before), to_double(residual), to_double(weight), s);
      const auto dweight_before = accumulate ? weight : reference::zeros<float>(s.N * s.K);
      auto plain_dweight = dweight_before, dbias = bias;
      auto exact_dweight = to_double(dweight_before), exact_dbias = to_double(bias);
      reference::matmul_backward_weight(plain_dweight, dbias, residual, inp, s);
      reference::matmul_backward_weight(exact_dweight, exact_dbias, to_double(residual), to_double(inp), s);

      for (const Fp32Products path : kernels::cpu::fp32_products()) {
        kernels::cpu::use_fp32_products(path);
        CAPTURE(name(path), s.M, s.N, s.K, accumulate);
        std::vector<float> out = residual;
        kernels::cpu::matmul_forward(out.data(), inp.data(), weight.data(), bias.data(), out.data(), s);
        test::check_as_accurate_as_plain(out, plain_out, exact_out, kForward);

        auto dinp = accumulate ? dinp_before : std::vector<float>(inp.size(), NAN);
        kernels::cpu::matmul_backward_input(dinp.data(), residual.data(), weight.data(), accumulate, s);
        test::check_as_accurate_as_plain(dinp, plain_dinp, exact_dinp, kBackward);

        auto dweight = accumulate ? dweight_before : std::vector<float>(weight.size(), NAN);
        kernels::cpu::matmul_backward_weight(dweight.data(), nullptr, residual.data(), inp.data(), s,
                                             accumulate);
        test::check_as_accurate_as_plain(dweight, plain_dweight, exact_dweight, kBackward);
      }
    }
  }
}

TEST_CASE("fp32 products by packed tiles scale what they add, of factors that lie either way") {
  const FastestAgain restore;
  const std::int64_t M = 70, N = 250, K = 130;
  constexpr float kScale = 0.25f;
  const auto a = normal_tensor(M * K, 1), b = normal_tensor(K * N, 2), before = normal_tensor(M * N, 3);
  std::vector<double> exact = to_double(before);
  for (std::int64_t m = 0; m < M; ++m)
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t k = 0; k < K; ++k)
        exact[static_cast<std::size_t>(m * N + n)] +=
            double{kScale} * a[static_cast<std::size_t>(m * K + k)] * b[static_cast<std::size_t>(k * N + n)];
  const auto turned = [](const std::vector<float>& matrix, std::int64_t rows, std::int64_t columns) {
    std::vector<float> other(matrix.size());
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        other[static_cast<std::size_t>(j * rows + i)] = matrix[static_cast<std::size_t>(i * columns + j)];
    return other;
  };
  const auto a_turned = turned(a, M, K), b_turned = turned(b, K, N);
  for (const Fp32Products path : kernels::cpu::fp32_products())
    for (const bool turn_a : {false, true})
      for (const bool turn_b : {false, true}) {
        CAPTURE(name(path), turn_a, turn_b);
        kernels::cpu::use_fp32_products(path);
        auto c = before;
        kernels::cpu::add_product(
            {c.data(), N}, {turn_a ? a_turned.data() : a.data(), turn_a ? M : K, turn_a},
            {turn_b ? b_turned.data() : b.data(), turn_b ? K : N, turn_b}, M, N, K, kScale);
        double worst = 0;
        for (std::size_t i = 0; i < c.size(); ++i) worst = std::max(worst, std::abs(c[i] - exact[i]));
        CHECK(worst < 1e-5);
      }
  const auto bias = normal_tensor(N, 4);
  for (const Fp32Products path : kernels::cpu::fp32_products()) {
    if (path == Fp32Products::blas) continue;
    CAPTURE(name(path));
    kernels::cpu::use_fp32_products(path);
    auto c = before;
    kernels::cpu::packed_fp32_product({c.data(), N, bias.data(), c.data(), kScale}, {a.data(), K},
                                      {b.data(), N}, M, N, K);
    double worst = 0;
    for (std::size_t i = 0; i < c.size(); ++i)
      worst = std::max(worst, std::abs(c[i] - bias[i % static_cast<std::size_t>(N)] - exact[i]));
    CHECK(worst < 1e-5);
  }
}

TEST_CASE("an fp32 number's three parts are all of its bits") {
  const FastestAgain restore;
  const std::int64_t rows = 64, side = 64;
  std::mt19937 bits(1);
  std::vector<float> numbers(static_cast<std::size_t>(rows * side)),
      one(static_cast<std::size_t>(side * side));
  for (float& x : numbers) {  // from 2^-64 to 2^64: what is below 2^-126 in the lowest part would be zero
    const std::uint32_t random = static_cast<std::uint32_t>(bits());
    x = std::bit_cast<float>((random & 0x807fffffu) | ((63u + (random >> 23) % 128u) << 23));
  }
  for (std::int64_t i = 0; i < side; ++i) one[static_cast<std::size_t>(i * side + i)] = 1;
  for (const Fp32Products path : kernels::cpu::fp32_products()) {
    CAPTURE(name(path));
    kernels::cpu::use_fp32_products(path);
    std::vector<float> first(numbers.size()), second(numbers.size());
    kernels::cpu::matmul_forward(first.data(), numbers.data(), one.data(), nullptr, nullptr,
                                 {rows, side, side});
    CHECK(first == numbers);
    kernels::cpu::matmul_backward_weight(second.data(), nullptr, one.data(), numbers.data(),
                                         {rows, side, side});
    CHECK(second == numbers);
  }
}

TEST_CASE("fp32 products by packed tiles are the same bits on any number of threads") {
  const FastestAgain restore;
  const MatmulShape s{130, 300, 270};
  const auto inp = normal_tensor(s.M * s.K, 1), weight = normal_tensor(s.N * s.K, 2);
  for (const Fp32Products path : kernels::cpu::fp32_products()) {
    if (path == Fp32Products::blas) continue;
    CAPTURE(name(path));
    kernels::cpu::use_fp32_products(path);
    const auto run = [&](int threads) {
      kernels::cpu::set_threads(threads);
      std::vector<float> out(static_cast<std::size_t>(s.M * s.N));
      kernels::cpu::matmul_forward(out.data(), inp.data(), weight.data(), nullptr, nullptr, s);
      kernels::cpu::set_threads(0);
      return out;
    };
    CHECK(run(3) == run(1));
  }
}
