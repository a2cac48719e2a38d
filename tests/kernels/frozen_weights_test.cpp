// Frozen weights in 8 and 4 bits against the papers' definitions, written again here in double.
#include "kernels/frozen_weights.h"

#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/bf16_values.h"
#include "kernels/threads.h"
#include "tests/kernels/compare.h"

using kernels::FrozenFormat;
using kernels::FrozenWeight;
using kernels::cuda::bf16;
using test::normal_tensor;
using test::to_double;

namespace {

// Dettmers et al. 2023, arXiv 2305.14314, appendix E.
constexpr std::array kPaper = {-1.0,
                               -0.6961928009986877,
                               -0.5250730514526367,
                               -0.39491748809814453,
                               -0.28444138169288635,
                               -0.18477343022823334,
                               -0.09105003625154495,
                               0.0,
                               0.07958029955625534,
                               0.16093020141124725,
                               0.24611230194568634,
                               0.33791524171829224,
                               0.44070982933044434,
                               0.5626170039176941,
                               0.7229568362236023,
                               1.0};

struct Stored {
  Stored(FrozenFormat format, std::int64_t rows, std::int64_t columns) {
    weight.format = format;
    weight.count = rows * columns;
    if (format == FrozenFormat::int8) weight.group = columns;
    const bool is_double = format == FrozenFormat::nf4_double;
    codes.resize(at(format == FrozenFormat::int8 ? weight.count : (weight.count + 1) / 2));
    scales.resize(at(weight.groups()) * (is_double ? 1 : sizeof(float)));
    if (is_double) scales_of_scales.resize(at(weight.scale_blocks() + 1));
    weight.codes = codes.data();
    weight.scales = scales.data();
    weight.scales_of_scales = scales_of_scales.data();
  }
  Stored(const Stored&) = delete;
  Stored& operator=(const Stored&) = delete;

  void store(const std::vector<float>& values) {
    kernels::cpu::find_frozen_scales(weight, values.data());
    kernels::cpu::code_frozen(weight, values.data());
  }
  std::vector<float> values() const {
    std::vector<float> all(at(weight.count));
    kernels::cpu::expand_frozen(all.data(), weight);
    return all;
  }
  std::vector<bf16> values_in_bf16() const {
    std::vector<bf16> all(at(weight.count));
    kernels::cpu::expand_frozen(all.data(), weight);
    return all;
  }
  // Of the format that does not round them.
  std::vector<float> wide_scales() const {
    std::vector<float> wide(scales.size() / sizeof(float));
    std::memcpy(wide.data(), scales.data(), scales.size());
    return wide;
  }

  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  FrozenWeight weight;
  std::vector<std::byte> codes, scales;
  std::vector<float> scales_of_scales;
};

constexpr std::array kFormats = {FrozenFormat::int8, FrozenFormat::nf4, FrozenFormat::nf4_double};

// Rows and columns. Of 4 bits: less than a block, an odd end of a block, one block of scales and several.
struct Shape {
  std::int64_t rows, columns;
};
constexpr std::array kShapes = {Shape{1, 1},  Shape{3, 5},    Shape{1, 64},    Shape{7, 65},
                                Shape{5, 96}, Shape{33, 130}, Shape{128, 128}, Shape{301, 259}};

double largest_of(const std::vector<double>& values, std::size_t first, std::size_t count) {
  double largest = 0;
  for (std::size_t i = first; i < std::min(first + count, values.size()); ++i)
    largest = std::max(largest, std::abs(values[i]));
  return largest;
}

// The value of `codes` that is nearest to x.
template <class Codes>
double nearest(const Codes& codes, double x) {
  double best = codes[0];
  for (const double code : codes)
    if (std::abs(code - x) < std::abs(best - x)) best = code;
  return best;
}

// What values stand for once they are stored, each group at its largest magnitude.
template <class Codes>
std::vector<double> rounded(const std::vector<double>& values, std::size_t group, const Codes& codes) {
  std::vector<double> all;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double scale = largest_of(values, i / group * group, group);
    all.push_back(scale * nearest(codes, values[i] / scale));
  }
  return all;
}

std::vector<double> int8_codes() {
  std::vector<double> codes;
  for (int code = -127; code <= 127; ++code) codes.push_back(code / 127.0);
  return codes;
}

// The dynamic map of Dettmers et al. 2022, arXiv 2110.02861, signed: seven decades, of which each has twice
// as many values as the one below it.
std::vector<double> dynamic_codes() {
  std::vector<double> codes{0, 1};
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = 1 << decade;
    for (int part = 0; part < parts; ++part) {
      const double value = std::pow(10, decade - 6) * (0.1 + 0.9 * (part + 0.5) / parts);
      codes.insert(codes.end(), {value, -value});
    }
  }
  return codes;
}

// Scales as they are after their mean was subtracted and the rest rounded, 256 at its largest magnitude.
std::vector<double> rounded_scales(const std::vector<double>& scales) {
  const double mean = std::accumulate(scales.begin(), scales.end(), 0.0) / static_cast<double>(scales.size());
  std::vector<double> centred = scales;
  for (double& scale : centred) scale -= mean;
  if (largest_of(centred, 0, centred.size()) == 0) return scales;
  std::vector<double> all = rounded(centred, 256, dynamic_codes());
  for (double& scale : all) scale += mean;
  return all;
}

double root_mean_square(const std::vector<float>& values, const std::vector<double>& exact) {
  return std::sqrt(test::mean_square_error(values, exact));
}

// Of a standard normal distribution.
double below(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}
double density(double x) {
  return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
}

}  // namespace

TEST_CASE("The codes of nf4 are the paper's, which are quantiles of a normal distribution") {
  CHECK(kernels::kNormalFloat.size() == kPaper.size());
  for (std::size_t i = 0; i < kPaper.size(); ++i)
    CHECK(kernels::kNormalFloat[i] == static_cast<float>(kPaper[i]));
  // Both halves are as many equal steps of probability from 1/2 to the mean of 1 - 1/30 and 1 - 1/32, and are
  // divided by the quantile there (create_normal_map() of bitsandbytes' functional.py).
  const double end = 1 - (1.0 / 30 + 1.0 / 32) / 2;
  double quantile = 0;
  for (double step = 4; step > 1e-12; step /= 2)
    if (below(quantile + step) <= end) quantile += step;
  for (int i = 0; i <= 7; ++i)
    CHECK(below(quantile * kPaper[static_cast<std::size_t>(7 - i)]) ==
          Approx(0.5 - (end - 0.5) * i / 7).epsilon(1e-6));
  for (int i = 0; i <= 8; ++i)
    CHECK(below(quantile * kPaper[static_cast<std::size_t>(7 + i)]) ==
          Approx(0.5 + (end - 0.5) * i / 8).epsilon(1e-6));
}

TEST_CASE("A frozen weight stands for the nearest values that its format has") {
  for (const Shape& s : kShapes) {
    CAPTURE(s.rows, s.columns);
    const std::vector<float> values = normal_tensor(s.rows * s.columns, 3);
    const std::vector<double> exact = to_double(values);
    for (const FrozenFormat format : {FrozenFormat::int8, FrozenFormat::nf4}) {
      const bool int8 = format == FrozenFormat::int8;
      CAPTURE(int8);
      Stored stored(format, s.rows, s.columns);
      stored.store(values);
      const std::vector<float> found = stored.values();
      const auto group = static_cast<std::size_t>(int8 ? s.columns : 64);
      const std::vector<double> expected =
          int8 ? rounded(exact, group, int8_codes()) : rounded(exact, group, kPaper);
      std::size_t others = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double scale = largest_of(exact, i / group * group, group);
        // Between two codes fp32 may take the other: it is no further off than by rounding.
        if (std::abs(found[i] - expected[i]) > 2 * 0x1p-24 * scale) ++others;
        CHECK(std::abs(found[i] - exact[i]) <= std::abs(expected[i] - exact[i]) + 4 * 0x1p-24 * scale);
      }
      CHECK(static_cast<double>(others) <= 1e-4 * static_cast<double>(values.size()));
    }
  }
}

TEST_CASE(
    "Scales in 8 bits are the mean and the nearest of the dynamic map, and codes are nearest with them") {
  for (const Shape& s : kShapes) {
    CAPTURE(s.rows, s.columns);
    const std::vector<float> values = normal_tensor(s.rows * s.columns, 4);
    const std::vector<double> exact = to_double(values);
    Stored stored(FrozenFormat::nf4_double, s.rows, s.columns);
    stored.store(values);
    const std::vector<float> found = stored.values();
    std::vector<double> scales;
    for (std::size_t first = 0; first < exact.size(); first += 64)
      scales.push_back(largest_of(exact, first, 64));
    const std::vector<double> expected = rounded_scales(scales);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double scale = expected[i / 64], most = scales[i / 64];
      const double value = scale * nearest(kPaper, exact[i] / scale);
      CHECK(std::abs(found[i] - exact[i]) <= std::abs(value - exact[i]) + 8 * 0x1p-24 * most);
    }
  }
}

// The density of the largest of n magnitudes below m is n (2 F(m) - 1)^(n - 1) 2 f(m), F and f those of the
// normal distribution. Below it the other n - 1 are distributed as f, and each is rounded to m times a code.
TEST_CASE("The square error of nf4 on normal weights is that which their density says") {
  constexpr int kLargest = 600, kBelow = 2000;
  constexpr double kMost = 6;  // above it the largest of 64 lies once in 10^7 blocks
  double expected = 0;
  for (int l = 0; l < kLargest; ++l) {
    const double m = kMost * (l + 0.5) / kLargest, within = 2 * below(m) - 1;
    double error = 0;
    for (int b = 0; b < kBelow; ++b) {
      const double x = m * (2 * (b + 0.5) / kBelow - 1), off = x - m * nearest(kPaper, x / m);
      error += off * off * density(x) * 2 * m / kBelow;
    }
    expected += 63.0 / 64 * error / within * 64 * std::pow(within, 63) * 2 * density(m) * kMost / kLargest;
  }
  constexpr std::int64_t kRows = 1024, kColumns = 1024;
  const std::vector<float> values = normal_tensor(kRows * kColumns, 5);
  Stored stored(FrozenFormat::nf4, kRows, kColumns);
  stored.store(values);
  // Of a million samples the mean scatters by some 0.2 %.
  CHECK(test::mean_square_error(stored.values(), to_double(values)) == Approx(expected).epsilon(0.01));
}

// A code that is nearest with the rounded scale is no worse than the one that is nearest with the scale,
// which moves by no more than the scale does. The widest step of the dynamic map is 0.9 / 64 at its upper
// end; below its least value, -1 + that / 2, one half is missing.
TEST_CASE("Scales in 8 bits add no more to nf4's error than half a step of their map") {
  constexpr std::int64_t kRows = 256, kColumns = 512;
  // Rows of different size, as in trained weights.
  std::vector<float> values = normal_tensor(kRows * kColumns, 6);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] *= 1 + 0.5f * std::sin(static_cast<float>(i / static_cast<std::size_t>(kColumns)));
  const std::vector<double> exact = to_double(values);
  Stored once(FrozenFormat::nf4, kRows, kColumns), twice(FrozenFormat::nf4_double, kRows, kColumns);
  once.store(values);
  twice.store(values);
  const std::vector<float> scales = once.wide_scales();
  const double mean = std::accumulate(scales.begin(), scales.end(), 0.0) / static_cast<double>(scales.size());
  double furthest = 0;
  for (const float scale : scales) furthest = std::max(furthest, std::abs(scale - mean));
  const double moved = furthest * 0.9 / 64 / 2 * (1 + 1e-5);
  CHECK(root_mean_square(twice.values(), exact) <= root_mean_square(once.values(), exact) + moved);
  const std::vector<float> one = once.values(), two = twice.values();
  bool differs = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    CHECK(std::abs(two[i] - exact[i]) <= std::abs(one[i] - exact[i]) + moved);
    differs = differs || one[i] != two[i];
  }
  CHECK(differs);
}

TEST_CASE(
    "Values of a frozen weight are stored again as they are: with the scales that it has, in any format") {
  for (const Shape& s : kShapes) {
    const std::vector<float> values = normal_tensor(s.rows * s.columns, 7, 0.02f);
    for (const FrozenFormat format : kFormats) {
      CAPTURE(s.rows, s.columns, static_cast<int>(format));
      Stored first(format, s.rows, s.columns), again(format, s.rows, s.columns);
      first.store(values);
      again.scales = first.scales;
      again.scales_of_scales = first.scales_of_scales;
      again.weight.scales = again.scales.data();
      again.weight.scales_of_scales = again.scales_of_scales.data();
      kernels::cpu::code_frozen(again.weight, first.values().data());
      CHECK(again.codes == first.codes);
      if (format == FrozenFormat::nf4_double) continue;
      // Without them, too: the largest magnitudes come back.
      again.store(first.values());
      CHECK(again.codes == first.codes);
      CHECK(again.scales == first.scales);
    }
  }
}

TEST_CASE("Frozen weights are the same bits on any number of threads, and bf16 is the rounding of fp32") {
  for (const Shape& s : kShapes) {
    const std::vector<float> values = normal_tensor(s.rows * s.columns, 8);
    for (const FrozenFormat format : kFormats) {
      CAPTURE(s.rows, s.columns, static_cast<int>(format));
      Stored one(format, s.rows, s.columns), three(format, s.rows, s.columns);
      kernels::cpu::set_threads(1);
      one.store(values);
      const std::vector<float> wide = one.values();
      kernels::cpu::set_threads(3);
      three.store(values);
      CHECK(three.codes == one.codes);
      CHECK(three.scales == one.scales);
      CHECK(three.scales_of_scales == one.scales_of_scales);
      CHECK(three.values() == wide);
      const std::vector<bf16> narrow = three.values_in_bf16();
      for (std::size_t i = 0; i < wide.size(); ++i)
        CHECK(narrow[i].bits == kernels::cpu::rounded(wide[i]).bits);
    }
  }
  kernels::cpu::set_threads(0);
}

TEST_CASE("Zeros stay zeros, and what is not finite makes its row or block NaN") {
  const std::int64_t rows = 6, columns = 64;
  for (const FrozenFormat format : {FrozenFormat::int8, FrozenFormat::nf4}) {
    std::vector<float> values = normal_tensor(rows * columns, 9);
    std::fill_n(values.begin(), columns, 0.0f);
    values[static_cast<std::size_t>(columns) + 3] = NAN;
    values[static_cast<std::size_t>(2 * columns) + 5] = INFINITY;
    Stored stored(format, rows, columns);
    stored.store(values);
    const std::vector<float> found = stored.values();
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) / columns;
      CAPTURE(i);
      if (row == 0) CHECK(found[i] == 0.0f);
      CHECK(std::isnan(found[i]) == (row == 1 || row == 2));
    }
  }
  // Scales share a mean; zeros are exact all the same.
  std::vector<float> values = normal_tensor(rows * columns, 9);
  std::fill_n(values.begin(), columns, 0.0f);
  Stored stored(FrozenFormat::nf4_double, rows, columns);
  stored.store(values);
  const std::vector<float> found = stored.values();
  for (std::int64_t i = 0; i < columns; ++i) CHECK(found[static_cast<std::size_t>(i)] == 0.0f);
  values.back() = NAN;
  stored.store(values);
  CHECK(std::isnan(stored.values().front()));
}
