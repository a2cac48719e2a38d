#include "runtime/formats/ggml_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "runtime/formats/float_formats.h"

namespace runtime {
namespace {

using Byte = std::uint8_t;

float f16_at(const Byte* from) {
  return f16_to_f32(load_unaligned<std::uint16_t>(reinterpret_cast<const std::byte*>(from)));
}
std::uint32_t u32_at(const Byte* from) {
  return load_unaligned<std::uint32_t>(reinterpret_cast<const std::byte*>(from));
}

constexpr int kMostElements = 256;  // of a block
constexpr int kLeastGroup = 16;     // elements that share a scale

// A block as codes (GgmlCodes). Types without scales of blocks leave those alone.
struct Codes {
  Byte* codes;
  float *scales, *minima, *block_scale, *block_minimum;

  void set(int group, float scale, float minimum) const {
    scales[group] = scale;
    minima[group] = minimum;
  }
  // Minima follow from scales: this code stands for 0.
  void set_around(int zero, int group, float scale) const {
    set(group, scale, static_cast<float>(-zero) * scale);
  }
};

// The 32-element blocks. Byte j of the nibbles holds element j below and element j + 16 above; a fifth bit,
// where the type has one, is bit `element` of a 32-bit word.
int fifth_bit(std::uint32_t high, int element) {
  return static_cast<int>((high >> element) & 1u) << 4;
}
void codes_of_nibbles(const Byte* q, std::uint32_t high, Byte* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = static_cast<Byte>((q[j] & 0xf) | fifth_bit(high, j));
    codes[j + 16] = static_cast<Byte>((q[j] >> 4) | fifth_bit(high, j + 16));
  }
}

// f16 d, nibbles[16]: d * (q - 8)
void codes_q4_0(const Byte* block, Codes to) {
  codes_of_nibbles(block + 2, 0, to.codes);
  to.set_around(8, 0, f16_at(block));
}
// f16 d, f16 m, nibbles[16]: d * q + m
void codes_q4_1(const Byte* block, Codes to) {
  codes_of_nibbles(block + 4, 0, to.codes);
  to.set(0, f16_at(block), f16_at(block + 2));
}
// f16 d, u32 high bits, nibbles[16]: d * (q - 16)
void codes_q5_0(const Byte* block, Codes to) {
  codes_of_nibbles(block + 6, u32_at(block + 2), to.codes);
  to.set_around(16, 0, f16_at(block));
}
// f16 d, f16 m, u32 high bits, nibbles[16]: d * q + m
void codes_q5_1(const Byte* block, Codes to) {
  codes_of_nibbles(block + 8, u32_at(block + 4), to.codes);
  to.set(0, f16_at(block), f16_at(block + 2));
}
// f16 d, int8[32]: d * q
void codes_q8_0(const Byte* block, Codes to) {
  for (int j = 0; j < 32; ++j) to.codes[j] = static_cast<Byte>(block[2 + j] ^ 0x80);  // plus 128
  to.set_around(128, 0, f16_at(block));
}

// The 256-element blocks ("K-quants") are 8 sub-blocks of 32 with 6-bit scales and minimums, packed in 12
// bytes: the first four of each in the low 6 bits of bytes 0-3 and 4-7; the last four with their low nibbles
// in bytes 8-11 (scale below, minimum above) and their top 2 bits in the tops of bytes 0-3 and 4-7.
struct ScaleAndMinimum {
  float scale;
  float minimum;
};
ScaleAndMinimum sub_block(const Byte* packed, int j) {
  if (j < 4) return {static_cast<float>(packed[j] & 63), static_cast<float>(packed[j + 4] & 63)};
  return {static_cast<float>((packed[j + 4] & 0xf) | ((packed[j - 4] >> 6) << 4)),
          static_cast<float>((packed[j + 4] >> 4) | ((packed[j] >> 6) << 4))};
}

// Q4_K: f16 d, f16 dmin, scales[12], nibbles[128]. Q5_K: the same with high[32] before the nibbles, where bit
// s of byte i is the fifth bit of element i of sub-block s. Value: d * scale * q - dmin * minimum. Byte i of
// the p-th 32 nibbles holds element i of sub-blocks 2p (below) and 2p + 1 (above).
void codes_of_sub_blocks(const Byte* block, const Byte* high, const Byte* nibbles, Codes to) {
  const float d = *to.block_scale = f16_at(block), dmin = *to.block_minimum = f16_at(block + 2);
  for (int s = 0; s < 8; ++s) {
    const ScaleAndMinimum sub = sub_block(block + 4, s);
    to.set(s, d * sub.scale, -dmin * sub.minimum);
    const Byte* pair = nibbles + 32 * (s / 2);
    for (int i = 0; i < 32; ++i) {
      const int low = s % 2 == 0 ? pair[i] & 0xf : pair[i] >> 4;
      const int fifth = high == nullptr ? 0 : ((high[i] >> s) & 1) << 4;
      to.codes[32 * s + i] = static_cast<Byte>(low | fifth);
    }
  }
}
void codes_q4_k(const Byte* block, Codes to) {
  codes_of_sub_blocks(block, nullptr, block + 16, to);
}
void codes_q5_k(const Byte* block, Codes to) {
  codes_of_sub_blocks(block, block + 16, block + 48, to);
}

// Q6_K: low nibbles[128], high pairs[64], int8 scales[16], f16 d. Value: d * scale * (q - 32), a scale for 16
// elements. Each half of 128 elements is four runs of 32: runs 0 and 1 in the lower nibbles of its 64 bytes,
// 2 and 3 in the upper; run r has bits 2r and 2r+1 of the half's 32 high bytes.
void codes_q6_k(const Byte* block, Codes to) {
  const auto* scales = reinterpret_cast<const std::int8_t*>(block + 192);
  const float d = *to.block_scale = f16_at(block + 208);
  for (int j = 0; j < 16; ++j) to.set_around(32, j, d * static_cast<float>(scales[j]));
  for (int half = 0; half < 2; ++half) {
    const Byte* low = block + 64 * half;
    const Byte* high = block + 128 + 32 * half;
    for (int run = 0; run < 4; ++run) {
      for (int i = 0; i < 32; ++i) {
        const Byte byte = low[32 * (run % 2) + i];
        const int nibble = run < 2 ? byte & 0xf : byte >> 4;
        to.codes[128 * half + 32 * run + i] = static_cast<Byte>(nibble | ((high[i] >> (2 * run)) & 3) << 4);
      }
    }
  }
}

// Q2_K and Q3_K have a scale for 16 elements. Each half of 128 elements is four runs of 32, run r in bits 2r
// and 2r + 1 of the half's 32 bytes.
int two_bits(const Byte* pairs, int element) {
  return (pairs[element / 128 * 32 + element % 32] >> (element / 32 % 4 * 2)) & 3;
}

// Q2_K: scales[16], each a scale below and a minimum above, pairs[64], f16 d, f16 dmin. Value:
// d * scale * q - dmin * minimum.
void codes_q2_k(const Byte* block, Codes to) {
  const float d = *to.block_scale = f16_at(block + 80), dmin = *to.block_minimum = f16_at(block + 82);
  for (int j = 0; j < 16; ++j)
    to.set(j, d * static_cast<float>(block[j] & 0xf), -dmin * static_cast<float>(block[j] >> 4));
  for (int e = 0; e < 256; ++e) to.codes[e] = static_cast<Byte>(two_bits(block + 16, e));
}

// Q3_K: high[32], pairs[64], scales[12], f16 d. Value: d * (scale - 32) * (q - 4), where bit s of high byte i
// is the third bit of element i of the s-th 32. Scales have 6 bits: the lower four of the first and the last
// eight are the halves of bytes 0-7, the upper two of scale j bits 2 * (j / 4) of byte 8 + j % 4.
void codes_q3_k(const Byte* block, Codes to) {
  const Byte* const packed = block + 96;
  const float d = *to.block_scale = f16_at(block + 108);
  for (int j = 0; j < 16; ++j) {
    const int low = j < 8 ? packed[j] & 0xf : packed[j - 8] >> 4;
    const int scale = (low | ((packed[8 + j % 4] >> (2 * (j / 4))) & 3) << 4) - 32;
    to.set_around(4, j, d * static_cast<float>(scale));
  }
  for (int e = 0; e < 256; ++e) {
    const int third = ((block[e % 32] >> (e / 32)) & 1) << 2;
    to.codes[e] = static_cast<Byte>(two_bits(block + 32, e) | third);
  }
}

// Four bits choose one of sixteen integers, with a scale for 32 of them. Byte j holds element j below and
// element j + 16 above. The integers plus 128 are codes of 8 bits.
using Choices = std::array<std::int8_t, 16>;
// The table kvalues_iq4nl of ggml-common.h: its values are closer together where weights are many.
constexpr Choices kNonlinear{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// fp4 (E2M1) times two. Open Compute Project, Microscaling Formats v1.0, section 5.3.3.
constexpr Choices kTwiceFp4{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void choose(const Choices& choices, const Byte* q, Byte* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = static_cast<Byte>(choices[q[j] & 0xf] + 128);
    codes[j + 16] = static_cast<Byte>(choices[q[j] >> 4] + 128);
  }
}
// IQ4_NL: f16 d, nibbles[16].
void codes_iq4_nl(const Byte* block, Codes to) {
  choose(kNonlinear, block + 2, to.codes);
  to.set_around(128, 0, f16_at(block));
}
// IQ4_XS: f16 d, u16 high, low[4], nibbles[128]. The scale of the s-th 32 has 6 bits, less 32: four in a half
// of low byte s / 2, two in bits 2s of high.
void codes_iq4_xs(const Byte* block, Codes to) {
  for (int s = 0; s < 8; ++s) {
    const int high = block[2] | block[3] << 8, low = (block[4 + s / 2] >> (4 * (s % 2))) & 0xf;
    choose(kNonlinear, block + 8 + 16 * s, to.codes + 32 * s);
    to.set_around(128, s, f16_at(block) * static_cast<float>((low | ((high >> (2 * s)) & 3) << 4) - 32));
  }
}
// MXFP4: e, nibbles[16]. The scale is 2^(e - 127), halved here because the integers are twice the values.
void codes_mxfp4(const Byte* block, Codes to) {
  choose(kTwiceFp4, block + 1, to.codes);
  to.set_around(128, 0, std::ldexp(1.0f, block[0] - 128));
}

void element_f32(const Byte* block, float* out) {
  std::memcpy(out, block, sizeof *out);
}
void element_f16(const Byte* block, float* out) {
  *out = f16_at(block);
}
void element_bf16(const Byte* block, float* out) {
  *out = bf16_to_f32(load_unaligned<std::uint16_t>(reinterpret_cast<const std::byte*>(block)));
}

struct Format {
  GgmlTypeInfo info;
  void (*widen)(const Byte*, float*) = nullptr;  // one element
  CodeFormat code{};
  void (*read_codes)(const Byte*, Codes) = nullptr;  // one block
};

// clang-format off
constexpr CodeFormat around_zero(int bits) { return {.bits = bits}; }
constexpr CodeFormat with_minima(int bits) { return {.bits = bits, .own_minima = true}; }
constexpr CodeFormat in_blocks(int bits, int group, bool minima) { return {bits, group, minima, true}; }

constexpr std::array kFormats = {
    Format{{GgmlType::f32, "F32", 1, 4}, element_f32},
    Format{{GgmlType::f16, "F16", 1, 2}, element_f16},
    Format{{GgmlType::bf16, "BF16", 1, 2}, element_bf16},
    Format{{GgmlType::q4_0, "Q4_0", 32, 18}, nullptr, around_zero(4), codes_q4_0},
    Format{{GgmlType::q4_1, "Q4_1", 32, 20}, nullptr, with_minima(4), codes_q4_1},
    Format{{GgmlType::q5_0, "Q5_0", 32, 22}, nullptr, around_zero(5), codes_q5_0},
    Format{{GgmlType::q5_1, "Q5_1", 32, 24}, nullptr, with_minima(5), codes_q5_1},
    Format{{GgmlType::q8_0, "Q8_0", 32, 34}, nullptr, around_zero(8), codes_q8_0},
    Format{{GgmlType::q2_k, "Q2_K", 256, 84}, nullptr, in_blocks(2, 16, true), codes_q2_k},
    Format{{GgmlType::q3_k, "Q3_K", 256, 110}, nullptr, in_blocks(3, 16, false), codes_q3_k},
    Format{{GgmlType::q4_k, "Q4_K", 256, 144}, nullptr, in_blocks(4, 32, true), codes_q4_k},
    Format{{GgmlType::q5_k, "Q5_K", 256, 176}, nullptr, in_blocks(5, 32, true), codes_q5_k},
    Format{{GgmlType::q6_k, "Q6_K", 256, 210}, nullptr, in_blocks(6, 16, false), codes_q6_k},
    Format{{GgmlType::iq4_nl, "IQ4_NL", 32, 18}, nullptr, around_zero(8), codes_iq4_nl},
    Format{{GgmlType::iq4_xs, "IQ4_XS", 256, 136}, nullptr, around_zero(8), codes_iq4_xs},
    Format{{GgmlType::mxfp4, "MXFP4", 32, 17}, nullptr, around_zero(8), codes_mxfp4},
};
// clang-format on

const Format* find_format(GgmlType type) {
  const auto found = std::ranges::find(kFormats, type, [](const Format& format) { return format.info.type; });
  return found == kFormats.end() ? nullptr : &*found;
}

// The format of a type that can be read.
const Format& format_of(GgmlType type) {
  return *find_format(type);
}

}  // namespace

const GgmlTypeInfo* find_ggml_type(std::uint32_t number) {
  const Format* const found = find_format(static_cast<GgmlType>(number));
  return found ? &found->info : nullptr;
}

const GgmlTypeInfo& ggml_type_info(GgmlType type) {
  return format_of(type).info;
}

std::string ggml_type_names() {
  std::string names;
  for (const Format& format : kFormats) names += (names.empty() ? "" : ", ") + std::string(format.info.name);
  return names;
}

CodeFormat code_format(GgmlType type) {
  return format_of(type).code;
}

namespace {

bool has_blocks_of(const Format& format, std::span<const std::byte> blocks, std::size_t elements) {
  const auto of_block = static_cast<std::size_t>(format.info.elements);
  return elements % of_block == 0 &&
         blocks.size() == elements / of_block * static_cast<std::size_t>(format.info.bytes);
}

}  // namespace

void read_codes(GgmlType type, std::span<const std::byte> blocks, const GgmlCodes& to) {
  const Format& format = format_of(type);
  const auto elements = static_cast<std::size_t>(format.info.elements);
  const auto group = static_cast<std::size_t>(format.code.group);
  const std::size_t in_blocks = format.code.in_blocks ? to.codes.size() / elements : 0;
  if (!format.read_codes || !has_blocks_of(format, blocks, to.codes.size()) ||
      to.scales.size() != to.codes.size() / group || to.minima.size() != to.scales.size() ||
      to.block_scales.size() != in_blocks || to.block_minima.size() != in_blocks)
    throw std::invalid_argument("read_codes: blocks and elements disagree");
  const auto* from = reinterpret_cast<const Byte*>(blocks.data());
  for (std::size_t i = 0; i < to.codes.size() / elements; ++i, from += format.info.bytes) {
    const std::size_t first = i * elements, block = format.code.in_blocks ? i : 0;
    format.read_codes(
        from, {to.codes.data() + first, to.scales.data() + first / group, to.minima.data() + first / group,
               to.block_scales.data() + block, to.block_minima.data() + block});
  }
}

void dequantize(GgmlType type, std::span<const std::byte> blocks, std::span<float> out) {
  const Format& format = format_of(type);
  if (!has_blocks_of(format, blocks, out.size()))
    throw std::invalid_argument("dequantize: blocks and elements disagree");
  const auto* from = reinterpret_cast<const Byte*>(blocks.data());
  if (format.widen) {
    for (std::size_t i = 0; i < out.size(); ++i, from += format.info.bytes) format.widen(from, &out[i]);
    return;
  }
  const auto elements = static_cast<std::size_t>(format.info.elements);
  const auto group = static_cast<std::size_t>(format.code.group);
  const int zero = 1 << (format.code.bits - 1);
  Byte codes[kMostElements];
  float scales[kMostElements / kLeastGroup], minima[kMostElements / kLeastGroup], scale, minimum;
  for (std::size_t first = 0; first < out.size(); first += elements, from += format.info.bytes) {
    format.read_codes(from, {codes, scales, minima, &scale, &minimum});
    for (std::size_t e = 0; e < elements; ++e) {
      const std::size_t g = e / group;
      // Around zero the difference of codes is exact; with minima the reference rounds in this order.
      out[first + e] = format.code.own_minima ? scales[g] * static_cast<float>(codes[e]) + minima[g]
                                              : scales[g] * static_cast<float>(codes[e] - zero);
    }
  }
}

}  // namespace runtime
