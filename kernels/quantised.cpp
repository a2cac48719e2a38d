#include "kernels/quantised.h"

#include <algorithm>
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

void read_row(float* values, const TileRow& row, QuantisedFormat format, std::int64_t K) {
  std::uint8_t codes[kColumns];
  for (std::int64_t k = 0; k < K; k += kAlike) {
    if (k % kColumns == 0) row.read_codes(codes, k / kColumns);
    const TileRow::Numbers numbers = row.numbers(k / format.group);
    for (std::int64_t i = 0; i < kAlike; ++i)
      values[k + i] = numbers.scale * static_cast<float>(codes[k % kColumns + i]) + numbers.minimum;
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
  const std::int64_t groups = QuantisedFormat::kBlock / format.group;
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
  const TileProduct tile_product = tile_product_of(weight.format);
  const std::int64_t tiles = (s.N + kTileRows - 1) / kTileRows;
  const std::int64_t tile_bytes = weight.format.code_bytes(kTileRows, s.K);
  for (std::int64_t top = 0; top < s.M; top += kCodedRows) {
    const std::int64_t rows = std::min(kCodedRows, s.M - top);
    const CodedRows coded = code_rows(inp + top * s.K, rows, s.K);
    parallel_ranges(tiles, tile_bytes / 4 * rows, [=](std::int64_t begin, std::int64_t end) {
      float products[kCodedRowsAtOnce * kTileRows];
      for (std::int64_t tile = begin; tile < end; ++tile) {
        const std::int64_t first = tile * kTileRows, columns = std::min(kTileRows, s.N - first);
        const QuantisedWeight at = weight.from_row(first, s.K);
        for (std::int64_t m = 0; m < rows; m += kCodedRowsAtOnce) {
          const std::int64_t count = std::min(kCodedRowsAtOnce, rows - m);
          if (columns == kTileRows)
            tile_product(products, coded.from(m), count, at);
          else
            plain_tile(products, coded.from(m), count, at, columns);
          for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t to = (top + m + i) * s.N + first;
            store(out + to, products + i * kTileRows, bias ? bias + first : nullptr,
                  residual ? residual + to : nullptr, columns);
          }
        }
      }
    });
  }
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

}  // namespace kernels::cpu
