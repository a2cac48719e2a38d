#include "kernels/quantised.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "kernels/cuda/types.h"
#include "kernels/parallel.h"
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
                                 const float* from) {
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
  std::int32_t total = 0;
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the significand.
  constexpr float kRound = 12582912.0f;
#pragma omp simd reduction(+ : total)
  for (std::int64_t k = 0; k < kColumns; ++k) {
    const float scaled = from[k] * by;
    const auto code = static_cast<std::int32_t>((scaled == scaled ? scaled : 0.0f) + kRound - kRound);
    const std::int32_t upper = (code + CodedRows::kHigh / 2) >> CodedRows::kLowBits;
    high[k] = static_cast<std::int8_t>(upper);
    low[k] = static_cast<std::int8_t>(code - CodedRows::kHigh * upper);
    total += code;
  }
  sum = scale * static_cast<float>(total);
}

KERNELS_MULTIVERSION void code_range(std::int8_t* parts, float* scales, float* sums, const float* from,
                                     std::int64_t begin, std::int64_t end) {
  for (std::int64_t chunk = begin; chunk < end; ++chunk) {
    std::int8_t* const high = parts + chunk * 2 * kColumns;
    code_columns(high, high + kColumns, scales[chunk], sums[chunk], from + chunk * kColumns);
  }
}

CodedRows code_rows(const float* from, std::int64_t rows, std::int64_t K) {
  static thread_local std::vector<std::int8_t> parts;
  static thread_local std::vector<float> scales, sums;
  const std::int64_t chunks = rows * K / kColumns;
  parts.resize(static_cast<std::size_t>(rows * 2 * K));
  scales.resize(static_cast<std::size_t>(chunks));
  sums.resize(static_cast<std::size_t>(chunks));
  std::int8_t* const both = parts.data();
  float *const scale = scales.data(), *const sum = sums.data();
  parallel_ranges(chunks, kColumns, [=](std::int64_t begin, std::int64_t end) {
    code_range(both, scale, sum, from, begin, end);
  });
  return {both, scale, sum, K};
}

void store(float* out, const float* products, const float* bias, const float* residual, std::int64_t count) {
  for (std::int64_t n = 0; n < count; ++n)
    out[n] = products[n] + (bias ? bias[n] : 0.0f) + (residual ? residual[n] : 0.0f);
}

std::uint16_t half(float value) {
  return cuda::to_f16(value).bits;
}
float widened(std::uint16_t bits) {
  return cuda::to_float(cuda::f16{bits});
}

// Where a row's numbers and codes lie.
struct RowPlace {
  QuantisedWeight tile;
  std::int64_t rows, lane;  // of the tile; the row's place among them
  std::int64_t K;

  RowPlace(QuantisedWeight weight, std::int64_t n, std::int64_t N, std::int64_t columns)
      : tile(weight.from_row(n / kTileRows * kTileRows, columns)),
        rows(std::min(kTileRows, N - n / kTileRows * kTileRows)),
        lane(n % kTileRows),
        K(columns) {}

  float scale(std::int64_t group) const { return read_number(group, 0); }
  float minimum(std::int64_t group) const {
    return tile.format.minima ? read_number(group, 1) : tile.format.minimum_of(scale(group));
  }
  void write_scale(std::int64_t group, float value) const { write_number(group, 0, value); }
  void write_minimum(std::int64_t group, float value) const {
    if (tile.format.minima) write_number(group, 1, value);
  }
  // The byte with column k's code, and how many bits the code is shifted in it.
  std::byte& byte(std::int64_t k, int& shift) const {
    const std::int64_t chunk = k / kColumns, within = k % kColumns;
    const bool high = tile.format.bits == 4 && within >= 16;
    shift = high ? 4 : 0;
    const std::int64_t quad = (high ? within - 16 : within) / 4;
    return tile.codes[tile.format.code_bytes(rows, chunk * kColumns) + (quad * rows + lane) * 4 + within % 4];
  }
  int read_code(std::int64_t k) const {
    int shift = 0;
    const int bits = static_cast<int>(byte(k, shift));
    return (bits >> shift) & ((1 << tile.format.bits) - 1);
  }
  void write_code(std::int64_t k, int code) const {
    int shift = 0;
    std::byte& at = byte(k, shift);
    const int mask = ((1 << tile.format.bits) - 1) << shift;
    at = static_cast<std::byte>((static_cast<int>(at) & ~mask) | (code << shift));
  }

 private:
  std::byte* number(std::int64_t group, int which) const {
    return tile.numbers + ((tile.format.numbers_of_group() * group + which) * rows + lane) *
                              static_cast<std::int64_t>(sizeof(std::uint16_t));
  }
  float read_number(std::int64_t group, int which) const {
    std::uint16_t bits;
    std::memcpy(&bits, number(group, which), sizeof bits);
    return widened(bits);
  }
  void write_number(std::int64_t group, int which, float value) const {
    const std::uint16_t bits = half(value);
    std::memcpy(number(group, which), &bits, sizeof bits);
  }
};

void read_row(float* values, const RowPlace& row) {
  for (std::int64_t k = 0; k < row.K; ++k) {
    const std::int64_t g = k / row.tile.format.group;
    values[k] = row.scale(g) * static_cast<float>(row.read_code(k)) + row.minimum(g);
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

bool pack_quantised(QuantisedWeight weight, const GroupedCodes& from, std::int64_t N, std::int64_t K) {
  const QuantisedFormat format = weight.format;
  const std::int64_t groups = K / format.group;
  std::atomic<bool> fits = true;
  parallel_ranges((N + kTileRows - 1) / kTileRows, kTileRows * K, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin * kTileRows; n < std::min(N, end * kTileRows); ++n) {
      const RowPlace row(weight, n, N, K);
      for (std::int64_t g = 0; g < groups; ++g) {
        const auto at = static_cast<std::size_t>(n * groups + g);
        row.write_scale(g, from.scales[at]);
        row.write_minimum(g, from.minima[at]);
        const std::optional<int> shift = shift_of(format, from.scales[at], from.minima[at]);
        if (!shift) fits = false;
        for (std::int64_t k = g * format.group; k < (g + 1) * format.group; ++k) {
          const int code = from.codes[static_cast<std::size_t>(n * K + k)] + shift.value_or(0);
          if (code < 0 || code >> format.bits) fits = false;
          row.write_code(k, code & ((1 << format.bits) - 1));
        }
      }
    }
  });
  return fits;
}

void quantise(QuantisedWeight weight, const float* values, std::int64_t N, std::int64_t K) {
  const QuantisedFormat format = weight.format;
  const float last = static_cast<float>((1 << format.bits) - 1);
  const float middle = static_cast<float>(QuantisedFormat::middle(format.bits));
  parallel_ranges((N + kTileRows - 1) / kTileRows, kTileRows * K, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin * kTileRows; n < std::min(N, end * kTileRows); ++n) {
      const RowPlace row(weight, n, N, K);
      for (std::int64_t g = 0; g < K / format.group; ++g) {
        const float* const from = values + n * K + g * format.group;
        const auto [low, high] = std::minmax_element(from, from + format.group);
        const bool from_minimum = format.bits == 4 && format.minima;
        row.write_scale(g, from_minimum       ? (*high - *low) / last
                           : format.bits == 4 ? std::max(-*low / middle, *high / (middle - 1))
                                              : std::max(std::fabs(*low), std::fabs(*high)) / (middle - 1));
        // Codes are those of the scale and the minimum that are stored.
        const float scale = row.scale(g);
        row.write_minimum(g, from_minimum ? *low : format.minimum_of(scale));
        const float minimum = row.minimum(g);
        for (std::int64_t k = 0; k < format.group; ++k) {
          const float code = scale > 0 ? std::nearbyint((from[k] - minimum) / scale) : 0.0f;
          row.write_code(g * format.group + k, static_cast<int>(std::clamp(code, 0.0f, last)));
        }
      }
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
  const bool adds_positions = position_weight && s.first == 0;
  parallel_ranges(s.B * s.T, s.C, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      float* const row = out + r * s.C;
      const std::int64_t token = tokens[r] - s.first;
      if (token < 0 || token >= s.V)
        std::fill_n(row, s.C, 0.0f);
      else
        read_row(row, RowPlace(weight, token, s.V, s.C));
      if (!adds_positions) continue;
      const std::int64_t position = (positions ? positions[r / s.T] : 0) + r % s.T;
      for (std::int64_t c = 0; c < s.C; ++c) row[c] += position_weight[position * s.C + c];
    }
  });
}

void dequantise(float* values, QuantisedWeight weight, std::int64_t N, std::int64_t K) {
  parallel_ranges(N, K, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) read_row(values + n * K, RowPlace(weight, n, N, K));
  });
}

}  // namespace kernels::cpu
