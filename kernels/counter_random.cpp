#include "kernels/counter_random.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "kernels/parallel.h"

namespace kernels::cpu {
namespace {

// Elementary functions in double without branches, so that their loops vectorise. Both are within 1e-15 of
// the exact value: rounded to fp32, results are the same as with libm's functions.

// The logarithm of a normal x > 0: x = 2^e m with m in [sqrt(1/2), sqrt(2)), and ln m is
// 2 artanh((m - 1) / (m + 1)) by its series, whose 12th term is below 1e-17.
KERNELS_INLINE double natural_logarithm(double x) {
  constexpr std::uint64_t kRootHalf = 0x3fe6a09e667f3bcdu;  // bits of sqrt(1/2)
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t above = (bits - kRootHalf + (std::uint64_t{1024} << 52)) >> 52;  // e + 1024
  const double m = std::bit_cast<double>(bits - ((above - 1024) << 52));
  const double s = (m - 1) / (m + 1), z = s * s;
  double p = 1.0 / 21;
  p = p * z + 1.0 / 19;
  p = p * z + 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  p = p * z + 1;
  return 2 * s * p + (to_double(above) - 1024) * std::numbers::ln2;
}

struct SineAndCosine {
  double sine, cosine;
};
// Sine and cosine of an angle in turns, from 0 to 2^48: the nearest quarter turn is exact. The rest, at most
// an eighth of a turn, goes by their series.
KERNELS_INLINE SineAndCosine of_turns(double turns) {
  constexpr double kRound = 0x1.8p52;  // added, it leaves the nearest integer in the low bits
  const double quarters = 4 * turns, shifted = quarters + kRound;
  const double a = (quarters - (shifted - kRound)) * (std::numbers::pi / 2), z = a * a;
  double s = -1.0 / 1307674368000;  // 15!
  s = s * z + 1.0 / 6227020800;
  s = s * z - 1.0 / 39916800;
  s = s * z + 1.0 / 362880;
  s = s * z - 1.0 / 5040;
  s = s * z + 1.0 / 120;
  s = s * z - 1.0 / 6;
  s = s * z * a + a;
  double c = 1.0 / 20922789888000;  // 16!
  c = c * z - 1.0 / 87178291200;
  c = c * z + 1.0 / 479001600;
  c = c * z - 1.0 / 3628800;
  c = c * z + 1.0 / 40320;
  c = c * z - 1.0 / 720;
  c = c * z + 1.0 / 24;
  c = c * z - 0.5;
  c = c * z + 1;
  // An odd number of quarters swaps sine and cosine; each is negative in two of the four quarters.
  const std::uint64_t quarter = std::bit_cast<std::uint64_t>(shifted);
  const double sine = quarter & 1 ? c : s, cosine = quarter & 1 ? s : c;
  const auto with_sign = [](double value, std::uint64_t which) {
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) ^ ((which & 2) << 62));
  };
  return {with_sign(sine, quarter), with_sign(cosine, quarter + 1)};
}

struct NormalPair {
  float first, second;
};
KERNELS_INLINE NormalPair normal_pair(std::uint64_t key, std::int64_t pair, double standard_deviation) {
  const std::uint64_t bits = finalise(key + (static_cast<std::uint64_t>(pair) + 1) * kGamma);
  const double radius = standard_deviation * std::sqrt(-2 * natural_logarithm(uniform(bits >> 32)));
  const SineAndCosine angle = of_turns(uniform(bits & 0xffffffffu));
  return {static_cast<float>(radius * angle.cosine), static_cast<float>(radius * angle.sine)};
}

KERNELS_MULTIVERSION void fill_pairs(float* out, std::uint64_t key, double standard_deviation,
                                     std::int64_t begin, std::int64_t end) {
#pragma omp simd
  for (std::int64_t pair = begin; pair < end; ++pair) {
    const NormalPair values = normal_pair(key, pair, standard_deviation);
    out[2 * pair] = values.first;
    out[2 * pair + 1] = values.second;
  }
}

}  // namespace

void fill_normal(float* out, std::int64_t count, std::uint64_t key, double standard_deviation) {
  constexpr std::int64_t kCost = 16;  // floats that are copied in as much time
  const std::int64_t pairs = count / 2;
  parallel_ranges(pairs, kCost, [=](std::int64_t begin, std::int64_t end) {
    fill_pairs(out, key, standard_deviation, begin, end);
  });
  if (count % 2 != 0) out[count - 1] = normal_pair(key, pairs, standard_deviation).first;
}

}  // namespace kernels::cpu
