// Products of few rows, with weights in bf16 and quantised by blocks.
#include "kernels/cuda/gemv.h"

#include "tests/cuda/on_gpu.h"

namespace cuda = kernels::cuda;
using cuda::Type;
using cuda::WeightFormat;
using tests::DeviceArray;
using tests::OnGpu;

namespace {

float value_of(WeightFormat format, std::uint32_t code) {
  return format == WeightFormat::int4   ? static_cast<float>(code) - 8
         : format == WeightFormat::int8 ? static_cast<float>(static_cast<std::int8_t>(code))
                                        : cuda::to_float(cuda::e4m3{static_cast<std::uint8_t>(code)});
}

// The nearest value of a format to x, as its bits; found among all of them.
std::uint32_t nearest(WeightFormat format, float x) {
  std::uint32_t best = 0;
  float least = INFINITY;
  const std::uint32_t codes = format == WeightFormat::int4 ? 16 : 256;
  for (std::uint32_t code = 0; code < codes; ++code) {
    if (format == WeightFormat::fp8 && (code & 0x7fu) == 0x7fu) continue;  // NaN
    const float value = value_of(format, code);
    if (std::abs(value - x) < least) least = std::abs(value - x), best = code;
  }
  return best;
}

struct Quantised {
  std::vector<std::uint8_t> bytes;
  std::vector<float> scales, values;  // values: what the weights now are
};

Quantised quantise(WeightFormat format, const std::vector<float>& weight, std::int64_t N, std::int64_t K) {
  const std::int64_t group = format == WeightFormat::int4 ? cuda::kInt4Group : K;
  Quantised q;
  q.bytes.resize(static_cast<std::size_t>(N * K * cuda::bits_of_format(format) / 8));
  q.values.resize(weight.size());
  for (std::int64_t first = 0; first < N * K; first += group) {
    float largest = 0;
    for (std::int64_t i = first; i < first + group; ++i)
      largest = std::max(largest, std::abs(weight[static_cast<std::size_t>(i)]));
    const float scale = largest / cuda::largest_of(format);
    q.scales.push_back(scale);
    for (std::int64_t i = first; i < first + group; ++i) {
      const std::uint32_t code = nearest(format, weight[static_cast<std::size_t>(i)] / scale);
      q.values[static_cast<std::size_t>(i)] = value_of(format, code) * scale;
      const auto at = static_cast<std::size_t>(format == WeightFormat::int4 ? i / 2 : i);
      q.bytes[at] =
          static_cast<std::uint8_t>(format == WeightFormat::int4 ? q.bytes[at] | code << (i % 2 * 4) : code);
    }
  }
  return q;
}

}  // namespace

TEST_CASE("e4m3 has the values that its standard lists") {
  CHECK(cuda::to_float(cuda::e4m3{0x00}) == 0);
  CHECK(cuda::to_float(cuda::e4m3{0x01}) == 0x1p-9f);  // the smallest subnormal number
  CHECK(cuda::to_float(cuda::e4m3{0x08}) == 0x1p-6f);  // the smallest normal one
  CHECK(cuda::to_float(cuda::e4m3{0x38}) == 1);
  CHECK(cuda::to_float(cuda::e4m3{0x7e}) == 448);
  CHECK(cuda::to_float(cuda::e4m3{0xfe}) == -448);
  for (std::uint32_t code = 0; code < 0x7e; ++code)
    CHECK(cuda::to_float(cuda::e4m3{static_cast<std::uint8_t>(code)}) <
          cuda::to_float(cuda::e4m3{static_cast<std::uint8_t>(code + 1)}));
}

TEST_CASE("a product of few rows is as accurate as a plain one with the same weights, in every format") {
  struct Shape {
    std::int64_t M, N, K;
  };
  for (const auto format : {WeightFormat::bf16, WeightFormat::int8, WeightFormat::fp8, WeightFormat::int4})
    for (const Shape s :
         {Shape{1, 5, 128}, Shape{1, 4, 5120}, Shape{3, 7, 256}, Shape{8, 2, 1152}, Shape{9, 35, 256},
          Shape{16, 16, 1152}, Shape{17, 5, 640}, Shape{64, 33, 128}, Shape{41, 48, 2304}}) {
      CAPTURE(static_cast<int>(format), s.M, s.N, s.K);
      const bool few = cuda::gemv_takes(format, s.M, s.K),
                 narrow = cuda::gemv_tensor_cores_takes(format, s.M, s.K);
      REQUIRE(few == (s.M <= 8));
      REQUIRE(narrow == (format != WeightFormat::bf16));
      const auto inp = tests::normal_tensor(s.M * s.K, 1, Type::bf16),
                 weight = tests::normal_tensor(s.N * s.K, 2, Type::bf16),
                 bias = tests::normal_tensor(s.N, 3, Type::bf16),
                 addend = tests::normal_tensor(s.M * s.N, 4, Type::bf16);
      const Quantised q =
          format == WeightFormat::bf16 ? Quantised{{}, {}, weight} : quantise(format, weight, s.N, s.K);
      std::vector<double> exact;
      std::vector<float> plain;
      for (std::int64_t m = 0; m < s.M; ++m)
        for (std::int64_t n = 0; n < s.N; ++n) {
          double sum = 0;
          float sum_f32 = 0;
          for (std::int64_t k = 0; k < s.K; ++k) {
            const float x = inp[static_cast<std::size_t>(m * s.K + k)],
                        w = q.values[static_cast<std::size_t>(n * s.K + k)];
            sum += static_cast<double>(x) * static_cast<double>(w);
            sum_f32 += x * w;
          }
          const float rest =
              bias[static_cast<std::size_t>(n)] + addend[static_cast<std::size_t>(m * s.N + n)];
          exact.push_back(sum + static_cast<double>(rest));
          plain.push_back(sum_f32 + rest);
        }
      for (const Type type : {Type::bf16, Type::f32})
        for (const bool by_tensor_cores : {false, true}) {
          if (by_tensor_cores ? !narrow : !few) continue;
          CAPTURE(by_tensor_cores);
          const auto values = tests::in_every_order([&] {
            DeviceArray x(inp, Type::bf16), w(weight, Type::bf16), b(bias, Type::bf16), a(addend, Type::bf16),
                out(s.M * s.N, type);
            OnGpu<std::uint8_t> bytes(q.bytes.empty() ? std::vector<std::uint8_t>(1) : q.bytes);
            OnGpu<float> scales(q.scales.empty() ? std::vector<float>(1) : q.scales);
            const cuda::Weights weights{
                format, format == WeightFormat::bf16 ? cuda::ConstTensor(w).data : bytes.data(),
                scales.data()};
            (by_tensor_cores ? cuda::gemv_tensor_cores : cuda::gemv)(tests::no_scratch(), out, x, weights, b,
                                                                     a, s.M, s.N, s.K);
            return out.values();
          });
          tests::check_as_accurate_as_plain(values, tests::rounded(plain, type), exact, type, test::kForward);
        }
    }
}

TEST_CASE("quantising by blocks loses what half a step of the format is, in every block") {
  const std::int64_t N = 3, K = 512;
  const auto weight = tests::normal_tensor(N * K, 5, Type::bf16);
  // The quotient of a weight and its scale, at most 127, is rounded: in units of half a step.
  constexpr float kQuotientRounding = 127 * 0x1p-23f;
  for (const auto format : {WeightFormat::int8, WeightFormat::int4}) {
    const Quantised q = quantise(format, weight, N, K);
    const std::int64_t group = format == WeightFormat::int4 ? cuda::kInt4Group : K;
    for (std::size_t i = 0; i < weight.size(); ++i)
      CHECK(std::abs(q.values[i] - weight[i]) <=
            q.scales[i / static_cast<std::size_t>(group)] * 0.5f * (1 + kQuotientRounding));
  }
}
