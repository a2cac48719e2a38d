// Products with epilogues, against products and passes of their own.
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/products.h"
#include "tests/cuda/on_gpu.h"
#include "tests/support/catch.h"

namespace cuda = kernels::cuda;
using cuda::Epilogue;
using cuda::Type;
using tests::DeviceArray;

namespace {

constexpr double kSqrt2OverPi = 0.79788456080286535588;

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(kSqrt2OverPi * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double t = std::tanh(kSqrt2OverPi * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kSqrt2OverPi * (1 + 3 * 0.044715 * x * x);
}

// In double, and as operations of their own make it, which round every tensor to the type.
struct Results {
  std::vector<double> exact;
  std::vector<float> plain;
};

constexpr std::int64_t kM = 24, kN = 40, kK = 32;

// a (M, K) b (K, N) + bias.
Results product(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& bias,
                Type type) {
  Results r;
  for (std::int64_t m = 0; m < kM; ++m)
    for (std::int64_t n = 0; n < kN; ++n) {
      double sum = bias.empty() ? 0 : static_cast<double>(bias[static_cast<std::size_t>(n)]);
      for (std::int64_t k = 0; k < kK; ++k)
        sum += static_cast<double>(a[static_cast<std::size_t>(m * kK + k)]) *
               static_cast<double>(b[static_cast<std::size_t>(k * kN + n)]);
      r.exact.push_back(sum);
      r.plain.push_back(static_cast<float>(sum));
    }
  r.plain = tests::rounded(r.plain, type);
  return r;
}

Results mapped(const Results& from, Type type, double (*function)(double)) {
  Results to;
  for (const double x : from.exact) to.exact.push_back(function(x));
  for (const float x : from.plain) to.plain.push_back(static_cast<float>(function(static_cast<double>(x))));
  to.plain = tests::rounded(to.plain, type);
  return to;
}

constexpr Type kTypes[] = {Type::bf16, Type::f16};

}  // namespace

TEST_CASE("a product with GELU keeps its argument, and both are as accurate as operations of their own") {
  for (const Type type : kTypes)
    for (const bool biased : {false, true}) {
      CAPTURE(static_cast<int>(type), biased);
      const auto a = tests::normal_tensor(kM * kK, 1, type), b = tests::normal_tensor(kK * kN, 2, type, 0.2f);
      const auto bias = biased ? tests::normal_tensor(kN, 3, type) : std::vector<float>();
      const Results sums = product(a, b, bias, type), out = mapped(sums, type, gelu);
      tests::Scratch scratch;
      DeviceArray a_array(a, type), b_array(b, type), bias_array(bias, type), x(kM * kN, type),
          y(kM * kN, type);
      cuda::Product plain{.M = kM, .N = kN, .K = kK, .a = a_array, .b = b_array, .out = x};
      if (biased) plain.bias = bias_array;
      cuda::Product fused = plain;
      fused.epilogue = Epilogue::gelu;
      fused.out = y;
      fused.pre_activation = x;
      cuda::Products products(false);
      const auto rest = [&](const cuda::Context& context) { cuda::gelu_forward(context, y, x, kM * kN); };
      if (!products.run_if_faster(scratch.context(), fused, plain, rest)) {
        products.run(scratch.context(), plain);
        rest(scratch.context());
      }
      tests::check_as_accurate_as_plain(x.values(), sums.plain, sums.exact, type, test::kForward);
      tests::check_as_accurate_as_plain(y.values(), out.plain, out.exact, type, test::kForward);
      // What two runs must agree on to the bit is not left to it.
      CHECK_FALSE(cuda::Products(true).run_if_faster(scratch.context(), fused, plain, rest));
    }
}

TEST_CASE("a product times GELU's slope is as accurate as operations of their own") {
  for (const Type type : kTypes) {
    CAPTURE(static_cast<int>(type));
    const auto a = tests::normal_tensor(kM * kK, 1, type), b = tests::normal_tensor(kK * kN, 2, type, 0.2f),
               argument = tests::normal_tensor(kM * kN, 3, type);
    Results gradients = product(a, b, {}, type);
    for (std::size_t i = 0; i < argument.size(); ++i) {
      const double slope = gelu_slope(static_cast<double>(argument[i]));
      gradients.exact[i] *= slope;
      gradients.plain[i] *= static_cast<float>(slope);
    }
    gradients.plain = tests::rounded(gradients.plain, type);
    tests::Scratch scratch;
    DeviceArray a_array(a, type), b_array(b, type), x(argument, type), out(kM * kN, type);
    const cuda::Product plain{.M = kM, .N = kN, .K = kK, .a = a_array, .b = b_array, .out = out};
    cuda::Product fused = plain;
    fused.epilogue = Epilogue::gelu_gradient;
    fused.pre_activation = x;
    cuda::Products products(true);
    const auto rest = [&](const cuda::Context& context) {
      cuda::gelu_backward(context, out, out, x, kM * kN);
    };
    if (!products.run_if_faster(scratch.context(), fused, plain, rest)) {
      products.run(scratch.context(), plain);
      rest(scratch.context());
    }
    tests::check_as_accurate_as_plain(out.values(), gradients.plain, gradients.exact, type, test::kBackward);
  }
}

TEST_CASE("a weight's gradient with its bias's beside it adds the one and writes the other") {
  for (const Type type : kTypes) {
    CAPTURE(static_cast<int>(type));
    // dout (rows, M) transposed times inp (rows, N).
    const auto dout = tests::normal_tensor(kK * kM, 1, type),
               inp = tests::normal_tensor(kK * kN, 2, type, 0.2f),
               before = tests::normal_tensor(kM * kN, 3, type);
    std::vector<float> dout_transposed(dout.size());
    Results sums;
    for (std::int64_t m = 0; m < kM; ++m) {
      double sum = 0;
      for (std::int64_t k = 0; k < kK; ++k) {
        dout_transposed[static_cast<std::size_t>(m * kK + k)] = dout[static_cast<std::size_t>(k * kM + m)];
        sum += static_cast<double>(dout[static_cast<std::size_t>(k * kM + m)]);
      }
      sums.exact.push_back(sum);
      sums.plain.push_back(static_cast<float>(sum));
    }
    Results weights = product(dout_transposed, inp, {}, Type::f32);
    for (std::size_t i = 0; i < before.size(); ++i) {
      weights.exact[i] += static_cast<double>(before[i]);
      weights.plain[i] += before[i];
    }
    tests::Scratch scratch;
    DeviceArray dout_array(dout, type), inp_array(inp, type), dweight(before, type), dbias(kM, type);
    const cuda::Product plain{.M = kM,
                              .N = kN,
                              .K = kK,
                              .a = dout_array,
                              .b = inp_array,
                              .out = dweight,
                              .transpose_a = true,
                              .addend = dweight};
    cuda::Product fused = plain;
    fused.epilogue = Epilogue::row_sums;
    fused.row_sums = dbias;
    cuda::Products products(true);
    if (!products.run_if_faster(scratch.context(), fused, plain, [](const cuda::Context&) {})) continue;
    tests::check_as_accurate_as_plain(dweight.values(), tests::rounded(weights.plain, type), weights.exact,
                                      type, test::kBackward);
    tests::check_as_accurate_as_plain(dbias.values(), tests::rounded(sums.plain, type), sums.exact, type,
                                      test::kBackward);
  }
}
