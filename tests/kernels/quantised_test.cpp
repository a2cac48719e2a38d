#include "kernels/quantised.h"

#include "kernels/threads.h"
#include "tests/kernels/coded_activations.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/reference.h"

using kernels::MatmulShape;
using kernels::QuantisedFormat;
using kernels::cpu::IntegerProducts;
using test::normal_tensor;
using test::to_double;

namespace {

// Both sides of a whole tile of 16 rows and of the 4 and 64 rows that are multiplied at once.
const std::vector<MatmulShape> kShapes = {{1, 1, 32},   {1, 16, 64},  {2, 17, 128}, {3, 40, 96},
                                          {4, 33, 256}, {5, 64, 160}, {66, 48, 64}, {1, 300, 576},
                                          {1, 17, 768}, {7, 32, 256}, {66, 19, 512}};

std::vector<QuantisedFormat> formats_of(std::int64_t K) {
  std::vector<QuantisedFormat> all;
  for (QuantisedFormat f : kernels::kKernelFormats) {
    if (f.blocks && K % QuantisedFormat::kBlock != 0) continue;
    all.push_back(f);
    f.group = K;
    if (!f.blocks) all.push_back(f);
  }
  return all;
}

std::vector<IntegerProducts> paths_here() {
  std::vector<IntegerProducts> paths;
  for (int path = 0; path <= static_cast<int>(kernels::cpu::fastest_integer_products()); ++path)
    paths.push_back(static_cast<IntegerProducts>(path));
  return paths;
}

struct AllPathsThenFastest {
  ~AllPathsThenFastest() { kernels::cpu::use_integer_products(kernels::cpu::fastest_integer_products()); }
};

struct Stored {
  Stored(QuantisedFormat f, MatmulShape s)
      : format(f),
        codes(static_cast<std::size_t>(f.code_bytes(s.N, s.K))),
        numbers(static_cast<std::size_t>(f.number_bytes(s.N, s.K))) {}
  kernels::QuantisedWeight weight() { return {codes.data(), numbers.data(), format}; }

  QuantisedFormat format;
  std::vector<std::byte> codes, numbers;
};

Stored quantised(const std::vector<float>& weight, QuantisedFormat f, MatmulShape s) {
  Stored stored(f, s);
  kernels::cpu::quantise(stored.weight(), weight.data(), s.N, s.K);
  return stored;
}

std::vector<float> values_of(Stored stored, MatmulShape s) {
  std::vector<float> values(static_cast<std::size_t>(s.N * s.K));
  kernels::cpu::dequantise(values.data(), stored.weight(), s.N, s.K);
  return values;
}

// Codes with numbers that every format can hold exactly, and what they stand for.
struct Source {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales, minima, block_scales, block_minima;

  kernels::GroupedCodes grouped() const { return {codes, scales, minima, block_scales, block_minima}; }
  std::vector<float> values() const {
    std::vector<float> all;
    const std::size_t group = codes.size() / scales.size();
    for (std::size_t i = 0; i < codes.size(); ++i)
      all.push_back(scales[i / group] * static_cast<float>(codes[i]) + minima[i / group]);
    return all;
  }
};

Source source_of(QuantisedFormat f, std::int64_t N, std::int64_t K) {
  Source source;
  const auto random = test::random_ids(N * K, f.last_code() + 1, 7);
  source.codes.assign(random.begin(), random.end());
  for (std::int64_t b = 0; f.blocks && b < N * K / QuantisedFormat::kBlock; ++b) {
    source.block_scales.push_back(0x1p-8f * static_cast<float>(b % 31));
    if (f.minima) source.block_minima.push_back(0x1p-6f * static_cast<float>(b % 7));
  }
  for (std::int64_t g = 0; g < N * K / f.group; ++g) {
    const auto block = static_cast<std::size_t>(g * f.group / QuantisedFormat::kBlock);
    const float scale = f.blocks ? source.block_scales[block] * static_cast<float>(g * 37 % 256 - 128)
                                 : 0x1p-8f * static_cast<float>(1 + g % 31);
    source.scales.push_back(scale);
    source.minima.push_back(!f.minima  ? f.minimum_of(scale)
                            : f.blocks ? -source.block_minima[block] * static_cast<float>(g * 53 % 256)
                                       : -0x1p-3f * static_cast<float>(g % 17));
  }
  return source;
}

}  // namespace

TEST_CASE("products with quantised weights are as accurate as plain loops over what the codes stand for",
          "[long]") {
  const AllPathsThenFastest restore;
  for (const IntegerProducts path : paths_here()) {
    kernels::cpu::use_integer_products(path);
    for (const MatmulShape s : kShapes)
      for (const QuantisedFormat f : formats_of(s.K)) {
        CAPTURE(name(path), s.M, s.N, s.K, f.bits, f.group, f.minima, f.blocks);
        const auto inp = normal_tensor(s.M * s.K, 1), bias = normal_tensor(s.N, 3);
        auto weight = quantised(normal_tensor(s.N * s.K, 2), f, s);
        const auto residual = normal_tensor(s.M * s.N, 4);
        const auto multiplied = test::coded(inp), stored = values_of(weight, s);
        const auto plain = reference::matmul_forward(multiplied, stored, bias, residual, s);
        const auto exact = reference::matmul_forward(to_double(multiplied), to_double(stored),
                                                     to_double(bias), to_double(residual), s);
        std::vector<float> out = residual;
        kernels::cpu::matmul_quantised(out.data(), inp.data(), weight.weight(), bias.data(), out.data(), s);
        test::check_as_accurate_as_plain(out, plain, exact, test::kForward);
      }
  }
}

TEST_CASE("rounding activations moves a product by no more than half a step of 16 bits of each of them") {
  const MatmulShape s{3, 48, 256};
  for (const QuantisedFormat f : formats_of(s.K)) {
    CAPTURE(f.bits, f.group, f.minima, f.blocks);
    const auto inp = normal_tensor(s.M * s.K, 1);
    auto weight = quantised(normal_tensor(s.N * s.K, 2), f, s);
    const auto stored = values_of(weight, s);
    std::vector<float> out(static_cast<std::size_t>(s.M * s.N));
    kernels::cpu::matmul_quantised(out.data(), inp.data(), weight.weight(), nullptr, nullptr, s);
    for (std::int64_t m = 0; m < s.M; ++m)
      for (std::int64_t n = 0; n < s.N; ++n) {
        double exact = 0, most = 0;
        for (std::int64_t k = 0; k < s.K; ++k) {
          const auto begin = inp.begin() + m * s.K + k / 32 * 32;
          const auto [low, high] = std::minmax_element(begin, begin + 32);
          const double half_step = std::max(-*low, *high) / 32639 / 2;
          exact += double{inp[m * s.K + k]} * stored[n * s.K + k];
          most += half_step * std::abs(stored[n * s.K + k]);
        }
        constexpr double kOfSums = 5e-4;  // fp32 adds products and minima of 8 chunks, each below 2^7
        CHECK(std::abs(out[m * s.N + n] - exact) <= most + kOfSums);
      }
  }
}

TEST_CASE("every path of instructions gives products with quantised weights that differ by roundings alone") {
  const AllPathsThenFastest restore;
  const MatmulShape s{3, 48, 256};
  for (const QuantisedFormat f : formats_of(s.K)) {
    const auto inp = normal_tensor(s.M * s.K, 1);
    auto weight = quantised(normal_tensor(s.N * s.K, 2), f, s);
    std::vector<std::vector<float>> outs;
    for (const IntegerProducts path : paths_here()) {
      kernels::cpu::use_integer_products(path);
      std::vector<float>& out = outs.emplace_back(static_cast<std::size_t>(s.M * s.N));
      kernels::cpu::matmul_quantised(out.data(), inp.data(), weight.weight(), nullptr, nullptr, s);
      for (std::size_t i = 0; i < out.size(); ++i) CHECK(std::abs(out[i] - outs[0][i]) <= 1e-5f * 256);
    }
  }
}

namespace {

// Rows of experts, one after the other, and where those of each begin.
struct Experts {
  std::vector<std::int64_t> offsets;
  kernels::cpu::GroupedShape shape;

  std::int64_t count() const { return std::ssize(offsets) - 1; }
  std::int64_t rows() const { return offsets.back(); }
  MatmulShape weight() const { return {1, count() * shape.N, shape.K}; }  // of all, as one matrix
};

// Experts without rows and with one, both sides of the 4 and 64 rows that are multiplied and coded at once:
// one token of three experts; a prompt whose experts have few and many rows; more experts than rows coded.
std::vector<Experts> experts_with(std::int64_t K) {
  std::vector<std::int64_t> of_many{0};
  for (std::int64_t e = 0; e < 90; ++e) of_many.push_back(of_many.back() + e % 3);
  return {{{0, 1, 1, 2, 2, 3}, {64, K}},
          {{0, 5, 5, 6, 74, 138, 138, 203}, {32, K}},
          {of_many, {16, K}},
          {{0, 0, 0}, {16, K}}};
}

}  // namespace

TEST_CASE(
    "products of experts with quantised weights are as accurate as plain loops over what the codes stand for",
    "[long]") {
  const AllPathsThenFastest restore;
  for (const IntegerProducts path : paths_here()) {
    kernels::cpu::use_integer_products(path);
    for (const std::int64_t K : {96, 256})
      for (const Experts& e : experts_with(K))
        for (const QuantisedFormat f : formats_of(K)) {
          const auto [N, unused] = e.shape;
          CAPTURE(name(path), e.count(), e.rows(), N, K, f.bits, f.group, f.minima, f.blocks);
          const auto inp = normal_tensor(e.rows() * K, 1), bias = normal_tensor(e.count() * N, 3);
          auto weight = quantised(normal_tensor(e.count() * N * K, 2), f, e.weight());
          std::vector<float> out(static_cast<std::size_t>(e.rows() * N), NAN);
          kernels::cpu::grouped_matmul_quantised(out.data(), inp.data(), weight.weight(), bias.data(),
                                                 e.offsets, e.shape);
          const auto multiplied = test::coded(inp), stored = values_of(weight, e.weight());
          std::vector<float> plain;
          std::vector<double> exact;
          for (std::int64_t g = 0; g < e.count(); ++g) {
            const auto part = [](const std::vector<float>& all, std::int64_t first, std::int64_t count) {
              return std::vector<float>(all.begin() + first, all.begin() + first + count);
            };
            const std::int64_t first = e.offsets[g], rows = e.offsets[g + 1] - first;
            const auto own = part(multiplied, first * K, rows * K), of_group = part(stored, g * N * K, N * K),
                       own_bias = part(bias, g * N, N);
            const MatmulShape s{rows, N, K};
            const auto add = [](auto& all, const auto& more) {
              all.insert(all.end(), more.begin(), more.end());
            };
            add(plain, reference::matmul_forward(own, of_group, own_bias, {}, s));
            add(exact,
                reference::matmul_forward(to_double(own), to_double(of_group), to_double(own_bias), {}, s));
          }
          test::check_as_accurate_as_plain(out, plain, exact, test::kForward);
        }
  }
}

TEST_CASE(
    "each expert's products with quantised weights have the bits of its own, on any number of threads") {
  const AllPathsThenFastest restore;
  constexpr std::int64_t kColumns = 256;
  for (const IntegerProducts path : paths_here()) {
    kernels::cpu::use_integer_products(path);
    for (const Experts& e : experts_with(kColumns))
      for (const QuantisedFormat f : kernels::kKernelFormats) {
        const auto [N, K] = e.shape;
        CAPTURE(name(path), e.count(), e.rows(), f.bits, f.minima, f.blocks);
        const auto inp = normal_tensor(e.rows() * K, 1), bias = normal_tensor(e.count() * N, 3);
        auto weight = quantised(normal_tensor(e.count() * N * K, 2), f, e.weight());
        std::vector<float> alone(static_cast<std::size_t>(e.rows() * N), NAN);
        for (std::int64_t g = 0; g < e.count(); ++g)
          kernels::cpu::matmul_quantised(alone.data() + e.offsets[g] * N, inp.data() + e.offsets[g] * K,
                                         weight.weight().from_row(g * N, K), bias.data() + g * N, nullptr,
                                         {e.offsets[g + 1] - e.offsets[g], N, K});
        for (const int threads : {1, 2, 3, 7}) {
          kernels::cpu::set_threads(threads);
          std::vector<float> out(alone.size(), NAN);
          kernels::cpu::grouped_matmul_quantised(out.data(), inp.data(), weight.weight(), bias.data(),
                                                 e.offsets, e.shape);
          CHECK(out == alone);
        }
        kernels::cpu::set_threads(0);
      }
  }
}

TEST_CASE("rows of a quantised weight are widened from any row on to what all of it stands for") {
  const MatmulShape s{1, 45, 256};
  for (const QuantisedFormat f : formats_of(s.K)) {
    auto weight = quantised(normal_tensor(s.N * s.K, 2), f, s);
    const auto all = values_of(weight, s);
    for (const auto& [first, count] : {std::pair{0, 1}, {13, 7}, {30, 15}, {32, 13}}) {
      std::vector<float> rows(static_cast<std::size_t>(count * s.K), NAN);
      kernels::cpu::dequantise_rows(rows.data(), weight.weight(), first, count, s.N, s.K);
      CHECK(std::equal(rows.begin(), rows.end(), all.begin() + first * s.K));
    }
  }
}

namespace {

// The scale and the minimum that a group's values ask for, as the header says.
struct Asked {
  float step, minimum;
};
Asked asked_for(QuantisedFormat f, const float* values) {
  const auto [low, high] = std::minmax_element(values, values + f.group);
  const float minimum = f.blocks ? std::min(0.0f, *low) : *low;
  const auto middle = static_cast<float>(QuantisedFormat::middle(f.bits));
  if (f.bits == 8) return {std::max(-*low, *high) / 127, minimum};
  if (f.minima) return {(*high - minimum) / static_cast<float>(f.last_code()), minimum};
  return {std::max(-*low / middle, *high / (middle - 1)), minimum};
}

// How far a value may be off in a group.
float most_off(QuantisedFormat f, Asked asked, float largest_step, float least_minimum) {
  // fp16 keeps 11 bits of the scale, which is multiplied by at most 127, and of the minimum.
  if (!f.blocks) return asked.step / 2 + 127 * asked.step * 0x1p-11f + std::abs(asked.minimum) * 0x1p-11f;
  // A factor is rounded up by at most one of its 11 bits, or where it is small by the least that fp16 has.
  // The stored step is off by at most half of the first factor, and the stored minimum by half of the second.
  const auto rounded_up = [](float factor) { return factor * (1 + 0x1p-10f) + 0x1p-24f; };
  const float half_scale = rounded_up(largest_step / 127) / 2;
  const float half_minimum = f.minima ? rounded_up(-least_minimum / 255) / 2 : 0;
  // Values between two codes are off by half the stored step. Those that it leaves without a code are off by
  // what it is too short, times the codes up to the end, and by the minimum's rounding.
  const auto codes = static_cast<float>(f.minima ? f.last_code() : QuantisedFormat::middle(f.bits));
  const float between = (asked.step + half_scale) / 2, beyond = codes * half_scale + half_minimum;
  constexpr float kOfFp32 = 1e-6f;
  return std::max(between, beyond) + kOfFp32 * codes * asked.step;
}

}  // namespace

TEST_CASE(
    "a quantised weight is off by at most half a step of its codes, and by the roundings of its numbers") {
  const MatmulShape s{1, 19, 512};
  for (const QuantisedFormat f : formats_of(s.K))
    for (const float deviation : {1.0f, 0x1p-14f}) {
      if (deviation < 1 && !f.blocks) continue;  // as small as that the scales have fewer than 11 bits
      CAPTURE(f.bits, f.group, f.minima, f.blocks, deviation);
      const auto weight = normal_tensor(s.N * s.K, 5, deviation);
      const auto values = values_of(quantised(weight, f, s), s);
      const std::int64_t together = f.blocks ? QuantisedFormat::kBlock : f.group;
      float worst = -INFINITY;  // by how much a value is off by more than it may be
      for (std::int64_t first = 0; first < s.N * s.K; first += together) {
        float largest_step = 0, least_minimum = 0;
        for (std::int64_t g = first; g < first + together; g += f.group) {
          const Asked asked = asked_for(f, weight.data() + g);
          largest_step = std::max(largest_step, asked.step);
          least_minimum = std::min(least_minimum, asked.minimum);
        }
        for (std::int64_t i = first; i < first + together; ++i) {
          const Asked asked = asked_for(f, weight.data() + i / f.group * f.group);
          worst = std::max(worst,
                           std::abs(values[i] - weight[i]) - most_off(f, asked, largest_step, least_minimum));
        }
      }
      CHECK(worst <= 0);
    }
}

TEST_CASE("the formats that have kernels are those of the list, in groups of any 32 columns without blocks") {
  for (const QuantisedFormat f : formats_of(768)) CHECK(kernels::cpu::is_kernel_format(f));
  for (const QuantisedFormat f : {QuantisedFormat{7, 32}, QuantisedFormat{4, 16}, QuantisedFormat{4, 48},
                                  QuantisedFormat{6, 32, false}, QuantisedFormat{4, 64, true, true}})
    CHECK_FALSE(kernels::cpu::is_kernel_format(f));
}

TEST_CASE(
    "packed codes, scales and minima come back as they were, and so does each row that tokens ask for") {
  const std::int64_t N = 21, K = 256;
  for (const QuantisedFormat f : kernels::kKernelFormats) {
    CAPTURE(f.bits, f.group, f.minima, f.blocks);
    const Source source = source_of(f, N, K);
    const auto expected = source.values();
    Stored stored(f, {1, N, K});
    REQUIRE(kernels::cpu::pack_quantised(stored.weight(), source.grouped(), N, K));
    CHECK(values_of(stored, {1, N, K}) == expected);

    // With and without positions, as the whole vocabulary and as the part that begins with id 5.
    const std::vector<std::int32_t> tokens{20, 0, 15, 4, 25, 26, 16, 3}, starts{2, 0};
    const std::int64_t B = 2, T = 4;
    std::vector<float> position_weight;
    for (std::int64_t i = 0; i < 6 * K; ++i) position_weight.push_back(0x1p-6f * static_cast<float>(i % 61));
    std::vector<float> rows(tokens.size() * static_cast<std::size_t>(K)), wide(rows.size());
    for (const std::int32_t first : {0, 5})
      for (const float* const added : std::initializer_list<const float*>{nullptr, position_weight.data()}) {
        const kernels::EmbeddingShape shape{B, T, K, N, first};
        kernels::cpu::embedding_quantised(rows.data(), tokens.data(), stored.weight(), added, starts.data(),
                                          shape);
        kernels::cpu::embedding_forward(wide.data(), tokens.data(), expected.data(), added, starts.data(),
                                        shape);
        CHECK(rows == wide);
      }
  }
}

TEST_CASE("codes around a zero of their own are packed without minima where a whole code stands for 0") {
  const std::int64_t N = 21, K = 96;
  for (const int bits : {4, 5, 8}) {
    const QuantisedFormat f{bits, 32, false};
    const int last = (1 << bits) - 1, middle = 1 << (bits - 1);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(N * K));
    std::vector<float> scales, minima;
    for (std::int64_t g = 0; g < N * K / 32; ++g) {
      // Codes from 0 to twice the zero, but for the last code that the format has.
      const int zero = g % 5 == 0 ? middle : 1 + static_cast<int>(g % (middle - 1));
      const auto random = test::random_ids(32, std::min(last, 2 * zero), static_cast<unsigned>(g));
      std::copy(random.begin(), random.end(), codes.begin() + 32 * g);
      scales.push_back((g % 2 == 0 ? 0x1p-8f : -0x1p-8f) * static_cast<float>(g % 31));
      minima.push_back(-static_cast<float>(zero) * scales.back());
    }
    Stored stored(f, {1, N, K});
    REQUIRE(kernels::cpu::pack_quantised(stored.weight(), {codes, scales, minima}, N, K));
    const auto values = values_of(stored, {1, N, K});
    for (std::size_t i = 0; i < codes.size(); ++i)
      CHECK(values[i] == scales[i / 32] * static_cast<float>(codes[i]) + minima[i / 32]);

    const auto refused = [&](float minimum, std::uint8_t code) {
      auto others = minima;
      auto with = codes;
      others[4] = minimum, with[4 * 32] = code;
      return !kernels::cpu::pack_quantised(stored.weight(), {with, scales, others}, N, K);
    };
    CHECK_FALSE(refused(-3 * scales[4], 0));
    CHECK(refused(-3.5f * scales[4], 0));
    CHECK(refused(3 * scales[4], 0));
    CHECK(refused(NAN, 0));
    CHECK(refused(-3 * scales[4], static_cast<std::uint8_t>(last)));  // last - 3 above a middle of half of it
  }
}

TEST_CASE("codes in blocks stand for the same values where they are packed into more bits") {
  const std::int64_t N = 21, K = 512;
  const auto check_equal = [&](QuantisedFormat from, QuantisedFormat to) {
    const Source source = source_of(from, N, K);
    Stored stored(to, {1, N, K});
    REQUIRE(kernels::cpu::pack_quantised(stored.weight(), source.grouped(), N, K));
    CHECK(values_of(stored, {1, N, K}) == source.values());
  };
  check_equal({3, 16, false, true}, {6, 16, false, true});
  check_equal({4, 32, true, true}, {5, 32, true, true});
}

TEST_CASE("a format in blocks refuses numbers that are no integers of 8 bits times their factors") {
  const std::int64_t N = 3, K = 256;  // a block a row
  const QuantisedFormat f{5, 32, true, true};
  const Source source = source_of(f, N, K);
  const auto refused = [&](const auto& change) {
    Source changed = source;
    change(changed);
    Stored stored(f, {1, N, K});
    return !kernels::cpu::pack_quantised(stored.weight(), changed.grouped(), N, K);
  };
  constexpr std::size_t kAt = 9;  // a group of the second block, whose factors are not zero
  const float scale = source.block_scales[1], minimum = source.block_minima[1];
  CHECK_FALSE(refused([&](Source& s) { s.scales[kAt] = -128 * scale, s.minima[kAt] = -255 * minimum; }));
  CHECK(refused([&](Source& s) { s.scales[kAt] = 2.5f * scale; }));
  CHECK(refused([&](Source& s) { s.scales[kAt] = 128 * scale; }));
  CHECK(refused([&](Source& s) { s.scales[kAt] = -129 * scale; }));
  CHECK(refused([&](Source& s) { s.scales[kAt] = NAN; }));
  CHECK(refused([&](Source& s) { s.minima[kAt] = -2.5f * minimum; }));
  CHECK(refused([&](Source& s) { s.minima[kAt] = -256 * minimum; }));
  CHECK(refused([&](Source& s) { s.minima[kAt] = minimum; }));
  CHECK(refused([&](Source& s) { s.scales[0] = 1; }));  // its factor is zero
  CHECK(refused([&](Source& s) { s.codes[5] = 32; }));
  CHECK(refused([&](Source& s) { s.block_scales.clear(); }));
  CHECK(refused([&](Source& s) { s.block_minima.clear(); }));
}

TEST_CASE("products with quantised weights are the same bits on any number of threads, and NaN stays NaN") {
  const MatmulShape s{70, 160, 256};
  for (const QuantisedFormat f : {QuantisedFormat{4, 32}, QuantisedFormat{6, 16, false, true}}) {
    auto inp = normal_tensor(s.M * s.K, 1);
    auto weight = quantised(normal_tensor(s.N * s.K, 2), f, s);
    const auto products = [&] {
      std::vector<float> out(static_cast<std::size_t>(s.M * s.N));
      kernels::cpu::matmul_quantised(out.data(), inp.data(), weight.weight(), nullptr, nullptr, s);
      return out;
    };
    kernels::cpu::set_threads(1);
    const auto alone = products();
    kernels::cpu::set_threads(3);
    CHECK(products() == alone);
    kernels::cpu::set_threads(0);
    inp[5] = NAN;
    CHECK(std::isnan(products()[0]));
    inp[5] = INFINITY;
    CHECK_FALSE(std::isfinite(products()[0]));
  }
}
