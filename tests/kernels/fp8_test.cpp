// fp8 on the CPU: quantising by abs-max beside a rounding in double, widening, and bf16 products of codes at
// their tensors' scales beside the double reference.
#include "kernels/fp8.h"

#include <array>
#include <limits>

#include "kernels/matmul_bf16.h"
#include "kernels/matmul_fp8.h"
#include "kernels/threads.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/fp8_reference.h"
#include "tests/kernels/reference.h"

namespace cpu = kernels::cpu;
namespace cuda = kernels::cuda;
using cuda::bf16;
using cuda::Type;
using kernels::MatmulShape;
using Codes = std::vector<std::uint8_t>;

namespace {

constexpr std::array kFormats = {Type::e4m3, Type::e5m2};

struct Quantised {
  Codes codes;
  float scale = 0;
};
template <class T>
Quantised quantised(Type format, const std::vector<T>& values) {
  Quantised q{Codes(values.size(), 0x55)};
  q.scale = cpu::quantise_fp8(q.codes.data(), format, values.data(), std::ssize(values));
  return q;
}

std::vector<bf16> narrow(const std::vector<float>& values) {
  std::vector<bf16> all;
  for (const float x : values) all.push_back(cuda::to_bf16(x));
  return all;
}
std::vector<float> wide(const std::vector<bf16>& values) {
  std::vector<float> all;
  for (const bf16 x : values) all.push_back(cuda::to_float(x));
  return all;
}

// Every value of the format, what lies halfway to the next, and what lies just before and behind that; each
// with both signs. The largest value is among them, so that the scale is 1.
std::vector<float> interesting(Type format) {
  std::vector<float> all;
  for (std::uint32_t code = 0; code < reference::fp8_codes(format); ++code) {
    const auto value = static_cast<float>(reference::fp8_value(format, code));
    all.push_back(value);
    if (code + 1 == reference::fp8_codes(format)) break;
    const auto middle = static_cast<float>((value + reference::fp8_value(format, code + 1)) / 2);
    all.insert(all.end(), {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e30f)});
  }
  const std::size_t positive = all.size();
  for (std::size_t i = 0; i < positive; ++i) all.push_back(-all[i]);
  return all;
}

void check_nearest(const Quantised& q, Type format, const std::vector<float>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto expected = reference::nearest_fp8(format, static_cast<double>(values[i] / q.scale));
    if (q.codes[i] != expected)
      FAIL("element " << i << ", " << values[i] << ": " << int{q.codes[i]} << ", not " << int{expected});
  }
}

}  // namespace

TEST_CASE("codes of fp8 are of the nearest values, ties to even, subnormal numbers and signed zeros too") {
  for (const Type format : kFormats) {
    CAPTURE(name_of(format));
    const std::vector<float> values = interesting(format);
    const Quantised q = quantised(format, values);
    CHECK(q.scale == 1);
    check_nearest(q, format, values);
  }
}

TEST_CASE("quantising to fp8 makes the largest magnitude the format's largest value, the rest the nearest") {
  for (const Type format : kFormats)
    for (const std::int64_t count : {1, 37, 4096, 20000})
      for (const float deviation : {0.02f, 1e-20f, 1e20f}) {
        CAPTURE(name_of(format), count, deviation);
        const std::vector<float> values = test::normal_tensor(count, 3, deviation);
        float largest = 0;
        for (const float x : values) largest = std::max(largest, std::abs(x));
        const Quantised q = quantised(format, values);
        CHECK(q.scale == largest / cuda::largest_of(format));
        check_nearest(q, format, values);
        const std::vector<bf16> in_bf16 = narrow(values);
        const Quantised of_bf16 = quantised(format, in_bf16), of_same = quantised(format, wide(in_bf16));
        CHECK(of_bf16.scale == of_same.scale);
        CHECK(of_bf16.codes == of_same.codes);
      }
}

TEST_CASE("fp8 tensors of zeros have scale one, of tiny numbers the smallest normal one, and NaN stays NaN") {
  constexpr float kSmallest = std::numeric_limits<float>::min();
  for (const Type format : kFormats) {
    CAPTURE(name_of(format));
    const Quantised zeros = quantised(format, std::vector<float>(64, 0.0f));
    CHECK(zeros.scale == 1);
    CHECK(zeros.codes == Codes(64, 0));

    const std::vector<float> tiny = {0.0f, 3 * kSmallest, -2 * kSmallest};
    const Quantised of_tiny = quantised(format, tiny);
    CHECK(of_tiny.scale == kSmallest);
    check_nearest(of_tiny, format, tiny);

    const Quantised with_nan = quantised(format, std::vector<float>{1.0f, NAN, -2.0f});
    CHECK(with_nan.scale == 2 / cuda::largest_of(format));
    std::vector<float> values(3);
    cpu::widen_fp8(values.data(), with_nan.codes.data(), format, with_nan.scale, 3);
    CHECK(std::isnan(values[1]));
    CHECK(values[2] == -2);
  }
}

TEST_CASE("quantising to fp8 gives the same bits on any number of threads") {
  const std::vector<float> values = test::normal_tensor(70001, 5);
  for (const Type format : kFormats) {
    cpu::set_threads(1);
    const Quantised alone = quantised(format, values);
    cpu::set_threads(3);
    const Quantised together = quantised(format, values);
    CHECK(together.codes == alone.codes);
    CHECK(together.scale == alone.scale);
  }
  cpu::set_threads(0);
}

TEST_CASE("every code of fp8 widens to its value: exactly in bf16, times the scale in fp32") {
  constexpr float kScale = 0.37f;
  for (const Type format : kFormats) {
    CAPTURE(name_of(format));
    Codes codes;
    for (std::uint32_t code = 0; code < reference::fp8_codes(format); ++code)
      for (const std::uint32_t sign : {0x00u, 0x80u}) codes.push_back(static_cast<std::uint8_t>(code | sign));
    std::vector<bf16> in_bf16(codes.size());
    std::vector<float> in_fp32(codes.size());
    cpu::widen_fp8(in_bf16.data(), codes.data(), format, std::ssize(codes));
    cpu::widen_fp8(in_fp32.data(), codes.data(), format, kScale, std::ssize(codes));
    for (std::size_t i = 0; i < codes.size(); ++i) {
      CAPTURE(int{codes[i]});
      const double value = reference::fp8_value(format, codes[i]);
      CHECK(static_cast<double>(cuda::to_float(in_bf16[i])) == value);
      CHECK(in_fp32[i] == static_cast<float>(value * static_cast<double>(kScale)));
    }
  }
}

namespace {

// A factor of a product in fp8: as the kernel takes it, and the values that it stands for.
struct Factor {
  Factor(std::int64_t count, Type format, float deviation, unsigned seed)
      : codes(static_cast<std::size_t>(count)), values(codes.size()) {
    const Quantised q = quantised(format, test::normal_tensor(count, seed, deviation));
    scale = q.scale;
    cpu::widen_fp8(codes.data(), q.codes.data(), format, count);
    for (const std::uint8_t code : q.codes)
      exact.push_back(reference::fp8_value(format, code) * static_cast<double>(scale));
    values.assign(exact.begin(), exact.end());
  }
  std::vector<bf16> codes;
  float scale = 1;
  std::vector<float> values;
  std::vector<double> exact;
};

void check(const std::vector<bf16>& out, const std::vector<float>& plain, const std::vector<double>& exact,
           double factor) {
  test::check_as_accurate_as_plain(wide(out), wide(narrow(plain)), exact, factor);
}

struct PathsThenFastest {
  ~PathsThenFastest() { cpu::use_bf16_products(cpu::fastest_bf16_products()); }
};

}  // namespace

TEST_CASE("bf16 products at the scales of their factors are those of what codes of fp8 stand for") {
  const PathsThenFastest restore;
  for (const cpu::Bf16Products path : cpu::bf16_products()) {
    cpu::use_bf16_products(path);
    for (const MatmulShape s : {MatmulShape{3, 50, 64}, {17, 65, 33}, {100, 131, 96}}) {
      CAPTURE(name(path), s.M, s.N, s.K);
      const Factor inp(s.M * s.K, Type::e4m3, 1.0f, 1), weight(s.N * s.K, Type::e4m3, 0.02f, 2),
          dout(s.M * s.N, Type::e5m2, 1e-4f, 3);
      const std::vector<float> bias = wide(narrow(test::normal_tensor(s.N, 4, 0.1f))),
                               residual = wide(narrow(test::normal_tensor(s.M * s.N, 5, 0.1f)));
      std::vector<bf16> out = narrow(residual);
      cpu::matmul_forward({.narrow = out.data()}, inp.codes.data(), weight.codes.data(), narrow(bias).data(),
                          out.data(), s, {inp.scale, weight.scale});
      check(out, reference::matmul_forward(inp.values, weight.values, bias, residual, s),
            reference::matmul_forward(inp.exact, weight.exact, test::to_double(bias),
                                      test::to_double(residual), s),
            test::kForward);

      const std::vector<float> before = wide(narrow(test::normal_tensor(s.M * s.K, 6, 1e-5f)));
      std::vector<bf16> dinp = narrow(before);
      cpu::matmul_backward_input(dinp.data(), dout.codes.data(), weight.codes.data(), true, s,
                                 {dout.scale, weight.scale});
      check(dinp, reference::matmul_backward_input(before, dout.values, weight.values, s),
            reference::matmul_backward_input(test::to_double(before), dout.exact, weight.exact, s),
            test::kBackward);

      std::vector<float> plain_dweight = wide(narrow(test::normal_tensor(s.N * s.K, 7, 1e-3f))),
                         plain_dbias = wide(narrow(test::normal_tensor(s.N, 8, 1e-3f)));
      std::vector<double> exact_dweight = test::to_double(plain_dweight),
                          exact_dbias = test::to_double(plain_dbias);
      std::vector<bf16> dweight = narrow(plain_dweight), dbias = narrow(plain_dbias);
      reference::matmul_backward_weight(plain_dweight, plain_dbias, dout.values, inp.values, s);
      reference::matmul_backward_weight(exact_dweight, exact_dbias, dout.exact, inp.exact, s);
      cpu::matmul_backward_weight(dweight.data(), dbias.data(), dout.codes.data(), inp.codes.data(), s, true,
                                  {dout.scale, inp.scale});
      check(dweight, plain_dweight, exact_dweight, test::kBackward);
      check(dbias, plain_dbias, exact_dbias, test::kBackward);
    }
  }
}

TEST_CASE("products with weights in e4m3 at a scale a row are those of what the codes stand for") {
  for (const std::int64_t M : {1, 8, 9, 70})
    for (const auto& [N, K] : {std::pair<std::int64_t, std::int64_t>{5, 33}, {48, 64}, {131, 257}}) {
      const MatmulShape s{M, N, K};
      CAPTURE(s.M, s.N, s.K);
      const std::vector<float> inp = test::normal_tensor(M * K, 1), bias = test::normal_tensor(N, 2),
                               residual = test::normal_tensor(M * N, 3);
      Codes codes;
      std::vector<float> scales, weight;
      std::vector<double> exact;
      for (std::int64_t n = 0; n < N; ++n) {
        const Quantised row = quantised(Type::e4m3, test::normal_tensor(K, 10 + static_cast<unsigned>(n)));
        codes.insert(codes.end(), row.codes.begin(), row.codes.end());
        scales.push_back(row.scale);
        for (const std::uint8_t code : row.codes)
          exact.push_back(reference::fp8_value(Type::e4m3, code) * static_cast<double>(row.scale));
      }
      weight.assign(exact.begin(), exact.end());
      const auto product = [&] {
        std::vector<float> out = residual;
        cpu::matmul_fp8(out.data(), inp.data(), {codes.data(), scales.data()}, bias.data(), out.data(), s);
        return out;
      };
      const std::vector<float> out = product();
      test::check_as_accurate_as_plain(
          out, reference::matmul_forward(inp, weight, bias, residual, s),
          reference::matmul_forward(test::to_double(inp), exact, test::to_double(bias),
                                    test::to_double(residual), s),
          test::kForward);
      cpu::set_threads(3);
      CHECK(product() == out);
      cpu::set_threads(0);
    }
}
