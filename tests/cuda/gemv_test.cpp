// Products of few rows, with weights in bf16 and quantised by blocks.
#include "kernels/cuda/gemv.h"

#include <bit>
#include <cmath>

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

TEST_CASE("every e4m3 number is 2^8 times the fp16 that a GPU widens") {
  for (int code = 0; code < 256; ++code) {
    const cuda::e4m3 number{static_cast<std::uint8_t>(code)};
    const float widened = cuda::to_float(cuda::as_f16(number)) * 0x1p8f, expected = cuda::to_float(number);
    CAPTURE(code);
    CHECK(std::isnan(widened) == std::isnan(expected));
    if (!std::isnan(expected))
      CHECK(std::bit_cast<std::uint32_t>(widened) == std::bit_cast<std::uint32_t>(expected));
  }
}

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
      REQUIRE(narrow == (format != WeightFormat::bf16 || s.M <= 32));
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
            if (by_tensor_cores)
              cuda::gemv_tensor_cores(tests::no_scratch(), out, x, weights, b, a, s.M, s.N, s.K);
            else
              cuda::gemv(tests::no_scratch(), out, x, weights, b, a, s.M, s.N, s.K);
            return out.values();
          });
          tests::check_as_accurate_as_plain(values, tests::rounded(plain, type), exact, type, test::kForward);
        }
    }
}

namespace {

// What a product of one row does with its neighbours, and the same in double, and in fp32 with a rounding to
// bf16 between operations, as kernels of their own make it.
struct OneRow {
  std::int64_t N, K;
  WeightFormat format;
  cuda::InputNorm::Kind norm;
  cuda::Ending::Kind ending;
};

template <class Real>
struct Results {
  std::vector<Real> normed, out, activated;
};

template <class Real, class Round>
Results<Real> one_row(const OneRow& c, const std::vector<float>& inp, const std::vector<float>& gain,
                      const std::vector<float>& shift, const std::vector<float>& weight,
                      const std::vector<float>& bias, const std::vector<float>& angles, float eps,
                      const Round& round) {
  using NormKind = cuda::InputNorm::Kind;
  using EndingKind = cuda::Ending::Kind;
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  Results<Real> r;
  Real mean = 0, squares = 0;
  for (const float x : inp) mean += static_cast<Real>(x) / static_cast<Real>(c.K);
  if (c.norm != NormKind::layer) mean = 0;
  for (const float x : inp) squares += (static_cast<Real>(x) - mean) * (static_cast<Real>(x) - mean);
  const Real rstd = 1 / std::sqrt(squares / static_cast<Real>(c.K) + static_cast<Real>(eps));
  for (std::int64_t k = 0; k < c.K; ++k) {
    Real x = static_cast<Real>(inp[at(k)]);
    if (c.norm != NormKind::none)
      x = round((x - mean) * rstd * static_cast<Real>(gain[at(k)]) +
                (c.norm == NormKind::layer ? static_cast<Real>(shift[at(k)]) : Real{0}));
    r.normed.push_back(x);
  }
  for (std::int64_t n = 0; n < c.N; ++n) {
    Real sum = 0;
    for (std::int64_t k = 0; k < c.K; ++k)
      sum += r.normed[at(k)] * static_cast<Real>(weight[at(n * c.K + k)]);
    r.out.push_back(round(sum + static_cast<Real>(bias[at(n)])));
  }
  const auto gelu = [](Real x) {
    return x / 2 * (1 + std::tanh(std::sqrt(Real{2} / Real(M_PI)) * (x + Real(0.044715) * x * x * x)));
  };
  if (c.ending == EndingKind::gelu)
    for (const Real x : r.out) r.activated.push_back(round(gelu(x)));
  if (c.ending == EndingKind::silu_gate || c.ending == EndingKind::gelu_gate)
    for (std::int64_t n = 0; n < c.N / 2; ++n) {
      const Real x = r.out[at(n)];
      r.activated.push_back(round((c.ending == EndingKind::gelu_gate ? gelu(x) : x / (1 + std::exp(-x))) *
                                  r.out[at(c.N / 2 + n)]));
    }
  if (c.ending == EndingKind::rotate_append) {  // two heads of queries, one of keys, one of values
    const std::int64_t D = c.N / 4, half = D / 2;
    for (std::int64_t head = 0; head < 3; ++head)
      for (std::int64_t d = 0; d < half; ++d) {
        Real &x = r.out[at(head * D + d)], &y = r.out[at(head * D + d + half)];
        const Real cosine = static_cast<Real>(angles[at(d)]), sine = static_cast<Real>(angles[at(half + d)]);
        const Real rotated = x * cosine - y * sine;
        y = round(y * cosine + x * sine);
        x = round(rotated);
      }
  }
  return r;
}

}  // namespace

TEST_CASE("a product of one row with its norm and what follows is as accurate as kernels of their own") {
  using NormKind = cuda::InputNorm::Kind;
  using EndingKind = cuda::Ending::Kind;
  constexpr float kEps = 1e-5f;
  constexpr std::int32_t kPosition = 2;
  const auto as_bf16 = [](float x) { return cuda::to_float(cuda::from_float<cuda::bf16>(x)); };
  for (const std::int64_t K : {128L, 1280L})
    for (const WeightFormat format :
         {WeightFormat::bf16, WeightFormat::int8, WeightFormat::fp8, WeightFormat::int4})
      for (const NormKind norm : {NormKind::none, NormKind::rms, NormKind::layer})
        for (const EndingKind ending : {EndingKind::none, EndingKind::gelu, EndingKind::silu_gate,
                                        EndingKind::gelu_gate, EndingKind::rotate_append}) {
          const std::int64_t N = ending == EndingKind::rotate_append ? 64
                                 : ending == EndingKind::gelu        ? 13
                                                                     : 26;
          const OneRow c{N, K, format, norm, ending};
          CAPTURE(K, static_cast<int>(format), static_cast<int>(norm), static_cast<int>(ending));
          auto inp = tests::normal_tensor(K, 1, Type::bf16);
          for (float& x : inp) x = as_bf16(x + 0.5f);  // a mean that counts
          const auto gain = tests::normal_tensor(K, 2, Type::bf16),
                     shift = tests::normal_tensor(K, 3, Type::bf16),
                     bias = tests::normal_tensor(N, 4, Type::bf16),
                     weight = tests::normal_tensor(N * K, 5, Type::bf16);
          const std::vector<float> table = test::normal_tensor(4 * N / 4, 6),
                                   angles(table.begin() + kPosition * N / 4,
                                          table.begin() + (kPosition + 1) * N / 4);
          const Quantised q =
              format == WeightFormat::bf16 ? Quantised{{}, {}, weight} : quantise(format, weight, N, K);
          const Results<double> exact =
              one_row<double>(c, inp, gain, shift, q.values, bias, angles, kEps, [](double x) { return x; });
          const Results<float> plain =
              one_row<float>(c, inp, gain, shift, q.values, bias, angles, kEps, as_bf16);

          const std::int64_t capacity = 3, D = N / 4;
          std::vector<float> normed, out, activated, keys, values;
          tests::in_every_order([&] {
            DeviceArray x(inp, Type::bf16), g(gain, Type::bf16), s(shift, Type::bf16), w(weight, Type::bf16),
                b(bias, Type::bf16), to(N, Type::bf16), after(std::max<std::int64_t>(N, 1), Type::bf16),
                before(K, Type::bf16), k(capacity * D, Type::bf16), v(capacity * D, Type::bf16);
            OnGpu<std::uint8_t> bytes(q.bytes.empty() ? std::vector<std::uint8_t>(1) : q.bytes);
            OnGpu<float> scales(q.scales.empty() ? std::vector<float>(1) : q.scales), rotation(table);
            OnGpu<std::int32_t> position(kPosition);
            const cuda::Weights weights{
                format, format == WeightFormat::bf16 ? cuda::ConstTensor(w).data : bytes.data(),
                scales.data()};
            cuda::InputNorm n;
            n.kind = norm;
            if (norm != NormKind::none) n.gain = g, n.normed = before, n.eps = kEps;
            if (norm == NormKind::layer) n.shift = s;
            cuda::Ending e;
            e.kind = ending;
            e.activated = after;
            e.cache = cuda::contiguous_cache(k, v, capacity);
            e.table = rotation.data();
            e.position = position.data();
            e.shape = {.B = 1, .T = 1, .H = 2, .G = 1, .D = D};
            cuda::gemv_with(tests::no_scratch(), to, x, weights, b, {}, N, K, n, e);
            normed = before.values(), out = to.values(), activated = after.values();
            keys = k.values(), values = v.values();
            return out;
          });
          tests::check_as_accurate_as_plain(out, plain.out, exact.out, Type::bf16, test::kForward);
          if (norm != NormKind::none)
            tests::check_as_accurate_as_plain(normed, plain.normed, exact.normed, Type::bf16, test::kForward);
          if (!plain.activated.empty()) {
            activated.resize(plain.activated.size());
            tests::check_as_accurate_as_plain(activated, plain.activated, exact.activated, Type::bf16,
                                              test::kForward);
          }
          if (ending != EndingKind::rotate_append) continue;
          // The cache has what lies in qkv, at the position alone.
          for (std::int64_t t = 0; t < capacity; ++t)
            for (std::int64_t d = 0; d < D; ++d) {
              const auto i = static_cast<std::size_t>(t * D + d), key = static_cast<std::size_t>(2 * D + d),
                         value = static_cast<std::size_t>(3 * D + d);
              CHECK((t == kPosition ? keys[i] == out[key] : std::isnan(keys[i])));
              CHECK((t == kPosition ? values[i] == out[value] : std::isnan(values[i])));
            }
        }
}

TEST_CASE("a product of few rows with its norm and what follows is as accurate as kernels of their own") {
  using NormKind = cuda::InputNorm::Kind;
  using EndingKind = cuda::Ending::Kind;
  constexpr float kEps = 1e-5f;
  const auto as_bf16 = [](float x) { return cuda::to_float(cuda::from_float<cuda::bf16>(x)); };
  const std::int64_t K = 384;
  for (const std::int64_t M : {2L, 8L, 9L, 16L, 31L, 50L})
    for (const WeightFormat format :
         {WeightFormat::bf16, WeightFormat::int8, WeightFormat::fp8, WeightFormat::int4})
      for (const NormKind norm : {NormKind::none, NormKind::rms})
        for (const EndingKind ending :
             {EndingKind::none, EndingKind::gelu, EndingKind::silu_gate, EndingKind::gelu_gate}) {
          const bool gate = ending == EndingKind::silu_gate || ending == EndingKind::gelu_gate;
          if (!cuda::gemv_tensor_cores_takes(format, M, K) ||
              (norm == NormKind::rms && !cuda::gemv_tensor_cores_has_norm(format, M)) ||
              (gate && !cuda::gemv_tensor_cores_has_gate(format, M)))
            continue;
          const std::int64_t N = gate ? 38 : 45;  // tiles that are not filled, gates that end within one
          CAPTURE(M, static_cast<int>(format), static_cast<int>(norm), static_cast<int>(ending));
          auto inp = tests::normal_tensor(M * K, 1, Type::bf16);
          for (std::size_t i = 0; i < inp.size(); ++i)  // rows of different sizes
            inp[i] = as_bf16(inp[i] * static_cast<float>(1 + i / static_cast<std::size_t>(K)));
          const auto gain = tests::normal_tensor(K, 2, Type::bf16),
                     bias = tests::normal_tensor(N, 4, Type::bf16),
                     weight = tests::normal_tensor(N * K, 5, Type::bf16);
          const Quantised q =
              format == WeightFormat::bf16 ? Quantised{{}, {}, weight} : quantise(format, weight, N, K);
          const OneRow c{N, K, format, norm, ending};
          Results<double> exact;
          Results<float> plain;
          const auto append = [](auto& all, const auto& row) {
            all.normed.insert(all.normed.end(), row.normed.begin(), row.normed.end());
            all.out.insert(all.out.end(), row.out.begin(), row.out.end());
            all.activated.insert(all.activated.end(), row.activated.begin(), row.activated.end());
          };
          for (std::int64_t m = 0; m < M; ++m) {
            const std::vector<float> row(inp.begin() + m * K, inp.begin() + (m + 1) * K);
            append(exact,
                   one_row<double>(c, row, gain, {}, q.values, bias, {}, kEps, [](double x) { return x; }));
            append(plain, one_row<float>(c, row, gain, {}, q.values, bias, {}, kEps, as_bf16));
          }
          std::vector<float> normed, out, activated;
          tests::in_every_order([&] {
            DeviceArray x(inp, Type::bf16), g(gain, Type::bf16), w(weight, Type::bf16), b(bias, Type::bf16),
                to(M * N, Type::bf16), after(M * N, Type::bf16), before(M * K, Type::bf16);
            OnGpu<std::uint8_t> bytes(q.bytes.empty() ? std::vector<std::uint8_t>(1) : q.bytes);
            OnGpu<float> scales(q.scales.empty() ? std::vector<float>(1) : q.scales);
            const cuda::Weights weights{
                format, format == WeightFormat::bf16 ? cuda::ConstTensor(w).data : bytes.data(),
                scales.data()};
            cuda::InputNorm n;
            n.kind = norm;
            if (norm != NormKind::none) n.gain = g, n.normed = before, n.eps = kEps;
            cuda::Ending e;
            e.kind = ending;
            e.activated = after;
            cuda::gemv_tensor_cores(tests::no_scratch(), to, x, weights, b, {}, M, N, K, n, e);
            normed = before.values(), out = to.values(), activated = after.values();
            return out;
          });
          tests::check_as_accurate_as_plain(out, plain.out, exact.out, Type::bf16, test::kForward);
          if (norm != NormKind::none)
            tests::check_as_accurate_as_plain(normed, plain.normed, exact.normed, Type::bf16, test::kForward);
          activated.resize(plain.activated.size());
          if (!activated.empty())
            tests::check_as_accurate_as_plain(activated, plain.activated, exact.activated, Type::bf16,
                                              test::kForward);
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
