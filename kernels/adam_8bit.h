// AdamW whose moments are kept in 8 bits (Dettmers et al. 2022, arXiv 2110.02861). 256 neighbouring values
// form a block; each is a code of the paper's dynamic map, times the block's greatest magnitude.
#pragma once
#include <array>
#include <cstdint>

#include "kernels/optimizer.h"

namespace kernels {

inline constexpr std::int64_t kMomentBlock = 256;

// The values of the codes, rising from -0.993 (first moments) or 0 (second moments) to 1: 0, 1, and seven
// decades. Each decade is cut into equal parts, twice as many as the decade below it has; the values are the
// parts' middles. kMomentParts is the number of parts of the lowest decade.
template <bool is_signed>
inline constexpr int kMomentParts = is_signed ? 1 : 2;
template <bool is_signed>
inline constexpr int kMomentZero = is_signed ? 127 : 0;  // the code of 0; values below it mirror those above
template <bool is_signed>
constexpr float moment_value(int code) {
  constexpr int kDecades = 7, kZero = kMomentZero<is_signed>, kLowest = kMomentParts<is_signed>;
  if (code == kZero) return 0;
  if (code == 255) return 1;
  // A part's number in its decade, and how many the decade has.
  const int number = (code > kZero ? code - kZero : kZero - code) - 1 + kLowest;
  int parts = kLowest;
  double tens = 1;
  for (int decade = 1; decade < kDecades; ++decade)
    if (number >= 2 * parts)
      parts *= 2;
    else
      tens *= 10;
  const double value = 1 / tens * (0.1 + 0.9 * (number - parts + 0.5) / parts);
  return static_cast<float>(code > kZero ? value : -value);
}
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

// As adamw() on the moments that the codes stand for. The step uses the new moments before they are
// rounded.
void adamw_8bit(const Adam8BitTensor& tensor, const float* gradient_scale, const AdamWSettings& settings);

}  // namespace cpu
}  // namespace kernels
