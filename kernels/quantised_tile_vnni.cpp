// Products with quantised weights by AVX-512 VNNI.
#include "kernels/quantised_tile.h"

#if defined(__x86_64__) && defined(__GNUC__)

// GCC takes the undefined operands of its own AVX-512 intrinsics for uninitialised variables (bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <cstring>

#include "kernels/quantised_layout.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

#define KERNELS_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,f16c,fma")))

constexpr std::int64_t kColumns = QuantisedFormat::kColumns, kTileRows = QuantisedFormat::kTileRows;
constexpr std::int64_t kLine = kTileRows * 4;  // bytes

KERNELS_VNNI KERNELS_INLINE __m512i four_parts(const std::int8_t* a) {
  std::int32_t four;
  std::memcpy(&four, a, sizeof four);
  return _mm512_set1_epi32(four);
}

// The lines that hold a four of columns.
struct Lines {
  __m512i low, high;
};

// Loads are what the kernels have most of: the compiler would repeat this one where the line is used.
KERNELS_VNNI KERNELS_INLINE __m512i loaded_once(const std::byte* from) {
  __m512i line = _mm512_loadu_si512(from);
  asm("" : "+v"(line));
  return line;
}

// A line of a plane, with the bits of one four of columns at their place in the code.
template <CodePlane kPlane, int kFour>
KERNELS_VNNI KERNELS_INLINE __m512i shifted(__m512i line) {
  constexpr int kRight = kPlane.shift(kFour) - kPlane.first;
  if constexpr (kRight > 0) line = _mm512_srli_epi16(line, kRight);
  if constexpr (kRight < 0) line = _mm512_slli_epi16(line, -kRight);
  return line;
}

// Codes of one four of columns. `lines` are those of the four before, and a line that this one begins is
// loaded.
template <int kBits, int kFour>
KERNELS_VNNI KERNELS_INLINE __m512i codes_of(Lines& lines, const std::byte* chunk) {
  constexpr CodePlane kLow = low_plane(kBits), kHigh = high_plane(kBits);
  if constexpr (kLow.shift(kFour) == 0) lines.low = loaded_once(chunk + kLow.line(kFour) * kLine);
  __m512i codes = shifted<kLow, kFour>(lines.low);
  if constexpr (kLow.bits < 8) codes = _mm512_and_si512(codes, _mm512_set1_epi8(kLow.mask_in_code()));
  if constexpr (kHigh.bits > 0) {
    if constexpr (kHigh.shift(kFour) == 0) lines.high = loaded_once(chunk + kHigh.line(kFour) * kLine);
    constexpr int kFirstOrBothOthers = 0xf8;
    const __m512i above = shifted<kHigh, kFour>(lines.high), mask = _mm512_set1_epi8(kHigh.mask_in_code());
    codes = _mm512_ternarylogic_epi64(codes, above, mask, kFirstOrBothOthers);
  }
  return codes;
}

// Sums of products of codes with the two parts of activations. Fours of columns take turns in the chains.
template <int kRows, int kChains>
struct Dots {
  __m512i high[kRows][kChains], low[kRows][kChains];
};

template <int kBits, int kFour, int kRows, int kChains>
KERNELS_VNNI KERNELS_INLINE void add_four(Dots<kRows, kChains>& dots, Lines& lines, const std::byte* codes,
                                          CodedRows activations, std::int64_t chunk) {
  constexpr int kColumn = column_of_four(kBits, kFour), kChain = kFour % kChains;
  constexpr CodePlane kAll{kBits, 0};
  const __m512i own = codes_of<kBits, kFour>(lines, codes);
  if constexpr (kAll.shift(kFour) < kBits) ask_ahead(codes + kAll.line(kFour) * kLine);  // each line once
  for (int m = 0; m < kRows; ++m) {
    const CodedRows row = activations.from(m);
    __m512i &high = dots.high[m][kChain], &low = dots.low[m][kChain];
    high = _mm512_dpbusd_epi32(high, own, four_parts(row.high(chunk) + kColumn));
    low = _mm512_dpbusd_epi32(low, own, four_parts(row.low(chunk) + kColumn));
  }
}

template <int kBits, int kRows, int kChains, int... kFour>
KERNELS_VNNI KERNELS_INLINE void add_chunk(Dots<kRows, kChains>& dots, const std::byte* codes,
                                           CodedRows activations, std::int64_t chunk,
                                           std::integer_sequence<int, kFour...>) {
  Lines lines;
  (add_four<kBits, kFour>(dots, lines, codes, activations, chunk), ...);
}

KERNELS_VNNI KERNELS_INLINE __m512 together(__m512i high, __m512i low) {
  return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(high, CodedRows::kLowBits), low));
}

// Numbers of the tile's rows: of a group, or the factors of a block.
struct Numbers {
  __m512 scale, minimum;
};

template <QuantisedFormat kFormat>
KERNELS_VNNI KERNELS_INLINE Numbers halves_at(const std::byte* numbers) {
  const auto* const at = reinterpret_cast<const __m256i*>(numbers);
  const __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256(at));
  if constexpr (kFormat.minima)
    return {scale, _mm512_cvtph_ps(_mm256_loadu_si256(at + 1))};
  else
    return {scale, _mm512_mul_ps(scale, _mm512_set1_ps(kFormat.minimum_of(1)))};
}

template <QuantisedFormat kFormat>
KERNELS_VNNI KERNELS_INLINE Numbers times_integers(Numbers factors, const std::byte* integers) {
  const auto* const at = reinterpret_cast<const __m128i*>(integers);
  const __m512 signed_ones = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at)));
  const __m512 scale = _mm512_mul_ps(factors.scale, signed_ones);
  if constexpr (kFormat.minima) {
    const __m512 unsigned_ones = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(at + 1)));
    return {scale, _mm512_mul_ps(_mm512_sub_ps(_mm512_setzero_ps(), factors.minimum), unsigned_ones)};
  } else {
    return {scale, _mm512_mul_ps(factors.minimum, signed_ones)};
  }
}

KERNELS_VNNI KERNELS_INLINE __m512 added(__m512 sum, Numbers numbers, __m512 dot, float scale,
                                         float activations) {
  sum = _mm512_fmadd_ps(dot, _mm512_mul_ps(numbers.scale, _mm512_set1_ps(scale)), sum);
  return _mm512_fmadd_ps(numbers.minimum, _mm512_set1_ps(activations), sum);
}

template <QuantisedFormat kFormat, int kRows>
KERNELS_VNNI void vnni_rows(float* products, CodedRows activations, QuantisedWeight tile) {
  constexpr bool kHalves = kFormat.group == CodedRows::kHalf;
  // Products of few rows have two chains, since each waits for the one before.
  constexpr int kChains = kHalves || kRows <= 2 ? 2 : 1;
  static_assert(!kFormat.blocks || kFormat.group <= kColumns);
  const std::int64_t chunks = activations.K / kColumns;
  const std::int64_t with_same = (kFormat.blocks ? QuantisedFormat::kBlock : tile.format.group) / kColumns;
  const std::byte* codes = tile.codes;
  __m512 sums[kRows];
  for (int m = 0; m < kRows; ++m) sums[m] = _mm512_setzero_ps();
  std::int64_t chunk = 0;
  for (std::int64_t i = 0; chunk < chunks; ++i) {
    const Numbers outer = halves_at<kFormat>(
        tile.numbers + (kFormat.blocks ? block_at(kFormat, kTileRows, i) : group_at(kFormat, kTileRows, i)));
    for (const std::int64_t end = chunk + with_same; chunk < end; ++chunk) {
      Dots<kRows, kChains> dots;
      for (int m = 0; m < kRows; ++m)
        for (int chain = 0; chain < kChains; ++chain)
          dots.high[m][chain] = dots.low[m][chain] = _mm512_setzero_si512();
      add_chunk<kFormat.bits>(dots, codes, activations, chunk, std::make_integer_sequence<int, kFours>());
      codes += kFormat.bits * kLine;
      if constexpr (kHalves) {
        for (int half = 0; half < 2; ++half) {
          const Numbers numbers =
              times_integers<kFormat>(outer, tile.numbers + group_at(kFormat, kTileRows, 2 * chunk + half));
          for (int m = 0; m < kRows; ++m) {
            const CodedRows row = activations.from(m);
            sums[m] = added(sums[m], numbers, together(dots.high[m][half], dots.low[m][half]),
                            row.scales[chunk], row.half_sums[2 * chunk + half]);
          }
        }
      } else {
        Numbers numbers = outer;
        if constexpr (kFormat.blocks)
          numbers = times_integers<kFormat>(outer, tile.numbers + group_at(kFormat, kTileRows, chunk));
        for (int m = 0; m < kRows; ++m) {
          __m512i high = dots.high[m][0], low = dots.low[m][0];
          if constexpr (kChains == 2) {
            high = _mm512_add_epi32(high, dots.high[m][1]);
            low = _mm512_add_epi32(low, dots.low[m][1]);
          }
          const CodedRows row = activations.from(m);
          sums[m] = added(sums[m], numbers, together(high, low), row.scales[chunk], row.sums[chunk]);
        }
      }
    }
  }
  for (int m = 0; m < kRows; ++m) _mm512_storeu_ps(products + m * kTileRows, sums[m]);
}

template <QuantisedFormat kFormat>
KERNELS_VNNI void vnni_tile(float* products, CodedRows activations, std::int64_t rows, QuantisedWeight tile) {
  switch (rows) {
    case 1:
      return vnni_rows<kFormat, 1>(products, activations, tile);
    case 2:
      return vnni_rows<kFormat, 2>(products, activations, tile);
    case 3:
      return vnni_rows<kFormat, 3>(products, activations, tile);
    default:
      return vnni_rows<kFormat, 4>(products, activations, tile);
  }
}

struct VnniKernels {
  template <QuantisedFormat kFormat>
  static constexpr TileProduct of = vnni_tile<kFormat>;
};

}  // namespace

TileProduct avx512_vnni_tile(QuantisedFormat format) {
  return kernel_for<VnniKernels>(format);
}
bool has_avx512_vnni() {
  return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw");
}

}  // namespace kernels::cpu

#else

namespace kernels::cpu {

TileProduct avx512_vnni_tile(QuantisedFormat) {
  return nullptr;
}
bool has_avx512_vnni() {
  return false;
}

}  // namespace kernels::cpu

#endif
