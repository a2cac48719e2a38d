// The innermost part of products with quantised weights (quantised.h): one tile of weight rows.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "kernels/quantised.h"

namespace kernels::cpu {

// Activations of some rows, in 16 bits: scale * (256 * high + low), with high and low in 8 bits, signed.
// parts (rows, K / 32, 2, 32): the high parts of 32 columns, then their low ones. scales (rows, K / 32). sums
// (rows, K / 32) and half_sums (rows, K / 16): the scale times the sum of the codes, of 32 columns and of 16.
struct CodedRows {
  const std::int8_t* parts;
  const float *scales, *sums, *half_sums;
  std::int64_t K;

  static constexpr int kLowBits = 8;
  static constexpr std::int32_t kHigh = 1 << kLowBits;  // what one in a high part counts
  static constexpr std::int64_t kHalf = 16;             // columns

  CodedRows from(std::int64_t row) const {
    const std::int64_t chunks = K / QuantisedFormat::kColumns;
    return {parts + row * 2 * K, scales + row * chunks, sums + row * chunks, half_sums + row * (K / kHalf),
            K};
  }
  const std::int8_t* high(std::int64_t chunk) const { return parts + chunk * 2 * QuantisedFormat::kColumns; }
  const std::int8_t* low(std::int64_t chunk) const { return high(chunk) + QuantisedFormat::kColumns; }
};

// Rows that one call multiplies by the tile at most.
inline constexpr std::int64_t kCodedRowsAtOnce = 4;

// products (rows, 16) = rows of activations times the tile's rows^T. rows <= kCodedRowsAtOnce. A tile has 16
// rows, but for plain_tile.
using TileProduct = void (*)(float* products, CodedRows activations, std::int64_t rows, QuantisedWeight tile);

void plain_tile(float* products, CodedRows activations, std::int64_t rows, QuantisedWeight tile,
                std::int64_t tile_rows);

// Null where this program was built for another architecture, or the format is none of kKernelFormats.
TileProduct avx2_tile(QuantisedFormat format);
TileProduct avx512_vnni_tile(QuantisedFormat format);
bool has_avx2();
bool has_avx512_vnni();

// The format of kKernelFormats whose kernel multiplies `format`: without blocks it goes by any group.
constexpr QuantisedFormat kernel_format_of(QuantisedFormat format) {
  if (!format.blocks && format.group % QuantisedFormat::kColumns == 0) format.group = kKernelFormats[0].group;
  return format;
}

// Kernels::of<format of kKernelFormats>, or null.
template <class Kernels>
TileProduct kernel_for(QuantisedFormat format) {
  TileProduct found = nullptr;
  const auto look = [&]<std::size_t... kAt>(std::index_sequence<kAt...>) {
    ((kernel_format_of(format) == kKernelFormats[kAt]
          ? void(found = Kernels::template of<kKernelFormats[kAt]>)
          : void()),
     ...);
  };
  look(std::make_index_sequence<std::size(kKernelFormats)>());
  return found;
}

}  // namespace kernels::cpu
