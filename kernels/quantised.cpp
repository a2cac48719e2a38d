#include "kernels/quantised.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <iterator>
#include <optional>
#include <vector>

#include "kernels/cuda/types.h"
#include "kernels/embedding_rows.h"
#include "kernels/parallel.h"
#include "kernels/quantised_layout.h"
#include "kernels/quantised_tile.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

constexpr std::int64_t kColumns = QuantisedFormat::kColumns, kTileRows = QuantisedFormat::kTileRows;

// Rows of activations coded at a time: a prompt's scratch is no larger than that of 64 tokens.
constexpr std::int64_t kCodedRows = 64;

IntegerProducts chosen = fastest_integer_products();

TileProduct tile_product_of(QuantisedFormat format) {
  switch (chosen) {
    case IntegerProducts::avx512_vnni:
      return avx512_vnni_tile(format);
    case IntegerProducts::avx2:
      return avx2_tile(format);
    case IntegerProducts::plain:
      break;
  }
  return [](float* products, CodedRows activations, std::int64_t rows, QuantisedWeight tile) {
    plain_tile(products, activations, rows, tile, kTileRows);
  };
}

// Codes of 32 activations in two parts. The largest is 32,639: both of its parts are 127.
KERNELS_INLINE void code_columns(std::int8_t* high, std::int8_t* low, float& scale, float& sum,
                                 float* half_sums, const float* from) {
  float largest = 0, nothing = 0;
#pragma omp simd reduction(max : largest) reduction(+ : nothing)
  for (std::int64_t k = 0; k < kColumns; ++k) {
    const float magnitude = std::fabs(from[k]);
    largest = magnitude > largest ? magnitude : largest;
    nothing += 0.0f * from[k];  // NaN where an activation is NaN or infinite: it has no code
  }
  constexpr float kMost = 127 * CodedRows::kHigh + 127;
  scale = largest / kMost + nothing;
  const float by = largest > 0 ? kMost / largest : 0.0f;
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the significand.
  constexpr float kRound = 12582912.0f;
  std::int32_t total = 0, codes[kColumns];
#pragma omp simd reduction(+ : total)
  for (std::int64_t k = 0; k < kColumns; ++k) {
    const float scaled = from[k] * by;
    const auto code = static_cast<std::int32_t>((scaled == scaled ? scaled : 0.0f) + kRound - kRound);
    const std::int32_t upper = (code + CodedRows::kHigh / 2) >> CodedRows::kLowBits;
    high[k] = static_cast<std::int8_t>(upper);
    low[k] = static_cast<std::int8_t>(code - CodedRows::kHigh * upper);
    codes[k] = code;
    total += code;
  }
  std::int32_t first_half = 0;
#pragma omp simd reduction(+ : first_half)
  for (std::int64_t k = 0; k < CodedRows::kHalf; ++k) first_half += codes[k];
  sum = scale * static_cast<float>(total);
  half_sums[0] = scale * static_cast<float>(first_half);
  half_sums[1] = scale * static_cast<float>(total - first_half);
}

KERNELS_MULTIVERSION void code_range(std::int8_t* parts, float* scales, float* sums, float* half_sums,
                                     const float* from, std::int64_t begin, std::int64_t end) {
  for (std::int64_t chunk = begin; chunk < end; ++chunk) {
    std::int8_t* const high = parts + chunk * 2 * kColumns;
    code_columns(high, high + kColumns, scales[chunk], sums[chunk],
                 half_sums + chunk * (kColumns / CodedRows::kHalf), from + chunk * kColumns);
  }
}

CodedRows code_rows(const float* from, std::int64_t rows, std::int64_t K) {
  static thread_local std::vector<std::int8_t> parts;
  static thread_local std::vector<float> scales, sums, half_sums;
  const std::int64_t chunks = rows * K / kColumns;
  parts.resize(static_cast<std::size_t>(rows * 2 * K));
  scales.resize(static_cast<std::size_t>(chunks));
  sums.resize(static_cast<std::size_t>(chunks));
  half_sums.resize(static_cast<std::size_t>(rows * K / CodedRows::kHalf));
  std::int8_t* const both = parts.data();
  float *const scale = scales.data(), *const sum = sums.data(), *const half_sum = half_sums.data();
  parallel_ranges(chunks, kColumns, [=](std::int64_t begin, std::int64_t end) {
    code_range(both, scale, sum, half_sum, from, begin, end);
  });
  return {both, scale, sum, half_sum, K};
}

void store(float* out, const float* products, const float* bias, const float* residual, std::int64_t count) {
  for (std::int64_t n = 0; n < count; ++n)
    out[n] = products[n] + (bias ? bias[n] : 0.0f) + (residual ? residual[n] : 0.0f);
}

// Consecutive rows of activations that the weight of one group multiplies.
struct GroupRows {
  std::int64_t group, first, count;

  // What one tile of the weight takes, in units of what multiplying it by one row takes. Reading it from
  // memory takes as long as some rows: a prompt's 64 took 10 (8 bits) to 21 times (4 bits) as long as one
  // row on two cores of an AMD EPYC.
  static constexpr std::int64_t kReading = 4;
  constexpr std::int64_t tile_cost() const { return kReading + count; }
};

// Calls body(parts, rows) on the rows offsets[0] .. offsets.back(), so many at a time that no more than
// kCodedRows are coded. A group's rows are divided only where they are more than that, so that each part of a
// weight is read as seldom as it can be.
template <class Body>
void for_coded_rows(std::span<const std::int64_t> offsets, const Body& body) {
  std::array<GroupRows, kCodedRows> parts;
  std::size_t count = 0;
  std::int64_t rows = 0;
  const auto multiply_parts = [&] {
    if (count > 0) body(std::span<const GroupRows>(parts.data(), count), rows);
    count = 0, rows = 0;
  };
  for (std::size_t g = 0; g + 1 < offsets.size(); ++g)
    for (std::int64_t first = offsets[g]; first < offsets[g + 1];) {
      const std::int64_t of_group = std::min(kCodedRows, offsets[g + 1] - first);
      if (rows + of_group > kCodedRows) multiply_parts();
      parts[count++] = {static_cast<std::int64_t>(g), first, of_group};
      rows += of_group, first += of_group;
    }
  multiply_parts();
}

// A product's operands but for the weight: out (rows, N), inp (rows, K), bias (groups, N), residual (rows,
// N). The weights of two groups begin `group_rows` rows apart.
struct ProductRows {
  float* out;
  const float *inp, *bias, *residual;
  std::int64_t group_rows;
};

// The rows of one group times one tile of its weight. `coded` are these rows.
void multiply_tile(const ProductRows& p, const GroupRows& part, CodedRows coded, TileProduct tile_product,
                   QuantisedWeight weight, std::int64_t tile, std::int64_t N) {
  const std::int64_t first = tile * kTileRows, columns = std::min(kTileRows, N - first);
  const QuantisedWeight at = weight.from_row(part.group * p.group_rows + first, coded.K);
  const float* const bias = p.bias ? p.bias + part.group * N + first : nullptr;
  float products[kCodedRowsAtOnce * kTileRows];
  for (std::int64_t m = 0; m < part.count; m += kCodedRowsAtOnce) {
    const std::int64_t count = std::min(kCodedRowsAtOnce, part.count - m);
    if (columns == kTileRows)
      tile_product(products, coded.from(m), count, at);
    else
      plain_tile(products, coded.from(m), count, at, columns);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t to = (part.first + m + i) * N + first;
      store(p.out + to, products + i * kTileRows, bias, p.residual ? p.residual + to : nullptr, columns);
    }
  }
}

// Each group's rows, offsets[g] .. offsets[g + 1], times its part (N, K) of the weight. The tiles of all
// groups are one sequence, of which each thread has a part that costs as much as any other's: one wake-up of
// the threads multiplies all experts of a token.
void multiply(const ProductRows& p, QuantisedWeight weight, std::span<const std::int64_t> offsets,
              std::int64_t N, std::int64_t K) {
  const TileProduct tile_product = tile_product_of(weight.format);
  const std::int64_t tiles = (N + kTileRows - 1) / kTileRows;
  const std::int64_t row_cost = weight.format.code_bytes(kTileRows, K) / 4 / (1 + GroupRows::kReading);
  for_coded_rows(offsets, [&](std::span<const GroupRows> parts, std::int64_t rows) {
    const std::int64_t top = parts.front().first;
    const CodedRows coded = code_rows(p.inp + top * K, rows, K);
    std::int64_t cost = 0;
    for (const GroupRows& part : parts) cost += tiles * part.tile_cost();
    parallel_ranges(cost, std::max<std::int64_t>(1, row_cost), [&](std::int64_t begin, std::int64_t end) {
      std::int64_t before = 0;  // the cost of the parts before this one
      for (const GroupRows& part : parts) {
        // A tile is multiplied by the thread whose part its cost begins in.
        const std::int64_t each = part.tile_cost();
        const auto first_tile_from = [&](std::int64_t at) {
          return std::clamp<std::int64_t>((at - before + each - 1) / each, 0, tiles);
        };
        for (std::int64_t tile = first_tile_from(begin); tile < first_tile_from(end); ++tile)
          multiply_tile(p, part, coded.from(part.first - top), tile_product, weight, tile, N);
        before += tiles * each;
      }
    });
  });
}

TileRow row_of(QuantisedWeight weight, std::int64_t n, std::int64_t N, std::int64_t K) {
  const std::int64_t first = n / kTileRows * kTileRows;
  return TileRow(weight.from_row(first, K), std::min(kTileRows, N - first), n - first);
}

// Calls body(row, n) on all rows. A thread has whole tiles.
template <class Body>
void for_rows(QuantisedWeight weight, std::int64_t N, std::int64_t K, const Body& body) {
  parallel_ranges((N + kTileRows - 1) / kTileRows, kTileRows * K, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin * kTileRows; n < std::min(N, end * kTileRows); ++n)
      body(row_of(weight, n, N, K), n);
  });
}

// Columns that have the same numbers in every format.
constexpr std::int64_t kAlike = CodedRows::kHalf;

KERNELS_INLINE void widen_codes(float* values, const std::uint8_t* codes, TileRow::Numbers numbers) {
#pragma omp simd
  for (std::int64_t i = 0; i < kAlike; ++i)
    values[i] = numbers.scale * static_cast<float>(codes[i]) + numbers.minimum;
}

KERNELS_MULTIVERSION void read_row(float* values, const TileRow& row, QuantisedFormat format,
                                   std::int64_t K) {
  const bool halves = format.group == kAlike;
  TileRow::Numbers numbers{};
  std::int64_t group = 0;
  for (std::int64_t k = 0, next = 0; k < K; k += kColumns) {
    std::uint8_t codes[kColumns];
    row.read_codes(codes, k / kColumns);
    if (k == next) {
      numbers = row.numbers(group++);
      next += halves ? kColumns : format.group;
    }
    widen_codes(values + k, codes, numbers);
    widen_codes(values + k + kAlike, codes + kAlike, halves ? row.numbers(group++) : numbers);
  }
}

// What is added to a group's codes so that they have the format's minimum. None where there is no such
// number.
std::optional<int> shift_of(QuantisedFormat format, float scale, float minimum) {
  if (format.minima || (scale == 0 && minimum == 0)) return 0;
  const float zero = -minimum / scale;  // the code that stands for 0
  if (!(zero >= 0 && zero < 256) || zero != std::nearbyint(zero) || zero * scale != -minimum) return {};
  return QuantisedFormat::middle(format.bits) - static_cast<int>(zero);
}

// Which integer from `first` to `last` times the factor is the value; none where no such product is near it.
std::optional<int> integer_of(float value, float factor, int first, int last) {
  constexpr float kNear = 1e-3f;
  const float times = value == 0 ? 0.0f : value / factor, nearest = std::nearbyint(times);
  const bool fits = std::fabs(times - nearest) <= kNear && nearest >= static_cast<float>(first) &&
                    nearest <= static_cast<float>(last);
  return fits ? std::optional(static_cast<int>(nearest)) : std::nullopt;
}

// False where the format in blocks cannot have the group's numbers.
bool pack_integers(const TileRow& row, QuantisedFormat format, std::int64_t group, TileRow::Numbers numbers,
                   TileRow::Numbers factors) {
  const std::optional<int> scale = integer_of(numbers.scale, factors.scale, -128, 127);
  const std::optional<int> minimum =
      format.minima ? integer_of(-numbers.minimum, factors.minimum, 0, 255) : std::optional(0);
  row.write_integers(group, scale.value_or(0), minimum.value_or(0));
  return scale && minimum;
}

float in_half(float value) {
  return cuda::to_float(cuda::to_f16(value));
}
// A value >= 0 in fp16, rounded up. Rounded down, it would be in more than 8 bits of what it is the factor
// of.
float half_above(float value) {
  cuda::f16 number = cuda::to_f16(value);
  if (cuda::to_float(number) < value) ++number.bits;
  return cuda::to_float(number);
}

// A group's numbers by quantise()'s laws, before those with blocks are rounded.
TileRow::Numbers numbers_for(QuantisedFormat format, float low, float high) {
  const auto middle = static_cast<float>(QuantisedFormat::middle(format.bits));
  if (format.minima && format.bits < 8) {
    const float minimum = format.blocks ? std::min(low, 0.0f) : low;
    return {(high - minimum) / static_cast<float>(format.last_code()), minimum};
  }
  const float scale = format.bits == 8 ? std::max(std::fabs(low), std::fabs(high)) / (middle - 1)
                                       : std::max(-low / middle, high / (middle - 1));
  return {scale, format.minimum_of(in_half(scale))};
}

void write_numbers_for(const TileRow& row, QuantisedFormat format, const float* values, std::int64_t K) {
  const auto of_group = [&](std::int64_t group) {
    const float* const from = values + group * format.group;
    const auto [low, high] = std::minmax_element(from, from + format.group);
    return numbers_for(format, *low, *high);
  };
  if (!format.blocks) {
    for (std::int64_t g = 0; g < K / format.group; ++g) row.write_numbers(g, of_group(g));
    return;
  }
  const std::int64_t groups = format.groups_of_block();
  for (std::int64_t first = 0; first < K / format.group; first += groups) {
    float scale = 0, minimum = 0;
    for (std::int64_t g = first; g < first + groups; ++g) {
      const TileRow::Numbers numbers = of_group(g);
      scale = std::max(scale, numbers.scale);
      minimum = std::min(minimum, numbers.minimum);
    }
    const TileRow::Numbers factors{half_above(scale / 127), half_above(-minimum / 255)};
    row.write_factors(first / groups, factors);
    const auto nearest = [](float value, float factor) {
      return factor > 0 ? static_cast<int>(std::nearbyint(value / factor)) : 0;
    };
    for (std::int64_t g = first; g < first + groups; ++g) {
      const TileRow::Numbers numbers = of_group(g);
      row.write_integers(g, nearest(numbers.scale, factors.scale),
                         nearest(-numbers.minimum, factors.minimum));
    }
  }
}

}  // namespace

const char* name(IntegerProducts path) {
  switch (path) {
    case IntegerProducts::avx512_vnni:
      return "AVX-512 VNNI";
    case IntegerProducts::avx2:
      return "AVX2";
    case IntegerProducts::plain:
      break;
  }
  return "plain";
}

IntegerProducts fastest_integer_products() {
  return has_avx512_vnni() ? IntegerProducts::avx512_vnni
         : has_avx2()      ? IntegerProducts::avx2
                           : IntegerProducts::plain;
}

void use_integer_products(IntegerProducts path) {
  chosen = path;
}

bool is_kernel_format(QuantisedFormat format) {
  return std::ranges::find(kKernelFormats, kernel_format_of(format)) != std::end(kKernelFormats);
}

bool pack_quantised(QuantisedWeight weight, const GroupedCodes& from, std::int64_t N, std::int64_t K) {
  const QuantisedFormat format = weight.format;
  if (format.blocks && (from.block_scales.empty() || (format.minima && from.block_minima.empty())))
    return false;
  std::atomic<bool> fits = true;
  for_rows(weight, N, K, [&](const TileRow& row, std::int64_t n) {
    TileRow::Numbers factors{};
    std::uint8_t codes[kColumns];
    std::optional<int> shift;
    for (std::int64_t k = 0; k < K; k += kAlike) {
      if (format.blocks && k % QuantisedFormat::kBlock == 0) {
        const auto block = static_cast<std::size_t>((n * K + k) / QuantisedFormat::kBlock);
        factors = {from.block_scales[block], format.minima ? from.block_minima[block] : 0.0f};
        row.write_factors(k / QuantisedFormat::kBlock, factors);
      }
      if (k % format.group == 0) {
        const auto group = static_cast<std::size_t>((n * K + k) / format.group);
        const TileRow::Numbers numbers{from.scales[group], from.minima[group]};
        if (!format.blocks)
          row.write_numbers(k / format.group, numbers);
        else if (!pack_integers(row, format, k / format.group, numbers, factors))
          fits = false;
        shift = shift_of(format, numbers.scale, numbers.minimum);
        if (!shift) fits = false;
      }
      for (std::int64_t i = 0; i < kAlike; ++i) {
        const int code = from.codes[static_cast<std::size_t>(n * K + k + i)] + shift.value_or(0);
        if (code < 0 || code > format.last_code()) fits = false;
        codes[k % kColumns + i] = static_cast<std::uint8_t>(code);
      }
      if ((k + kAlike) % kColumns == 0) row.write_codes(codes, k / kColumns);
    }
  });
  return fits;
}

void quantise(QuantisedWeight weight, const float* values, std::int64_t N, std::int64_t K) {
  const QuantisedFormat format = weight.format;
  const auto last = static_cast<float>(format.last_code());
  for_rows(weight, N, K, [=](const TileRow& row, std::int64_t n) {
    const float* const from = values + n * K;
    write_numbers_for(row, format, from, K);
    // Codes are those of the scale and the minimum that are stored.
    std::uint8_t codes[kColumns];
    for (std::int64_t k = 0; k < K; k += kAlike) {
      const TileRow::Numbers numbers = row.numbers(k / format.group);
      for (std::int64_t i = 0; i < kAlike; ++i) {
        const float code =
            numbers.scale > 0 ? std::nearbyint((from[k + i] - numbers.minimum) / numbers.scale) : 0.0f;
        codes[k % kColumns + i] = static_cast<std::uint8_t>(std::clamp(code, 0.0f, last));
      }
      if ((k + kAlike) % kColumns == 0) row.write_codes(codes, k / kColumns);
    }
  });
}

void matmul_quantised(float* out, const float* inp, QuantisedWeight weight, const float* bias,
                      const float* residual, MatmulShape s) {
  const std::int64_t one_group[] = {0, s.M};
  multiply({out, inp, bias, residual, s.N}, weight, one_group, s.N, s.K);
}

void grouped_matmul_quantised(float* out, const float* inp, QuantisedWeight weight, const float* bias,
                              std::span<const std::int64_t> offsets, GroupedShape s,
                              std::int64_t group_rows) {
  multiply({out, inp, bias, nullptr, group_rows > 0 ? group_rows : s.N}, weight, offsets, s.N, s.K);
}

void embedding_quantised(float* out, const std::int32_t* tokens, QuantisedWeight weight,
                         const float* position_weight, const std::int32_t* positions, EmbeddingShape s) {
  embed_rows(
      out, tokens, position_weight, positions, s,
      [=](float* row, std::int64_t token) {
        read_row(row, row_of(weight, token, s.V, s.C), weight.format, s.C);
      },
      [=](float* row, const float* position) {
        for (std::int64_t c = 0; c < s.C; ++c) row[c] += position[c];
      });
}

void dequantise(float* values, QuantisedWeight weight, std::int64_t N, std::int64_t K) {
  for_rows(weight, N, K,
           [=](const TileRow& row, std::int64_t n) { read_row(values + n * K, row, weight.format, K); });
}

void dequantise_rows(float* values, QuantisedWeight weight, std::int64_t first, std::int64_t count,
                     std::int64_t N, std::int64_t K) {
  for (std::int64_t i = 0; i < count; ++i)
    read_row(values + i * K, row_of(weight, first + i, N, K), weight.format, K);
}

}  // namespace kernels::cpu
