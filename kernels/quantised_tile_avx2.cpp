// Products with quantised weights by AVX2.
#include "kernels/quantised_tile.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#include <cstring>

#include "kernels/quantised_layout.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

#define KERNELS_AVX2 __attribute__((target("avx2,f16c,fma")))

constexpr std::int64_t kColumns = QuantisedFormat::kColumns, kTileRows = QuantisedFormat::kTileRows;
constexpr std::int64_t kLine = kTileRows * 4;    // bytes
constexpr std::int64_t kAtOnce = kTileRows / 2;  // rows of the tile in a vector

// The bytes of 4 columns become two pairs of 16-bit numbers, columns 0 and 2, and 1 and 3, and so do the
// activations' parts. Products of those and sums of 32 fit in 32 bits.
KERNELS_AVX2 KERNELS_INLINE __m256i add_products(__m256i sums, __m256i codes, const std::int8_t* high_parts,
                                                 const std::int8_t* low_parts) {
  std::int32_t high_four, low_four;
  std::memcpy(&high_four, high_parts, sizeof high_four);
  std::memcpy(&low_four, low_parts, sizeof low_four);
  const __m256i high = _mm256_set1_epi32(high_four), low = _mm256_set1_epi32(low_four);
  const __m256i even = _mm256_and_si256(codes, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(codes, 8);
  const __m256i even_a =
      _mm256_add_epi16(_mm256_slli_epi16(high, 8), _mm256_srai_epi16(_mm256_slli_epi16(low, 8), 8));
  const __m256i odd_a =
      _mm256_add_epi16(_mm256_slli_epi16(_mm256_srli_epi16(high, 8), 8), _mm256_srai_epi16(low, 8));
  return _mm256_add_epi32(sums,
                          _mm256_add_epi32(_mm256_madd_epi16(even, even_a), _mm256_madd_epi16(odd, odd_a)));
}

// A line of a plane, with the bits of one four of columns at their place in the code, and others cleared.
template <CodePlane kPlane, int kFour>
KERNELS_AVX2 KERNELS_INLINE __m256i bits_of(const std::byte* chunk) {
  constexpr int kRight = kPlane.shift(kFour) - kPlane.first;
  __m256i line = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(chunk + kPlane.line(kFour) * kLine));
  if constexpr (kRight > 0) line = _mm256_srli_epi16(line, kRight);
  if constexpr (kRight < 0) line = _mm256_slli_epi16(line, -kRight);
  if constexpr (kPlane.bits < 8) line = _mm256_and_si256(line, _mm256_set1_epi8(kPlane.mask_in_code()));
  return line;
}

template <int kBits, int kFour>
KERNELS_AVX2 KERNELS_INLINE __m256i codes_of(const std::byte* chunk) {
  constexpr CodePlane kLow = low_plane(kBits), kHigh = high_plane(kBits);
  __m256i codes = bits_of<kLow, kFour>(chunk);
  if constexpr (kHigh.bits > 0) codes = _mm256_or_si256(codes, bits_of<kHigh, kFour>(chunk));
  return codes;
}

// Sums of products of the codes of columns 0 .. 15 of a chunk, and of 16 .. 31.
template <int kBits, int... kFour>
KERNELS_AVX2 KERNELS_INLINE void dot_products(__m256i (&dots)[2], const std::byte* codes, CodedRows row,
                                              std::int64_t chunk, std::integer_sequence<int, kFour...>) {
  ((dots[column_of_four(kBits, kFour) / 16] = add_products(
        dots[column_of_four(kBits, kFour) / 16], codes_of<kBits, kFour>(codes),
        row.high(chunk) + column_of_four(kBits, kFour), row.low(chunk) + column_of_four(kBits, kFour))),
   ...);
}

// Numbers of 8 rows: of a group, or the factors of a block.
struct Numbers {
  __m256 scale, minimum;
};

KERNELS_AVX2 KERNELS_INLINE __m256 halves_at(const std::byte* at) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
KERNELS_AVX2 KERNELS_INLINE __m128i bytes_at(const std::byte* at) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
}

// Those of rows first .. first + 7.
template <QuantisedFormat kFormat>
KERNELS_AVX2 KERNELS_INLINE Numbers numbers_at(const std::byte* numbers, std::int64_t group,
                                               std::int64_t first) {
  constexpr std::int64_t kHalf = sizeof(std::uint16_t);
  const std::byte* const own = numbers + group_at(kFormat, kTileRows, group);
  Numbers out;
  if constexpr (kFormat.blocks) {
    const std::int64_t block = group * kFormat.group / QuantisedFormat::kBlock;
    const std::byte* const factors = numbers + block_at(kFormat, kTileRows, block) + first * kHalf;
    out.scale =
        _mm256_mul_ps(halves_at(factors), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes_at(own + first))));
    if constexpr (kFormat.minima)
      out.minimum =
          _mm256_mul_ps(_mm256_sub_ps(_mm256_setzero_ps(), halves_at(factors + kTileRows * kHalf)),
                        _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes_at(own + kTileRows + first))));
  } else {
    out.scale = halves_at(own + first * kHalf);
    if constexpr (kFormat.minima) out.minimum = halves_at(own + (kTileRows + first) * kHalf);
  }
  if constexpr (!kFormat.minima)
    out.minimum = _mm256_mul_ps(out.scale, _mm256_set1_ps(kFormat.minimum_of(1)));
  return out;
}

KERNELS_AVX2 KERNELS_INLINE __m256 added(__m256 sums, Numbers numbers, __m256i dot, float scale,
                                         float activations) {
  sums = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(numbers.scale, _mm256_set1_ps(scale)), sums);
  return _mm256_fmadd_ps(numbers.minimum, _mm256_set1_ps(activations), sums);
}

template <QuantisedFormat kFormat>
KERNELS_AVX2 void avx2_tile_of(float* products, CodedRows activations, std::int64_t rows,
                               QuantisedWeight tile) {
  static_assert(!kFormat.blocks || kFormat.group <= kColumns);
  const std::int64_t chunks = activations.K / kColumns;
  const std::int64_t of_group = tile.format.group / kColumns;  // chunks; 0 where a chunk has two groups
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t first = 0; first < kTileRows; first += kAtOnce) {
      const CodedRows row = activations.from(m);
      const std::byte* codes = tile.codes + first * 4;
      __m256 sums = _mm256_setzero_ps();
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        __m256i dots[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        dot_products<kFormat.bits>(dots, codes, row, chunk, std::make_integer_sequence<int, kFours>());
        codes += kFormat.bits * kLine;
        if constexpr (kFormat.group == CodedRows::kHalf) {
          for (int half = 0; half < 2; ++half)
            sums = added(sums, numbers_at<kFormat>(tile.numbers, 2 * chunk + half, first), dots[half],
                         row.scales[chunk], row.half_sums[2 * chunk + half]);
        } else {
          const std::int64_t group = kFormat.blocks ? chunk : chunk / of_group;
          sums = added(sums, numbers_at<kFormat>(tile.numbers, group, first),
                       _mm256_add_epi32(dots[0], dots[1]), row.scales[chunk], row.sums[chunk]);
        }
      }
      _mm256_storeu_ps(products + m * kTileRows + first, sums);
    }
}

struct Avx2Kernels {
  template <QuantisedFormat kFormat>
  static constexpr TileProduct of = avx2_tile_of<kFormat>;
};

}  // namespace

TileProduct avx2_tile(QuantisedFormat format) {
  return kernel_for<Avx2Kernels>(format);
}
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

}  // namespace kernels::cpu

#else

namespace kernels::cpu {

TileProduct avx2_tile(QuantisedFormat) {
  return nullptr;
}
bool has_avx2() {
  return false;
}

}  // namespace kernels::cpu

#endif
