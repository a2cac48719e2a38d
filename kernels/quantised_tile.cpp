#include "kernels/quantised_tile.h"

#include "kernels/quantised_layout.h"

namespace kernels::cpu {
namespace {

constexpr std::int64_t kColumns = QuantisedFormat::kColumns, kTileRows = QuantisedFormat::kTileRows;

}  // namespace

void plain_tile(float* products, CodedRows activations, std::int64_t rows, QuantisedWeight tile,
                std::int64_t tile_rows) {
  constexpr std::int64_t kHalf = CodedRows::kHalf;
  const bool halves = tile.format.group == kHalf;
  float sums[kCodedRowsAtOnce][kTileRows] = {};
  for (std::int64_t chunk = 0; chunk < activations.K / kColumns; ++chunk) {
    std::int32_t factors[kCodedRowsAtOnce][kColumns];
    for (std::int64_t m = 0; m < rows; ++m) {
      const CodedRows row = activations.from(m);
      const std::int8_t *const high = row.high(chunk), *const low = row.low(chunk);
      for (std::int64_t k = 0; k < kColumns; ++k) factors[m][k] = CodedRows::kHigh * high[k] + low[k];
    }
    for (std::int64_t n = 0; n < tile_rows; ++n) {
      const TileRow weights(tile, tile_rows, n);
      std::uint8_t codes[kColumns];
      weights.read_codes(codes, chunk);
      const TileRow::Numbers first = weights.numbers(chunk * kColumns / tile.format.group);
      const TileRow::Numbers second = halves ? weights.numbers(2 * chunk + 1) : first;
      for (std::int64_t m = 0; m < rows; ++m) {
        const CodedRows row = activations.from(m);
        std::int32_t dots[2] = {};
        for (std::int64_t k = 0; k < kHalf; ++k) {
          dots[0] += codes[k] * factors[m][k];
          dots[1] += codes[kHalf + k] * factors[m][kHalf + k];
        }
        float& sum = sums[m][n];
        const float by = row.scales[chunk];
        if (halves) {
          sum += first.scale * by * static_cast<float>(dots[0]) + first.minimum * row.half_sums[2 * chunk];
          sum +=
              second.scale * by * static_cast<float>(dots[1]) + second.minimum * row.half_sums[2 * chunk + 1];
        } else {
          sum += first.scale * by * static_cast<float>(dots[0] + dots[1]) + first.minimum * row.sums[chunk];
        }
      }
    }
  }
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t n = 0; n < tile_rows; ++n) products[m * kTileRows + n] = sums[m][n];
}

}  // namespace kernels::cpu
