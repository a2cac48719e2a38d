// AdamW whose moments are kept in 8 bits (Dettmers et al. 2022, arXiv 2110.02861): each of 256 values that
// follow each other is a code of the paper's dynamic map, times the block's greatest magnitude.
#pragma once
#include <array>
#include <cstdint>

#include "kernels/optimizer.h"

namespace kernels {

inline constexpr std::int64_t kMomentBlock = 256;

// What the codes stand for, in rising order, from -1 (of first moments) or 0 (of second) to 1: seven decades,
// each cut into twice as many equal parts as the one below it, whose middles are the values; 0 and 1.
const std::array<float, 256>& moment_map(bool is_signed);
// The code of the nearest value; halfway the lower.
std::uint8_t moment_code(float value, bool is_signed);

struct Adam8BitTensor {
  float* parameter;
  const float* gradient;
  std::uint8_t* moment1;  // codes (count)
  std::uint8_t* moment2;
  float* scale1;  // greatest magnitudes, one of each block
  float* scale2;
  std::int64_t count;
  bool decay;
};

namespace cpu {

// As adamw() on the moments that the codes stand for; the step is taken with the new moments before they are
// rounded.
void adamw_8bit(const Adam8BitTensor& tensor, const float* gradient_scale, const AdamWSettings& settings);

}  // namespace cpu
}  // namespace kernels
