// fp8: the formats by their standard, quantising by abs-max, and transposes.
#include "kernels/cuda/products.h"
#include "kernels/cuda/quantise.h"
#include "tests/cuda/on_gpu.h"
#include "tests/kernels/fp8_reference.h"

namespace cuda = kernels::cuda;
using cuda::Type;
using tests::DeviceArray;
using tests::OnGpu;

namespace {

template <class Fp8>
void check_format(Type format) {
  const std::uint32_t codes = reference::fp8_codes(format);
  for (std::uint32_t code = 0; code < codes; ++code) {
    CAPTURE(code);
    const double value = reference::fp8_value(format, code);
    CHECK(static_cast<double>(cuda::to_float(Fp8{static_cast<std::uint8_t>(code)})) == value);
    CHECK(static_cast<double>(cuda::to_float(Fp8{static_cast<std::uint8_t>(code | 0x80u)})) == -value);
    CHECK(cuda::from_float<Fp8>(static_cast<float>(value)).bits == code);
    CHECK(cuda::from_float<Fp8>(static_cast<float>(-value)).bits == (code | 0x80u));
    if (code + 1 == codes) break;
    // Halfway to the next the even one is nearest; a hair beyond it is the next, a hair before it is this.
    const auto middle = static_cast<float>((value + reference::fp8_value(format, code + 1)) / 2);
    CHECK(cuda::from_float<Fp8>(middle).bits == code + (code & 1u));
    CHECK(cuda::from_float<Fp8>(std::nextafter(middle, 0.0f)).bits == code);
    CHECK(cuda::from_float<Fp8>(std::nextafter(middle, 1e30f)).bits == code + 1);
  }
  const auto largest = static_cast<std::uint8_t>(codes - 1);
  CHECK(cuda::to_float(Fp8{largest}) == cuda::largest_of(format));
  CHECK(cuda::from_float<Fp8>(1e30f).bits == largest);
  CHECK(cuda::from_float<Fp8>(-INFINITY).bits == (largest | 0x80u));
  CHECK(std::isnan(cuda::to_float(cuda::from_float<Fp8>(NAN))));
}

}  // namespace

TEST_CASE("e4m3 and e5m2 have the values of their standard, and take the nearest of them, ties to even") {
  check_format<cuda::e4m3>(Type::e4m3);
  check_format<cuda::e5m2>(Type::e5m2);
}

TEST_CASE("quantising puts the largest magnitude at the format's largest value and the rest at the nearest") {
  for (const Type from : {Type::f32, Type::bf16, Type::f16})
    for (const Type format : {Type::e4m3, Type::e5m2})
      for (const std::int64_t count : {1, 37, 4096, 70000}) {
        CAPTURE(static_cast<int>(from), static_cast<int>(format), count);
        const auto inp = tests::normal_tensor(count, 3, from, 0.02f);
        float largest = 0;
        for (const float x : inp) largest = std::max(largest, std::abs(x));
        OnGpu<float> scale(0.0f);
        const auto values = tests::in_every_order([&] {
          tests::Scratch scratch;
          DeviceArray x(inp, from);
          OnGpu<std::uint8_t> out(std::vector<std::uint8_t>(static_cast<std::size_t>(count), 0x55));
          cuda::quantise(scratch.context(), {out.data(), format}, scale.data(), x, count);
          std::vector<float> codes;
          for (const std::uint8_t code : out.values()) codes.push_back(code);
          return codes;
        });
        CHECK(scale.value() == largest / cuda::largest_of(format));
        cuda::with_fp8_type(format, [&]<class Fp8>(Fp8) {
          for (std::size_t i = 0; i < inp.size(); ++i) {
            const auto expected = cuda::from_float<Fp8>(inp[i] / scale.value()).bits;
            if (values[i] != static_cast<float>(expected)) FAIL("element " << i);
          }
        });
      }
}

TEST_CASE("a tensor of zeros is quantised to zeros at scale one") {
  tests::Scratch scratch;
  DeviceArray zeros(std::vector<float>(64, 0.0f), Type::bf16);
  OnGpu<float> scale(-1.0f);
  OnGpu<std::uint8_t> out(std::vector<std::uint8_t>(64, 0x55));
  cuda::quantise(scratch.context(), {out.data(), Type::e4m3}, scale.data(), zeros, 64);
  CHECK(scale.value() == 1);
  CHECK(out.values() == std::vector<std::uint8_t>(64, 0));
}

TEST_CASE(
    "bytes are transposed, padded with zeros, from rows that lie farther apart, whatever the threads' "
    "order") {
  struct Shape {
    std::int64_t R, C, ld;
  };
  for (const Shape s : {Shape{16, 16, 16}, Shape{5, 80, 96}, Shape{130, 64, 64}, Shape{64, 208, 256}}) {
    CAPTURE(s.R, s.C, s.ld);
    std::vector<std::uint8_t> inp(static_cast<std::size_t>(s.R * s.ld));
    for (std::size_t i = 0; i < inp.size(); ++i) inp[i] = static_cast<std::uint8_t>(i * 37 + i / 251);
    const std::int64_t padded = (s.R + 15) / 16 * 16;
    const auto turned = tests::in_every_order([&] {
      OnGpu<std::uint8_t> from(inp),
          to(std::vector<std::uint8_t>(static_cast<std::size_t>(s.C * padded), 0xee));
      cuda::transpose_bytes(tests::no_scratch(), to.data(), from.data(), s.R, s.C, s.ld);
      const auto bytes = to.values();
      return std::vector<float>(bytes.begin(), bytes.end());
    });
    for (std::int64_t c = 0; c < s.C; ++c)
      for (std::int64_t r = 0; r < padded; ++r) {
        const float expected = r < s.R ? inp[static_cast<std::size_t>(r * s.ld + c)] : 0;
        if (turned[static_cast<std::size_t>(c * padded + r)] != expected)
          FAIL("column " << c << ", row " << r);
      }
  }
}

TEST_CASE("products in fp8 multiply what the codes stand for, at the tensors' scales, and add to it") {
  const std::int64_t M = 5, N = 32, K = 48;
  const float scale_a = 0.25f, scale_b = 0x1p-6f;
  std::vector<std::uint8_t> a(static_cast<std::size_t>(M * K)), b(static_cast<std::size_t>(N * K));
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<std::uint8_t>((i * 29) % 0x70 | (i % 2) << 7);
  for (std::size_t i = 0; i < b.size(); ++i)
    b[i] = static_cast<std::uint8_t>((i * 31) % 0x78 | (i % 3 % 2) << 7);
  std::vector<double> exact;
  std::vector<float> plain;
  for (std::int64_t m = 0; m < M; ++m)
    for (std::int64_t n = 0; n < N; ++n) {
      double sum = 0;
      float sum_f32 = 0;
      for (std::int64_t k = 0; k < K; ++k) {
        const float x = cuda::to_float(cuda::e5m2{a[static_cast<std::size_t>(m * K + k)]}),
                    w = cuda::to_float(cuda::e4m3{b[static_cast<std::size_t>(n * K + k)]});
        sum += static_cast<double>(x) * static_cast<double>(w);
        sum_f32 += x * w;
      }
      exact.push_back(sum * static_cast<double>(scale_a * scale_b));
      plain.push_back(sum_f32 * scale_a * scale_b);
    }
  const auto bias = tests::normal_tensor(N, 1, Type::bf16),
             addend = tests::normal_tensor(M * N, 2, Type::bf16);
  for (const bool has_bias : {false, true})
    for (const bool has_addend : {false, true}) {
      CAPTURE(has_bias, has_addend);
      std::vector<double> sums = exact;
      std::vector<float> plain_sums = plain;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const float more =
            (has_bias ? bias[i % static_cast<std::size_t>(N)] : 0) + (has_addend ? addend[i] : 0);
        sums[i] += static_cast<double>(more);
        plain_sums[i] += more;
      }
      tests::Scratch scratch;
      OnGpu<std::uint8_t> a_bytes(a), b_bytes(b);
      OnGpu<float> a_scale(scale_a), b_scale(scale_b);
      DeviceArray out(addend, Type::bf16), bias_on_gpu(bias, Type::bf16);  // it may add to its own output
      cuda::Products products(true);
      products.run(scratch.context(),
                   {.M = M,
                    .N = N,
                    .K = K,
                    .a = {a_bytes.data(), Type::e5m2},
                    .b = {b_bytes.data(), Type::e4m3},
                    .out = out,
                    .transpose_b = true,
                    .bias = has_bias ? cuda::ConstTensor(bias_on_gpu) : cuda::ConstTensor(),
                    .addend = has_addend ? cuda::ConstTensor(out) : cuda::ConstTensor(),
                    .scale_a = a_scale.data(),
                    .scale_b = b_scale.data()});
      // The library may round twice, before and behind what is added.
      tests::check_as_accurate_as_plain(out.values(), tests::rounded(plain_sums, Type::bf16), sums,
                                        Type::bf16, 2 * test::kForward);
    }
}
