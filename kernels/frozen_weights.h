// Weights that do not learn: stored in 8 or 4 bits, and expanded to the type of a product for as long as the
// product takes. Adapters learn beside them (QLoRA: Dettmers et al. 2023, arXiv 2305.14314).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/types.h"

namespace kernels {

// The values of NormalFloat in 4 bits (there, appendix E): quantiles of a normal distribution, scaled to end
// at -1 and 1, with an exact zero.
inline constexpr std::array<float, 16> kNormalFloat = {-1.0f,
                                                       -0.6961928009986877f,
                                                       -0.5250730514526367f,
                                                       -0.39491748809814453f,
                                                       -0.28444138169288635f,
                                                       -0.18477343022823334f,
                                                       -0.09105003625154495f,
                                                       0.0f,
                                                       0.07958029955625534f,
                                                       0.16093020141124725f,
                                                       0.24611230194568634f,
                                                       0.33791524171829224f,
                                                       0.44070982933044434f,
                                                       0.5626170039176941f,
                                                       0.7229568362236023f,
                                                       1.0f};

enum class FrozenFormat {
  int8,        // code / 127 times the largest magnitude of the row (Dettmers et al. 2022, arXiv 2208.07339)
  nf4,         // of kNormalFloat, times the largest magnitude of the block
  nf4_double,  // the same with these magnitudes in 8 bits, after their mean was subtracted (QLoRA, section 3)
};

// A weight of `count` values, row-major, of which `group` consecutive ones share a scale: a row in int8,
// kBlock values in the others. The last block may have fewer.
struct FrozenWeight {
  static constexpr std::int64_t kBlock = 64, kScaleBlock = 256;

  FrozenFormat format{};
  std::int64_t count = 0, group = kBlock;
  // int8: signed, (count). Others: (count + 1) / 2 bytes. Byte i of a block of n values has the code of value
  // i in its lower four bits and that of value i + (n + 1) / 2 in its upper ones.
  std::byte* codes = nullptr;
  // (groups()), in fp32. nf4_double: bytes, each a code of adam_8bit.h's signed map, as bitsandbytes has it.
  std::byte* scales = nullptr;
  // nf4_double: what the map's values are multiplied by, one number for kScaleBlock scales; behind these the
  // mean that is added. (scale_blocks() + 1)
  float* scales_of_scales = nullptr;

  constexpr std::int64_t groups() const { return (count + group - 1) / group; }
  constexpr std::int64_t scale_blocks() const { return (groups() + kScaleBlock - 1) / kScaleBlock; }
};

namespace cpu {

// Sets the scales by values (count). A group with a value that is not finite stands for NaN.
void find_frozen_scales(const FrozenWeight& weight, const float* values);
// Sets the codes, each to the one that is nearest with the scale that is stored; halfway the lower in nf4,
// the even one in int8. (bitsandbytes rounds nf4_double's codes by scales that are not yet rounded.)
void code_frozen(const FrozenWeight& weight, const float* values);

// out (count): what the weight stands for. In fp32 the largest magnitude of a row or block of int8 and nf4
// comes back as it was, so that values that come from such a weight are stored without a further change. bf16
// is the rounding of fp32.
void expand_frozen(float* out, const FrozenWeight& weight);
void expand_frozen(cuda::bf16* out, const FrozenWeight& weight);

}  // namespace cpu
}  // namespace kernels
