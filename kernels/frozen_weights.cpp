#include "kernels/frozen_weights.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "kernels/adam_8bit.h"
#include "kernels/bf16_values.h"
#include "kernels/float_vector.h"
#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

constexpr std::int64_t kBlock = FrozenWeight::kBlock, kHalf = kBlock / 2;
constexpr std::int64_t kScaleBlock = FrozenWeight::kScaleBlock;

// 127 times this is 1 in fp32.
constexpr float kLargestCode = 127, kCodeStep = 1 / kLargestCode;
static_assert(kLargestCode * kCodeStep == 1);

const float* fp32_scales(const FrozenWeight& weight) {
  return reinterpret_cast<const float*>(weight.scales);
}

// Writes the scales of `count` groups from `first` on, of one scale block.
void decode_scales(float* scales, const FrozenWeight& weight, std::int64_t first, std::int64_t count) {
  const auto* const codes = reinterpret_cast<const std::uint8_t*>(weight.scales) + first;
  const std::array<float, 256>& map = moment_map(true);
  const float factor = weight.scales_of_scales[first / kScaleBlock];
  const float mean = weight.scales_of_scales[weight.scale_blocks()];
  for (std::int64_t i = 0; i < count; ++i) scales[i] = map[codes[i]] * factor + mean;
}

// Calls body(scales, first, count) on runs of groups, with their scales in fp32. A run of doubly quantised
// scales is within one scale block.
template <class Body>
void for_groups(const FrozenWeight& weight, const Body& body) {
  parallel_ranges(weight.groups(), weight.group, [&](std::int64_t begin, std::int64_t end) {
    if (weight.format != FrozenFormat::nf4_double)
      return body(fp32_scales(weight) + begin, begin, end - begin);
    float scales[kScaleBlock];
    while (begin < end) {
      const std::int64_t next = std::min(end, (begin / kScaleBlock + 1) * kScaleBlock);
      decode_scales(scales, weight, begin, next - begin);
      body(scales, begin, next - begin);
      begin = next;
    }
  });
}

KERNELS_MULTIVERSION float largest_magnitude(const float* values, std::int64_t count) {
  float largest = 0, nothing = 0;
#pragma omp simd reduction(max : largest) reduction(+ : nothing)
  for (std::int64_t i = 0; i < count; ++i) {
    const float magnitude = std::fabs(values[i]);
    largest = magnitude > largest ? magnitude : largest;
    nothing += 0.0f * values[i];  // NaN where a value is not finite
  }
  return largest + nothing;
}

void quantise_scales(const FrozenWeight& weight, const std::vector<float>& scales) {
  double sum = 0;
  for (const float scale : scales) sum += scale;
  const auto mean = static_cast<float>(sum / static_cast<double>(scales.size()));
  weight.scales_of_scales[weight.scale_blocks()] = mean;
  auto* const codes = reinterpret_cast<std::uint8_t*>(weight.scales);
  parallel_ranges(weight.scale_blocks(), kScaleBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * kScaleBlock;
      const std::int64_t last = std::min(first + kScaleBlock, weight.groups());
      float largest = 0;
      for (std::int64_t i = first; i < last; ++i)
        largest = std::max(largest, std::fabs(scales[static_cast<std::size_t>(i)] - mean));
      weight.scales_of_scales[block] = largest;
      for (std::int64_t i = first; i < last; ++i)
        codes[i] =
            moment_code(largest > 0 ? (scales[static_cast<std::size_t>(i)] - mean) / largest : 0, true);
    }
  });
}

KERNELS_MULTIVERSION void code_row(std::byte* codes, const float* values, std::int64_t count, float scale) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float code = scale > 0 ? std::nearbyint(values[i] / scale * kLargestCode) : 0.0f;
    const float within = code >= -kLargestCode ? (code <= kLargestCode ? code : kLargestCode) : -kLargestCode;
    codes[i] = static_cast<std::byte>(static_cast<std::int8_t>(within));
  }
}

constexpr std::array<float, 15> kBetween = [] {
  std::array<float, 15> between{};
  for (std::size_t i = 0; i < between.size(); ++i) between[i] = (kNormalFloat[i] + kNormalFloat[i + 1]) / 2;
  return between;
}();
constexpr std::uint8_t kZeroCode = 7;
static_assert(kNormalFloat[kZeroCode] == 0);

KERNELS_MULTIVERSION void code_block(std::byte* to, const float* values, std::int64_t count, float scale) {
  std::uint8_t codes[kBlock + 1];
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = values[i] / scale;
    std::int32_t code = 0;
    for (const float between : kBetween) code += value > between ? 1 : 0;
    codes[i] = static_cast<std::uint8_t>(code);
  }
  if (scale == 0) std::fill_n(codes, count, kZeroCode);
  codes[count] = kZeroCode;  // behind an odd count
  const std::int64_t half = (count + 1) / 2;
  for (std::int64_t i = 0; i < half; ++i) to[i] = static_cast<std::byte>(codes[i] | codes[i + half] << 4);
}

struct ExpandRows {
  template <int lanes, class Out>
  KERNELS_INLINE static void run(Out* out, const std::byte* codes, const float* scales, std::int64_t rows,
                                 std::int64_t columns) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const float scale = scales[row];
      const auto* const from = reinterpret_cast<const std::int8_t*>(codes) + row * columns;
      Out* const to = out + row * columns;
#pragma omp simd
      for (std::int64_t i = 0; i < columns; ++i)
        store(to[i], scale * (kCodeStep * static_cast<float>(from[i])));
    }
  }
};

// `count` numbers that may lie anywhere.
template <class Number, int count>
struct Several {
  using Type __attribute__((vector_size(count * sizeof(Number)), aligned(alignof(Number)), may_alias)) =
      Number;
};

// What the codes of a block stand for, by a table of 16. In fp32 the table is one register of 16 lanes, or
// two of 8; in 16 bits it is half of one, or one.
template <int lanes>
KERNELS_INLINE void look_up(float* out, const std::int32_t* codes, const float* table) {
#if KERNELS_IS_MULTIVERSION
  if constexpr (lanes > 4) {
    for (std::int64_t i = 0; i < kBlock; i += lanes) {
      const auto& some = *reinterpret_cast<const typename Several<std::int32_t, lanes>::Type*>(codes + i);
      if constexpr (lanes == 16)
        at<16>(out + i) = __builtin_shuffle(at<16>(table), some);
      else
        at<8>(out + i) =
            some >= 8 ? __builtin_shuffle(at<8>(table + 8), some) : __builtin_shuffle(at<8>(table), some);
    }
    return;
  }
#endif
  for (std::int64_t i = 0; i < kBlock; ++i) out[i] = table[codes[i]];
}
template <int lanes>
KERNELS_INLINE void look_up(bf16* out, const std::uint16_t* codes, const bf16* table) {
#if KERNELS_IS_MULTIVERSION
  if constexpr (lanes > 4) {
    using Halves = Several<std::uint16_t, 16>::Type;
    for (std::int64_t i = 0; i < kBlock; i += 16)
      *reinterpret_cast<Halves*>(out + i) = __builtin_shuffle(*reinterpret_cast<const Halves*>(table),
                                                              *reinterpret_cast<const Halves*>(codes + i));
    return;
  }
#endif
  for (std::int64_t i = 0; i < kBlock; ++i) out[i] = table[codes[i]];
}

// Whole blocks.
struct ExpandBlocks {
  template <int lanes, class Out>
  KERNELS_INLINE static void run(Out* out, const std::byte* codes, const float* scales, std::int64_t blocks) {
    using Code = std::conditional_t<sizeof(Out) == sizeof(float), std::int32_t, std::uint16_t>;
    for (std::int64_t block = 0; block < blocks; ++block) {
      Out table[kNormalFloat.size()];
#pragma omp simd
      for (std::size_t i = 0; i < kNormalFloat.size(); ++i) store(table[i], kNormalFloat[i] * scales[block]);
      const auto* const both = reinterpret_cast<const std::uint8_t*>(codes) + block * kHalf;
      Code apart[kBlock];
#pragma omp simd
      for (std::int64_t i = 0; i < kHalf; ++i) {
        apart[i] = both[i] & 15;
        apart[kHalf + i] = both[i] >> 4;
      }
      look_up<lanes>(out + block * kBlock, apart, table);
    }
  }
};

template <class Out>
void expand_part_of_block(Out* out, const std::byte* codes, float scale, std::int64_t count) {
  const std::int64_t half = (count + 1) / 2;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto both = static_cast<std::uint8_t>(codes[i % half]);
    store(out[i], kNormalFloat[i < half ? both & 15 : both >> 4] * scale);
  }
}

template <class Out>
void expand(Out* out, const FrozenWeight& weight) {
  using Rows = void (*)(Out*, const std::byte*, const float*, std::int64_t, std::int64_t);
  using Blocks = void (*)(Out*, const std::byte*, const float*, std::int64_t);
  static const auto expand_rows = with_widest_vectors<ExpandRows>(Rows{});
  static const auto expand_blocks = with_widest_vectors<ExpandBlocks>(Blocks{});
  for_groups(weight, [&](const float* scales, std::int64_t first, std::int64_t count) {
    const std::int64_t begin = first * weight.group;
    if (weight.format == FrozenFormat::int8)
      return expand_rows(out + begin, weight.codes + begin, scales, count, weight.group);
    const std::int64_t whole = std::min(count, weight.count / kBlock - first);
    expand_blocks(out + begin, weight.codes + begin / 2, scales, whole);
    if (whole < count)
      expand_part_of_block(out + begin + whole * kBlock, weight.codes + (begin + whole * kBlock) / 2,
                           scales[whole], weight.count % kBlock);
  });
}

}  // namespace

void find_frozen_scales(const FrozenWeight& weight, const float* values) {
  std::vector<float> scales(static_cast<std::size_t>(weight.groups()));
  parallel_ranges(weight.groups(), weight.group, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t group = begin; group < end; ++group) {
      const std::int64_t first = group * weight.group;
      scales[static_cast<std::size_t>(group)] =
          largest_magnitude(values + first, std::min(weight.group, weight.count - first));
    }
  });
  if (weight.format == FrozenFormat::nf4_double) return quantise_scales(weight, scales);
  std::copy(scales.begin(), scales.end(), reinterpret_cast<float*>(weight.scales));
}

void code_frozen(const FrozenWeight& weight, const float* values) {
  for_groups(weight, [&](const float* scales, std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t begin = (first + i) * weight.group;
      const std::int64_t size = std::min(weight.group, weight.count - begin);
      if (weight.format == FrozenFormat::int8)
        code_row(weight.codes + begin, values + begin, size, scales[i]);
      else
        code_block(weight.codes + begin / 2, values + begin, size, scales[i]);
    }
  });
}

void expand_frozen(float* out, const FrozenWeight& weight) {
  expand(out, weight);
}
void expand_frozen(bf16* out, const FrozenWeight& weight) {
  expand(out, weight);
}

}  // namespace kernels::cpu
