#include "kernels/quantised_tile.h"

#include <cstring>

#include "kernels/cuda/types.h"
#include "kernels/vectorize.h"

#if defined(__x86_64__) && defined(__GNUC__)
// GCC takes the undefined operands of its own AVX-512 intrinsics for uninitialised variables (bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#define KERNELS_X86 1
#else
#define KERNELS_X86 0
#endif

namespace kernels::cpu {
namespace {

constexpr std::int64_t kColumns = QuantisedFormat::kColumns, kTileRows = QuantisedFormat::kTileRows;

float widened(const std::byte* from) {
  std::uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return cuda::to_float(cuda::f16{bits});
}

}  // namespace

void plain_tile(float* products, CodedRows activations, std::int64_t rows, QuantisedWeight tile,
                std::int64_t tile_rows) {
  const std::int64_t K = activations.K, r = tile_rows;
  const auto* const codes = reinterpret_cast<const std::uint8_t*>(tile.codes);
  const std::int64_t chunk_bytes = r * kColumns * tile.format.bits / 8;
  for (std::int64_t m = 0; m < rows; ++m) {
    const CodedRows row = activations.from(m);
    float sums[kTileRows] = {};
    for (std::int64_t chunk = 0; chunk < K / kColumns; ++chunk) {
      const std::int8_t *const high = row.high(chunk), *const low = row.low(chunk);
      const std::uint8_t* const w = codes + chunk * chunk_bytes;
      const std::byte* const scales =
          tile.numbers +
          tile.format.number_bytes(r, chunk * kColumns / tile.format.group * tile.format.group);
      for (std::int64_t n = 0; n < r; ++n) {
        std::int32_t dot = 0;
        for (std::int64_t k = 0; k < kColumns; ++k) {
          const std::int64_t quad = k / 4, within = k % 4;
          const int code = tile.format.bits == 8 ? w[(quad * r + n) * 4 + within]
                           : quad < 4            ? w[(quad * r + n) * 4 + within] & 15
                                                 : w[((quad - 4) * r + n) * 4 + within] >> 4;
          dot += code * (CodedRows::kHigh * high[k] + low[k]);
        }
        const float scale = widened(scales + 2 * n);
        const float minimum =
            tile.format.minima ? widened(scales + 2 * (r + n)) : tile.format.minimum_of(scale);
        sums[n] += scale * row.scales[chunk] * static_cast<float>(dot) + minimum * row.sums[chunk];
      }
    }
    for (std::int64_t n = 0; n < r; ++n) products[m * kTileRows + n] = sums[n];
  }
}

#if KERNELS_X86

namespace {

#define KERNELS_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,f16c,fma")))
#define KERNELS_AVX2 __attribute__((target("avx2,f16c,fma")))

inline std::int32_t four_at(const std::int8_t* a) {
  std::int32_t four;
  std::memcpy(&four, a, sizeof four);
  return four;
}
KERNELS_VNNI inline __m512i four_parts(const std::int8_t* a) {
  return _mm512_set1_epi32(four_at(a));
}

// The codes of 32 columns of a tile are kBits lines of 64 bytes: each line has 4 columns, or in 4 bits two
// times 4. They are read in the order in which they lie, two times 4 columns at a time, since the processor
// fetches a single sequence ahead.
template <int kBits>
struct Step {
  static constexpr int lines = kBits == 4 ? 1 : 2;
  // Columns of the first and of the second four.
  static constexpr int first(int step) { return kBits == 4 ? 4 * step : 8 * step; }
  static constexpr int second(int step) { return kBits == 4 ? 4 * step + 16 : 8 * step + 4; }
};

template <int kBits, bool kMinima, int kRows>
KERNELS_VNNI void vnni_rows(float* products, CodedRows activations, QuantisedWeight tile) {
  const std::int64_t K = activations.K, chunks = K / kColumns, of_group = tile.format.group / kColumns;
  const std::byte* codes = tile.codes;
  const __m512i low = _mm512_set1_epi8(15);
  __m512 sums[kRows];
  for (int m = 0; m < kRows; ++m) sums[m] = _mm512_setzero_ps();
  std::int64_t chunk = 0;
  for (std::int64_t g = 0; g < K / tile.format.group; ++g) {
    const auto* const numbers = reinterpret_cast<const __m256i*>(tile.numbers) + g * (kMinima ? 2 : 1);
    const __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256(numbers));
    const __m512 minimum = kMinima ? _mm512_cvtph_ps(_mm256_loadu_si256(numbers + 1))
                                   : _mm512_mul_ps(scale, _mm512_set1_ps(-QuantisedFormat::middle(kBits)));
    for (std::int64_t i = 0; i < of_group; ++i, ++chunk) {
      // Sums of products with the two parts; of few rows in two chains, since each waits for the one before.
      constexpr int kChains = kRows <= 2 ? 2 : 1;
      __m512i highs[kRows][kChains], lows[kRows][kChains];
      for (int m = 0; m < kRows; ++m)
        for (int chain = 0; chain < kChains; ++chain)
          highs[m][chain] = lows[m][chain] = _mm512_setzero_si512();
      for (int step = 0; step < 4; ++step) {
        __m512i here = _mm512_loadu_si512(codes + step * Step<kBits>::lines * 64), there;
        for (int line = 0; line < Step<kBits>::lines; ++line)
          ask_ahead(codes + (step * Step<kBits>::lines + line) * 64);
        if constexpr (kBits == 4) {
          there = _mm512_and_si512(_mm512_srli_epi16(here, 4), low);
          here = _mm512_and_si512(here, low);
        } else {
          there = _mm512_loadu_si512(codes + step * 128 + 64);
        }
        for (int m = 0; m < kRows; ++m) {
          const CodedRows row = activations.from(m);
          const std::int8_t *const high = row.high(chunk), *const lower = row.low(chunk);
          constexpr auto first = Step<kBits>::first, second = Step<kBits>::second;
          highs[m][0] = _mm512_dpbusd_epi32(highs[m][0], here, four_parts(high + first(step)));
          lows[m][0] = _mm512_dpbusd_epi32(lows[m][0], here, four_parts(lower + first(step)));
          __m512i &high_there = highs[m][kChains - 1], &low_there = lows[m][kChains - 1];
          high_there = _mm512_dpbusd_epi32(high_there, there, four_parts(high + second(step)));
          low_there = _mm512_dpbusd_epi32(low_there, there, four_parts(lower + second(step)));
        }
      }
      codes += kTileRows * kColumns * kBits / 8;
      for (int m = 0; m < kRows; ++m) {
        __m512i high = highs[m][0], lower = lows[m][0];
        if constexpr (kChains == 2) {
          high = _mm512_add_epi32(high, highs[m][1]);
          lower = _mm512_add_epi32(lower, lows[m][1]);
        }
        const __m512 dot =
            _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(high, CodedRows::kLowBits), lower));
        const __m512 by = _mm512_mul_ps(scale, _mm512_set1_ps(activations.scales[m * chunks + chunk]));
        sums[m] = _mm512_fmadd_ps(dot, by, sums[m]);
        sums[m] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(activations.sums[m * chunks + chunk]), sums[m]);
      }
    }
  }
  for (int m = 0; m < kRows; ++m) _mm512_storeu_ps(products + m * kTileRows, sums[m]);
}

template <int kBits, bool kMinima>
KERNELS_VNNI void vnni_tile(float* products, CodedRows activations, std::int64_t rows, QuantisedWeight tile) {
  switch (rows) {
    case 1:
      return vnni_rows<kBits, kMinima, 1>(products, activations, tile);
    case 2:
      return vnni_rows<kBits, kMinima, 2>(products, activations, tile);
    case 3:
      return vnni_rows<kBits, kMinima, 3>(products, activations, tile);
    default:
      return vnni_rows<kBits, kMinima, 4>(products, activations, tile);
  }
}

// The bytes of 4 columns become two pairs of 16-bit numbers, columns 0 and 2, and 1 and 3, and so do the
// activations' parts. Products of those and sums of 32 fit in 32 bits.
KERNELS_AVX2 inline __m256i add_products(__m256i sums, __m256i codes, const std::int8_t* high_parts,
                                         const std::int8_t* low_parts) {
  const __m256i high = _mm256_set1_epi32(four_at(high_parts)), low = _mm256_set1_epi32(four_at(low_parts));
  const __m256i even = _mm256_and_si256(codes, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(codes, 8);
  const __m256i even_a =
      _mm256_add_epi16(_mm256_slli_epi16(high, 8), _mm256_srai_epi16(_mm256_slli_epi16(low, 8), 8));
  const __m256i odd_a =
      _mm256_add_epi16(_mm256_slli_epi16(_mm256_srli_epi16(high, 8), 8), _mm256_srai_epi16(low, 8));
  return _mm256_add_epi32(sums,
                          _mm256_add_epi32(_mm256_madd_epi16(even, even_a), _mm256_madd_epi16(odd, odd_a)));
}

KERNELS_AVX2 inline __m256 eight(const std::byte* halves) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves)));
}

template <int kBits, bool kMinima>
KERNELS_AVX2 void avx2_rows(float* products, CodedRows activations, std::int64_t rows, QuantisedWeight tile) {
  const std::int64_t chunks = activations.K / kColumns, of_group = tile.format.group / kColumns;
  const __m256i low = _mm256_set1_epi8(15);
  for (std::int64_t m = 0; m < rows; ++m)
    for (int half = 0; half < 2; ++half) {  // 8 of the tile's rows
      const CodedRows row = activations.from(m);
      const std::byte* codes = tile.codes + half * 32;
      __m256 sums = _mm256_setzero_ps();
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const std::int8_t *const high = row.high(chunk), *const lower = row.low(chunk);
        const std::byte* const numbers =
            tile.numbers + chunk / of_group * kTileRows * (kMinima ? 4 : 2) + half * 16;
        __m256i dot = _mm256_setzero_si256();
        for (int step = 0; step < 4; ++step) {
          const auto* const at = reinterpret_cast<const __m256i*>(codes + step * Step<kBits>::lines * 64);
          __m256i here = _mm256_loadu_si256(at), there;
          if constexpr (kBits == 4) {
            there = _mm256_and_si256(_mm256_srli_epi16(here, 4), low);
            here = _mm256_and_si256(here, low);
          } else {
            there = _mm256_loadu_si256(at + 2);
          }
          constexpr auto first = Step<kBits>::first, second = Step<kBits>::second;
          dot = add_products(dot, here, high + first(step), lower + first(step));
          dot = add_products(dot, there, high + second(step), lower + second(step));
        }
        codes += kTileRows * kColumns * kBits / 8;
        const __m256 scale = eight(numbers);
        const __m256 minimum = kMinima
                                   ? eight(numbers + 2 * kTileRows)
                                   : _mm256_mul_ps(scale, _mm256_set1_ps(-QuantisedFormat::middle(kBits)));
        const __m256 by = _mm256_mul_ps(scale, _mm256_set1_ps(row.scales[chunk]));
        sums = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), by, sums);
        sums = _mm256_fmadd_ps(minimum, _mm256_set1_ps(row.sums[chunk]), sums);
      }
      _mm256_storeu_ps(products + m * kTileRows + half * 8, sums);
    }
}

}  // namespace

TileProduct avx2_tile(QuantisedFormat format) {
  if (format.bits == 4) return format.minima ? avx2_rows<4, true> : avx2_rows<4, false>;
  return format.minima ? avx2_rows<8, true> : avx2_rows<8, false>;
}
TileProduct avx512_vnni_tile(QuantisedFormat format) {
  if (format.bits == 4) return format.minima ? vnni_tile<4, true> : vnni_tile<4, false>;
  return format.minima ? vnni_tile<8, true> : vnni_tile<8, false>;
}
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
bool has_avx512_vnni() {
  return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw");
}

#else

TileProduct avx2_tile(QuantisedFormat) {
  return nullptr;
}
TileProduct avx512_vnni_tile(QuantisedFormat) {
  return nullptr;
}
bool has_avx2() {
  return false;
}
bool has_avx512_vnni() {
  return false;
}

#endif

}  // namespace kernels::cpu
