#include <algorithm>
#include <cstring>

#include "kernels/avx512_tile.h"
#include "kernels/packed_tile.h"
#include "kernels/vectorize.h"

#if defined(__x86_64__) && defined(__GNUC__)
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace kernels::cpu {
namespace {

using cuda::bf16;

#define KERNELS_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))

KERNELS_BF16 inline __m512bh pairs_of(__m512i bits) {
  return reinterpret_cast<__m512bh>(bits);
}

// Pair p of row i of the first factor is at(i, p).
template <class Rows>
KERNELS_BF16 __attribute__((always_inline)) inline void tile_of(float* c, std::int64_t c_stride,
                                                                const Rows& at, const PackedWord* b,
                                                                std::int64_t pairs, bool add) {
  constexpr int kRows = kVectorRows, kVectors = kVectorColumns / 16;
  TileSums sums;
  for (auto& row : sums)
    for (__m512& sum : row) sum = _mm512_setzero_ps();
  for (std::int64_t p = 0; p < pairs; ++p) {
    __m512bh columns[kVectors];
    for (int j = 0; j < kVectors; ++j) columns[j] = pairs_of(_mm512_loadu_si512(b + 16 * j));
    b += 16 * kVectors;
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const __m512bh row = pairs_of(_mm512_set1_epi32(static_cast<int>(at(i, p))));
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sums[i][j] = _mm512_dpbf16_ps(sums[i][j], row, columns[j]);
    }
  }
  store_tile(c, c_stride, sums, add);
}

KERNELS_BF16 void tile(float* c, std::int64_t c_stride, const PackedWord* a, const PackedWord* b,
                       std::int64_t pairs, bool add) {
  const auto at = [=](int i, std::int64_t p) { return a[p * kVectorRows + i]; };
  tile_of(c, c_stride, at, b, pairs, add);
}

KERNELS_BF16 void tile_of_rows(float* c, std::int64_t c_stride, Bf16Source a, const PackedWord* b,
                               std::int64_t pairs, bool add) {
  const bf16* rows[kVectorRows];
#pragma GCC unroll 8
  for (int i = 0; i < kVectorRows; ++i) rows[i] = a.data + i * a.stride;
  const auto at = [&](int i, std::int64_t p) {
    PackedWord pair;
    std::memcpy(&pair, rows[i] + 2 * p, sizeof pair);
    return pair;
  };
  tile_of(c, c_stride, at, b, pairs, add);
}

template <int kRows>
KERNELS_BF16 void dots_of(float* products, const bf16* inp, const bf16* weight, std::int64_t count,
                          std::int64_t K) {
  for (std::int64_t n = 0; n < count; ++n) {
    const bf16* const w = weight + n * K;
    __m512 sums[kRows];
    for (int m = 0; m < kRows; ++m) sums[m] = _mm512_setzero_ps();
    constexpr std::int64_t kLanes = 32;
    for (std::int64_t k = 0; k < K; k += kLanes) {
      const __mmask32 mask = mask_of(K - k);
      const __m512bh row = pairs_of(_mm512_maskz_loadu_epi16(mask, w + k));
      ask_ahead(w + k);
      for (int m = 0; m < kRows; ++m)
        sums[m] = _mm512_dpbf16_ps(sums[m], row, pairs_of(_mm512_maskz_loadu_epi16(mask, inp + m * K + k)));
    }
    for (int m = 0; m < kRows; ++m) products[m * 4 + n] = _mm512_reduce_add_ps(sums[m]);
  }
}

KERNELS_BF16 void dots(float* products, const bf16* inp, const bf16* weight, std::int64_t rows,
                       std::int64_t count, std::int64_t K) {
  constexpr decltype(&dots_of<1>) kOf[] = {dots_of<1>, dots_of<2>, dots_of<3>, dots_of<4>,
                                           dots_of<5>, dots_of<6>, dots_of<7>, dots_of<8>};
  kOf[rows - 1](products, inp, weight, count, K);
}

KERNELS_BF16 void narrow_pairs(bf16* to, const float* from, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const auto there = static_cast<__mmask16>(mask_of(std::min(kLanes, count - i)));
    _mm256_mask_storeu_epi16(
        to + i, there, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(there, from + i))));
  }
}

struct RowsOfPairs {
  Bf16Source from;
  std::int64_t length;

  KERNELS_AVX512 __m512i at(std::int64_t row, std::int64_t pair) const {
    return _mm512_maskz_loadu_epi16(mask_of(length - 2 * pair), from.data + row * from.stride + 2 * pair);
  }
};

// to (pairs, width): row j of from (count, length) becomes column j.
template <std::int64_t width>
KERNELS_BF16 void turn(PackedWord* to, Bf16Source from, std::int64_t count, std::int64_t length,
                       std::int64_t pairs) {
  turn_words<width>(to, RowsOfPairs{from, length}, count, pairs);
}

// The pairs of elements k and k + 1 of 16 columns.
KERNELS_BF16 inline __m512i pairs_of_columns(Bf16Source from, std::int64_t k, std::int64_t length,
                                             __mmask16 there) {
  const bf16* const row = from.data + k * from.stride;
  const __m512i low =
      k < length ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, row)) : _mm512_setzero_si512();
  if (k + 1 >= length) return low;
  const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, row + from.stride));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

// to (pairs, width): column j of from (length, count) stays column j.
template <std::int64_t width>
KERNELS_BF16 void interleave(PackedWord* to, Bf16Source from, std::int64_t count, std::int64_t length,
                             std::int64_t pairs) {
  constexpr std::int64_t kLanes = std::min<std::int64_t>(16, width);
  __mmask16 there[width / kLanes];
  for (std::int64_t j = 0; j < width; j += kLanes)
    there[j / kLanes] = static_cast<__mmask16>(mask_of(std::min(kLanes, count - j)));
  for (std::int64_t p = 0; p < pairs; ++p) {
    ask_for(from.data + (2 * p + kRowsAhead) * from.stride);
    ask_for(from.data + (2 * p + 1 + kRowsAhead) * from.stride);
#pragma GCC unroll 2
    for (std::int64_t j = 0; j < width; j += kLanes)
      store_words<kLanes>(to + p * width + j,
                          pairs_of_columns({from.data + j, from.stride}, 2 * p, length, there[j / kLanes]));
  }
}

// The panels of AMX: see emulated_amx_bf16_kernels().
constexpr std::int64_t kSide = kAmxSide, kTilePairs = kSide * kAmxRows;
static_assert(kAmxRows == kAmxColumns);  // a step is equally large in both factors' panels

KERNELS_BF16 void amx_from_rows(PackedWord* to, Bf16Source from, std::int64_t count, std::int64_t length,
                                std::int64_t pairs) {
  for (std::int64_t i = 0; i < kAmxRows; ++i)
    for (std::int64_t p = 0; p < pairs; p += kSide)
      _mm512_storeu_si512(
          to + p / kSide * kTilePairs + i * kSide,
          i < count ? _mm512_maskz_loadu_epi16(mask_of(length - 2 * p), from.data + i * from.stride + 2 * p)
                    : _mm512_setzero_si512());
}

KERNELS_BF16 void amx_from_columns(PackedWord* to, Bf16Source from, std::int64_t count, std::int64_t length,
                                   std::int64_t pairs) {
  for (std::int64_t p = 0; p < pairs; p += kSide)
    for (std::int64_t i = 0; i < kAmxRows; i += kSide) {
      const auto there = static_cast<__mmask16>(mask_of(std::min(kSide, count - i)));
      __m512i r[16];
#pragma GCC unroll 16
      for (int q = 0; q < 16; ++q)
        r[q] = pairs_of_columns({from.data + i, from.stride}, 2 * (p + q), length, there);
      exchange(r);
      PackedWord* const block = to + p / kSide * kTilePairs + i * kSide;
      for (int q = 0; q < 16; ++q) _mm512_storeu_si512(block + q * kSide, r[q]);
    }
}

// Splits 16 fp32 numbers: take() returns the next part in the upper half of each lane, and keeps the rest for
// the next call.
class Split {
 public:
  KERNELS_BF16 explicit Split(__m512i numbers) : rest_(_mm512_castsi512_ps(numbers)) {}
  KERNELS_BF16 __m512i take() {
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    const __m512i part = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(rest_), half), upper);
    rest_ = _mm512_sub_ps(rest_, _mm512_castsi512_ps(part));
    return part;
  }

 private:
  __m512 rest_;
};

// Stores the parts of pairs `apart` in memory; the pairs' first and second elements are in two registers.
KERNELS_BF16 inline void store_pairs(PackedWord* to, std::int64_t apart, __m512i first, __m512i second) {
  Split firsts(first), seconds(second);
#pragma GCC unroll 3
  for (int part = 0; part < kParts<float>; ++part, to += apart)
    _mm512_storeu_si512(to, _mm512_or_si512(_mm512_srli_epi32(firsts.take(), 16), seconds.take()));
}
// The same for 32 elements in a row, whose pairs are neighbours.
KERNELS_BF16 inline void store_neighbours(PackedWord* to, std::int64_t apart, __m512i low, __m512i high) {
  alignas(64) static constexpr std::int16_t kUpperHalves[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                                23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                                45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  const __m512i upper_halves = _mm512_load_si512(kUpperHalves);
  Split lows(low), highs(high);
#pragma GCC unroll 3
  for (int part = 0; part < kParts<float>; ++part, to += apart)
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16(lows.take(), upper_halves, highs.take()));
}

// A step of a panel: 16 pairs, one part after the other.
constexpr std::int64_t kSplitStep = kParts<float> * kTilePairs;

KERNELS_BF16 void split_from_rows(PackedWord* to, Source<float> from, std::int64_t count, std::int64_t length,
                                  std::int64_t pairs) {
  for (std::int64_t i = 0; i < kAmxRows; ++i) {
    const float* const row = from.data + i * from.stride;
    for (std::int64_t p = 0; p < pairs; p += kSide) {
      const std::int64_t there = i < count ? length : 0;
      store_neighbours(to + p / kSide * kSplitStep + i * kSide, kTilePairs, elements(row, 2 * p, there),
                       elements(row, 2 * p + 16, there));
    }
  }
}

KERNELS_BF16 void split_from_columns(PackedWord* to, Source<float> from, std::int64_t count,
                                     std::int64_t length, std::int64_t pairs) {
  for (std::int64_t p = 0; p < pairs; p += kSide, to += kSplitStep)
    for (std::int64_t i = 0; i < kAmxRows; i += kSide) {
      const std::int64_t columns = std::min(kSide, count - i);
      __m512i r[2][16];
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 16
        for (int q = 0; q < 16; ++q) {
          const std::int64_t k = 2 * p + 16 * half + q;
          r[half][q] = elements(from.data + k * from.stride + i, 0, k < length ? columns : 0);
        }
        exchange(r[half]);
      }
      for (int q = 0; q < 16; ++q) store_neighbours(to + (i + q) * kSide, kTilePairs, r[0][q], r[1][q]);
    }
}

KERNELS_BF16 void split_turned(PackedWord* to, Source<float> from, std::int64_t count, std::int64_t length,
                               std::int64_t pairs) {
  for (std::int64_t p = 0; p < pairs; p += kSide, to += kSplitStep)
    for (std::int64_t j = 0; j < kAmxColumns; j += kSide)
      for (int half = 0; half < 2; ++half) {
        __m512i r[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i)
          r[i] = elements(from.data + (j + i) * from.stride, 2 * p + 16 * half, j + i < count ? length : 0);
        exchange(r);
        for (int q = 0; q < 16; q += 2)
          store_pairs(to + (8 * half + q / 2) * kAmxColumns + j, kTilePairs, r[q], r[q + 1]);
      }
}

KERNELS_BF16 void split_interleaved(PackedWord* to, Source<float> from, std::int64_t count,
                                    std::int64_t length, std::int64_t pairs) {
  for (std::int64_t p = 0; p < pairs; ++p)
    for (std::int64_t j = 0; j < kAmxColumns; j += kSide) {
      const std::int64_t columns = std::min(kSide, count - j), k = 2 * p;
      const float* const row = from.data + k * from.stride + j;
      store_pairs(to + p / kSide * kSplitStep + p % kSide * kAmxColumns + j, kTilePairs,
                  elements(row, 0, k < length ? columns : 0),
                  elements(row + from.stride, 0, k + 1 < length ? columns : 0));
    }
}

// Only Bf16Kernels' pointers call these: GCC assumes that its AMX intrinsics touch no memory. If it saw them
// inside a caller, it would move that caller's loads and stores.
#define KERNELS_AMX __attribute__((target("amx-tile,amx-bf16")))
#define KERNELS_AMX_INLINE KERNELS_AMX __attribute__((always_inline)) inline

// Two by two tiles of 16 rows of 64 bytes for sums, two tiles for either factor. Static: GCC assumes that the
// instruction reads only the first bytes, and would not write the others.
struct alignas(64) AmxConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr AmxConfig kAmxConfig;

KERNELS_AMX void begin_amx() {
  _tile_loadconfig(&kAmxConfig);
}

// Releases the tiles: else each change of threads would save their contents.
KERNELS_AMX void end_amx() {
  _tile_release();
}

// Asks the first cache for a quarter of what the next products of a tile take from a panel.
KERNELS_INLINE void ask_for_quarter(const PackedWord* step, int quarter) {
  for (int line = 0; line < 8; ++line) ask_first_cache_for(step + (8 * quarter + line) * kSide);
}

KERNELS_AMX_INLINE void begin_sums(const float* c, std::int64_t c_stride, bool add) {
  const float* const below = c + kSide * c_stride;
  const auto c_bytes = c_stride * 4;
  if (add) {
    _tile_loadd(0, c, c_bytes);
    _tile_loadd(1, c + kSide, c_bytes);
    _tile_loadd(2, below, c_bytes);
    _tile_loadd(3, below + kSide, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
}
KERNELS_AMX_INLINE void store_sums(float* c, std::int64_t c_stride) {
  float* const below = c + kSide * c_stride;
  const auto c_bytes = c_stride * 4;
  _tile_stored(0, c, c_bytes);
  _tile_stored(1, c + kSide, c_bytes);
  _tile_stored(2, below, c_bytes);
  _tile_stored(3, below + kSide, c_bytes);
}

// Registers 4 and 5 hold the first factor's upper and lower 16 rows, 6 and 7 the second's left and right
// columns. Each is loaded again as soon as its last product is under way. Panels are asked for a step ahead,
// as they come from the second cache: where another program uses the other half of a core, tiles wait for
// everything they load, and this halves the time.
constexpr auto kFirstBytes = kSide * 4, kSecondBytes = kAmxColumns * 4;
KERNELS_AMX_INLINE void load_upper(const PackedWord* a) {
  _tile_loadd(4, a, kFirstBytes);
}
KERNELS_AMX_INLINE void load_lower(const PackedWord* a) {
  _tile_loadd(5, a + kSide * kSide, kFirstBytes);
}
KERNELS_AMX_INLINE void load_left(const PackedWord* b) {
  _tile_loadd(6, b, kSecondBytes);
}
KERNELS_AMX_INLINE void load_right(const PackedWord* b) {
  _tile_loadd(7, b + kSide, kSecondBytes);
}
KERNELS_AMX_INLINE void load_all(const PackedWord* a, const PackedWord* b) {
  load_upper(a);
  load_left(b);
  load_right(b);
  load_lower(a);
}
KERNELS_AMX_INLINE void multiply_upper_left() {
  _tile_dpbf16ps(0, 4, 6);
}
KERNELS_AMX_INLINE void multiply_upper_right() {
  _tile_dpbf16ps(1, 4, 7);
}
KERNELS_AMX_INLINE void multiply_lower_left() {
  _tile_dpbf16ps(2, 5, 6);
}
KERNELS_AMX_INLINE void multiply_lower_right() {
  _tile_dpbf16ps(3, 5, 7);
}

// Four products of what the registers hold; then other rows or columns take their place. Meanwhile `coming`,
// which is multiplied a step later, is asked for.
KERNELS_AMX_INLINE void multiply_and_load_rows(const PackedWord* a, const PackedWord* coming) {
  multiply_upper_left();
  ask_for_quarter(coming, 0);
  multiply_upper_right();
  ask_for_quarter(coming, 1);
  load_upper(a);
  multiply_lower_left();
  ask_for_quarter(coming, 2);
  multiply_lower_right();
  ask_for_quarter(coming, 3);
  load_lower(a);
}
KERNELS_AMX_INLINE void multiply_and_load_columns(const PackedWord* b, const PackedWord* coming) {
  multiply_upper_left();
  ask_for_quarter(coming, 0);
  multiply_lower_left();
  ask_for_quarter(coming, 1);
  load_left(b);
  multiply_upper_right();
  ask_for_quarter(coming, 2);
  multiply_lower_right();
  ask_for_quarter(coming, 3);
  load_right(b);
}
KERNELS_AMX_INLINE void multiply_and_load_both(const PackedWord* a, const PackedWord* b,
                                               const PackedWord* coming) {
  multiply_upper_left();
  ask_for_quarter(coming, 0);
  multiply_upper_right();
  ask_for_quarter(coming, 1);
  load_upper(a);
  multiply_lower_left();
  ask_for_quarter(coming, 2);
  load_left(b);
  multiply_lower_right();
  ask_for_quarter(coming, 3);
  load_right(b);
  load_lower(a);
}
KERNELS_AMX_INLINE void multiply_last() {
  multiply_upper_left();
  multiply_upper_right();
  multiply_lower_left();
  multiply_lower_right();
}

KERNELS_AMX void amx_tile(float* c, std::int64_t c_stride, const PackedWord* a, const PackedWord* b,
                          std::int64_t pairs, bool add) {
  begin_sums(c, c_stride, add);
  load_all(a, b);
  for (std::int64_t p = kSide; p < pairs; p += kSide) {
    a += kTilePairs;
    b += kTilePairs;
    multiply_and_load_both(a, b, b + kTilePairs);
  }
  multiply_last();
  store_sums(c, c_stride);
}

KERNELS_BF16 void add_tile(float* c, std::int64_t c_stride, const float* sums) {
  for (std::int64_t i = 0; i < kAmxRows; ++i, c += c_stride, sums += kAmxColumns)
    for (std::int64_t j = 0; j < kAmxColumns; j += kSide)
      _mm512_storeu_ps(c + j, _mm512_add_ps(_mm512_loadu_ps(c + j), _mm512_load_ps(sums + j)));
}

// Parts are named high, middle and low. Middle times low and low times low would be less than the rounding of
// fp32.
KERNELS_AMX void amx_split_tile(float* c, std::int64_t c_stride, const PackedWord* a, const PackedWord* b,
                                std::int64_t pairs, bool add) {
  constexpr std::int64_t kMiddle = kTilePairs, kLow = 2 * kTilePairs;
  begin_sums(c, c_stride, false);
  load_all(a + kLow, b);
  for (std::int64_t p = kSide;; p += kSide) {
    const PackedWord *const next_a = a + kSplitStep, *const next_b = b + kSplitStep;
    multiply_and_load_rows(a + kMiddle, next_a + kLow);     // low times high
    multiply_and_load_columns(b + kMiddle, next_b);         // middle times high
    multiply_and_load_rows(a, next_a + kMiddle);            // middle times middle
    multiply_and_load_columns(b + kLow, next_b + kMiddle);  // high times middle
    multiply_and_load_columns(b, next_a);                   // high times low
    if (p >= pairs) break;
    multiply_and_load_both(next_a + kLow, next_b, next_b + kLow);  // high times high
    a = next_a;
    b = next_b;
  }
  multiply_last();  // high times high
  if (!add) return store_sums(c, c_stride);
  // Each panel has its own sums: six roundings of each element would add up over long sums.
  alignas(64) float sums[kAmxRows * kAmxColumns];
  store_sums(sums, kAmxColumns);
  add_tile(c, c_stride, sums);
}

bool has_avx512_bf16() {
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
}

// A process has to ask Linux for the tile registers (arch/x86/xstate in Linux's documentation).
bool may_use_amx() {
#ifdef __linux__
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool has_amx() {
  static const bool there = has_avx512_bf16() && may_use_amx();
  return there;
}

template <class T>
void use_amx(TileKernels<T>& kernels, decltype(amx_tile)* tile) {
  kernels.tile = tile;
  kernels.begin_tiles = begin_amx;
  kernels.end_tiles = end_amx;
}

}  // namespace

const Bf16Kernels* avx512_bf16_kernels() {
  static const Bf16Kernels kernels = [] {
    Bf16Kernels of = plain_bf16_kernels();
    of.tile = tile;
    of.tile_of_rows = tile_of_rows;
    of.for_attention = true;
    of.first = {turn<kVectorRows>, interleave<kVectorRows>};
    of.second = {turn<kVectorColumns>, interleave<kVectorColumns>};
    of.dots = dots;
    of.narrow = narrow_pairs;
    return of;
  }();
  static const bool there = has_avx512_bf16();
  return there ? &kernels : nullptr;
}

const Bf16Kernels* amx_bf16_kernels() {
  static const Bf16Kernels kernels = [] {
    Bf16Kernels of = emulated_amx_bf16_kernels();
    use_amx(of, amx_tile);
    of.first = {amx_from_rows, amx_from_columns};
    of.second = {turn<kAmxColumns>, interleave<kAmxColumns>};
    of.dots = dots;
    of.narrow = narrow_pairs;
    return of;
  }();
  return has_amx() ? &kernels : nullptr;
}

const TileKernels<float>* amx_split_kernels() {
  static const TileKernels<float> kernels = [] {
    TileKernels<float> of = emulated_amx_split_kernels();
    use_amx(of, amx_split_tile);
    of.first = {split_from_rows, split_from_columns};
    of.second = {split_turned, split_interleaved};
    return of;
  }();
  return has_amx() ? &kernels : nullptr;
}

}  // namespace kernels::cpu

#else

namespace kernels::cpu {

const Bf16Kernels* avx512_bf16_kernels() {
  return nullptr;
}
const Bf16Kernels* amx_bf16_kernels() {
  return nullptr;
}
const TileKernels<float>* amx_split_kernels() {
  return nullptr;
}

}  // namespace kernels::cpu

#endif
