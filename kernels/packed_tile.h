// The innermost parts of products in bf16 (matmul_bf16.h) and in fp32 (matmul_packed.h): tiles in registers,
// and what they read.
#pragma once
#include <cstdint>

#include "kernels/cuda/types.h"

namespace kernels::cpu {

// A tile's sums take 16 of AVX-512's 32 registers, or four of AMX's eight (16 rows of 16 each).
inline constexpr std::int64_t kVectorRows = 8, kVectorColumns = 32;
// Eight rows at a time are read from memory two to three times as fast as 32 (AMD Zen 4, 1,536 columns).
inline constexpr std::int64_t kVectorPairsAcross = 4;
inline constexpr std::int64_t kAmxSide = 16, kAmxRows = 2 * kAmxSide, kAmxColumns = 2 * kAmxSide;

// What factors are packed as: a pair of bf16 numbers that follow each other along the summed dimension, the
// first in the low half; or an fp32 number.
using PackedWord = std::uint32_t;

// A matrix in memory, whose rows or columns are packed.
template <class T>
struct Source {
  const T* data;
  std::int64_t stride;  // from row to row
};
using Bf16Source = Source<cuda::bf16>;

// How many bf16 numbers an element is packed as for AMX. An fp32 number becomes the sum of three: each is
// what the ones before leave, rounded to nearest. Together they hold all 24 bits of its significand.
template <class T>
inline constexpr int kParts = 1;
template <>
inline constexpr int kParts<float> = 3;

// One way to form products of T on this processor. Each way chooses its own layout of packed factors. A panel
// of the first factor holds a tile's rows, one of the second a tile's columns; both hold the same pairs of
// summed elements.
template <class T>
struct TileKernels {
  // A tile's rows and columns. Its pairs are a multiple of whole_pairs: zeros fill them up.
  std::int64_t rows, columns, whole_pairs;
  // For a factor whose summed elements lie in columns: how many pairs are packed at a time, across all
  // panels. Panel by panel, each row's few bytes would lie on another page.
  std::int64_t pairs_across;
  // Words that a pair is packed as: one in bf16, two in fp32, three in fp32 in parts.
  std::int64_t words;
  // The most rows and columns of a block, and how many elements are summed at a time: so many sums, and so
  // many elements of those columns, fit in the L2 cache together.
  std::int64_t most_rows, most_columns, summed;

  // Packs a panel from `count` rows of `length` elements, or from as many columns, and fills the rest with
  // zeros. Panels begin at multiples of 64 bytes.
  using Pack = void (*)(PackedWord* to, Source<T> from, std::int64_t count, std::int64_t length,
                        std::int64_t pairs);
  struct Packs {
    Pack from_rows, from_columns;
  } first, second;
  // c (rows, columns), stride c_stride, = a panel of the first times one of the second; with add, += instead.
  // Factors in parts are multiplied part by part, but for products that are less than fp32's rounding.
  void (*tile)(float* c, std::int64_t c_stride, const PackedWord* a, const PackedWord* b, std::int64_t pairs,
               bool add);
  // The same, with a tile's rows of the first factor read unpacked where they lie, 2 * pairs elements of
  // each. Null where tiles cannot read them so.
  void (*tile_of_rows)(float* c, std::int64_t c_stride, Source<T> a, const PackedWord* b, std::int64_t pairs,
                       bool add) = nullptr;
  // To be called before and after one thread's calls of tile(), where these need the thread's registers
  // prepared; null where they do not.
  void (*begin_tiles)() = nullptr;
  void (*end_tiles)() = nullptr;
  // The fewest multiplications for which packing pays. A smaller product is faster without packing.
  std::int64_t least_work = 0;
  // Whether attention by these tiles (attention_packed.h) is faster than by vectors.
  bool for_attention = true;
};

struct Bf16Kernels : TileKernels<cuda::bf16> {
  // products[m * 4 + n] = inp row m . weight row n, of `rows` <= 8 rows of K and `count` <= 4 weight rows.
  void (*dots)(float* products, const cuda::bf16* inp, const cuda::bf16* weight, std::int64_t rows,
               std::int64_t count, std::int64_t K) = nullptr;
  // To nearest, ties to even; what is below 2^-126 may become zero.
  void (*narrow)(cuda::bf16* to, const float* from, std::int64_t count) = nullptr;
};

// The kernels in use, as chosen by use_bf16_products() of matmul_bf16.h.
const Bf16Kernels& bf16_kernels();

// By fp32 multiplications, on any processor.
const Bf16Kernels& plain_bf16_kernels();
// By dot products of pairs; null where the processor has no AVX-512 BF16.
const Bf16Kernels* avx512_bf16_kernels();
// By AMX's tiles, which do 16 times the arithmetic per cycle; null where the processor has no AMX, or where
// the system does not let this process use it.
const Bf16Kernels* amx_bf16_kernels();
// The same steps without the instructions, for tests of how blocks are cut and packed for them.
const Bf16Kernels& emulated_amx_bf16_kernels();

// Products of fp32 by vectors: by any processor's, and by AVX-512's; null where there are none.
const TileKernels<float>& plain_fp32_kernels();
const TileKernels<float>* avx512_fp32_kernels();
// By tiles of AMX, in parts: matmul_packed.h. Null, and emulated, as above.
const TileKernels<float>* amx_split_kernels();
const TileKernels<float>& emulated_amx_split_kernels();

}  // namespace kernels::cpu
