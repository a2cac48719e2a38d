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

// The 32-element blocks. Byte j of the nibbles holds element j below and element j + 16 above; a fifth bit,
// where the type has one, is bit `element` of a 32-bit word.

// f16 d, nibbles[16]: d * (q - 8)
void block_q4_0(const Byte* block, float* out) {
  const float d = f16_at(block);
  const Byte* q = block + 2;
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>((q[j] & 0xf) - 8);
    out[j + 16] = d * static_cast<float>((q[j] >> 4) - 8);
  }
}

// f16 d, f16 m, nibbles[16]: d * q + m
void block_q4_1(const Byte* block, float* out) {
  const float d = f16_at(block);
  const float m = f16_at(block + 2);
  const Byte* q = block + 4;
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(q[j] & 0xf) + m;
    out[j + 16] = d * static_cast<float>(q[j] >> 4) + m;
  }
}

int fifth_bit(std::uint32_t high, int element) {
  return static_cast<int>((high >> element) & 1u) << 4;
}

// f16 d, u32 high bits, nibbles[16]: d * (q - 16)
void block_q5_0(const Byte* block, float* out) {
  const float d = f16_at(block);
  const std::uint32_t high = u32_at(block + 2);
  const Byte* q = block + 6;
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(((q[j] & 0xf) | fifth_bit(high, j)) - 16);
    out[j + 16] = d * static_cast<float>(((q[j] >> 4) | fifth_bit(high, j + 16)) - 16);
  }
}

// f16 d, f16 m, u32 high bits, nibbles[16]: d * q + m
void block_q5_1(const Byte* block, float* out) {
  const float d = f16_at(block);
  const float m = f16_at(block + 2);
  const std::uint32_t high = u32_at(block + 4);
  const Byte* q = block + 8;
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>((q[j] & 0xf) | fifth_bit(high, j)) + m;
    out[j + 16] = d * static_cast<float>((q[j] >> 4) | fifth_bit(high, j + 16)) + m;
  }
}

// f16 d, int8[32]: d * q
void block_q8_0(const Byte* block, float* out) {
  const float d = f16_at(block);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(static_cast<std::int8_t>(block[2 + j]));
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
void block_k(const Byte* scales, const Byte* nibbles, const Byte* high, float d, float dmin, float* out) {
  for (int s = 0; s < 8; ++s) {
    const ScaleAndMinimum sub = sub_block(scales, s);
    const float scale = d * sub.scale;
    const float minimum = dmin * sub.minimum;
    const Byte* pair = nibbles + 32 * (s / 2);
    for (int i = 0; i < 32; ++i) {
      const int low = s % 2 == 0 ? pair[i] & 0xf : pair[i] >> 4;
      const int fifth = high == nullptr ? 0 : ((high[i] >> s) & 1) << 4;
      out[32 * s + i] = scale * static_cast<float>(low | fifth) - minimum;
    }
  }
}
void block_q4_k(const Byte* block, float* out) {
  block_k(block + 4, block + 16, nullptr, f16_at(block), f16_at(block + 2), out);
}
void block_q5_k(const Byte* block, float* out) {
  block_k(block + 4, block + 48, block + 16, f16_at(block), f16_at(block + 2), out);
}

// Q6_K: low nibbles[128], high pairs[64], int8 scales[16], f16 d. Value: d * scale * (q - 32), a scale for 16
// elements. Each half of 128 elements is four runs of 32: runs 0 and 1 in the lower nibbles of its 64 bytes,
// 2 and 3 in the upper; run r has bits 2r and 2r+1 of the half's 32 high bytes.
void block_q6_k(const Byte* block, float* out) {
  const auto* scales = reinterpret_cast<const std::int8_t*>(block + 192);
  const float d = f16_at(block + 208);
  for (int half = 0; half < 2; ++half) {
    const Byte* low = block + 64 * half;
    const Byte* high = block + 128 + 32 * half;
    for (int run = 0; run < 4; ++run) {
      for (int i = 0; i < 32; ++i) {
        const Byte byte = low[32 * (run % 2) + i];
        const int nibble = run < 2 ? byte & 0xf : byte >> 4;
        const int q = (nibble | ((high[i] >> (2 * run)) & 3) << 4) - 32;
        const float scale = d * static_cast<float>(scales[8 * half + 2 * run + i / 16]);
        out[128 * half + 32 * run + i] = scale * static_cast<float>(q);
      }
    }
  }
}

// Q2_K and Q3_K have a scale for 16 elements. Each half of 128 elements is four runs of 32, run r in bits 2r
// and 2r + 1 of the half's 32 bytes.
int two_bits(const Byte* pairs, int half, int run, int i) {
  return (pairs[32 * half + i] >> (2 * run)) & 3;
}

// Q2_K: scales[16], each a scale below and a minimum above, pairs[64], f16 d, f16 dmin. Value:
// d * scale * q - dmin * minimum.
void block_q2_k(const Byte* block, float* out) {
  const float d = f16_at(block + 80), dmin = f16_at(block + 82);
  for (int e = 0; e < 256; ++e) {
    const Byte both = block[e / 16];
    const float scale = d * static_cast<float>(both & 0xf), minimum = dmin * static_cast<float>(both >> 4);
    out[e] = scale * static_cast<float>(two_bits(block + 16, e / 128, e / 32 % 4, e % 32)) - minimum;
  }
}

// Q3_K: high[32], pairs[64], scales[12], f16 d. Value: d * (scale - 32) * (q - 4), where bit s of high byte i
// is the third bit of element i of the s-th 32. Scales have 6 bits: the lower four of the first and the last
// eight are the halves of bytes 0-7, the upper two of scale j bits 2 * (j / 4) of byte 8 + j % 4.
void block_q3_k(const Byte* block, float* out) {
  const Byte* const packed = block + 96;
  const float d = f16_at(block + 108);
  for (int e = 0; e < 256; ++e) {
    const int j = e / 16, low = j < 8 ? packed[j] & 0xf : packed[j - 8] >> 4;
    const int scale = (low | ((packed[8 + j % 4] >> (2 * (j / 4))) & 3) << 4) - 32;
    const int third = ((block[e % 32] >> (e / 32)) & 1) << 2;
    const int q = (two_bits(block + 32, e / 128, e / 32 % 4, e % 32) | third) - 4;
    out[e] = d * static_cast<float>(scale) * static_cast<float>(q);
  }
}

// Four bits choose one of sixteen integers, with a scale for 32 of them. Byte j holds element j below and
// element j + 16 above.
using Choices = std::array<std::int8_t, 16>;
// The table kvalues_iq4nl of ggml-common.h: its values are closer together where weights are many.
constexpr Choices kNonlinear{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// fp4 (E2M1) times two. Open Compute Project, Microscaling Formats v1.0, section 5.3.3.
constexpr Choices kTwiceFp4{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void choose(const Choices& choices, const Byte* q, std::int8_t* chosen) {
  for (int j = 0; j < 16; ++j) {
    chosen[j] = choices[q[j] & 0xf];
    chosen[j + 16] = choices[q[j] >> 4];
  }
}

// 32 integers and their scale.
struct Chosen {
  std::array<std::int8_t, 32> q;
  float scale;
};
// IQ4_NL: f16 d, nibbles[16].
Chosen chosen_iq4_nl(const Byte* block, int) {
  Chosen chosen{{}, f16_at(block)};
  choose(kNonlinear, block + 2, chosen.q.data());
  return chosen;
}
// IQ4_XS: f16 d, u16 high, low[4], nibbles[128]. The scale of the s-th 32 has 6 bits, less 32: four in a half
// of low byte s / 2, two in bits 2s of high.
Chosen chosen_iq4_xs(const Byte* block, int s) {
  const int high = block[2] | block[3] << 8, low = (block[4 + s / 2] >> (4 * (s % 2))) & 0xf;
  Chosen chosen{{}, f16_at(block) * static_cast<float>((low | ((high >> (2 * s)) & 3) << 4) - 32)};
  choose(kNonlinear, block + 8 + 16 * s, chosen.q.data());
  return chosen;
}
// MXFP4: e, nibbles[16]. The scale is 2^(e - 127), halved here because the integers are twice the values.
Chosen chosen_mxfp4(const Byte* block, int) {
  Chosen chosen{{}, std::ldexp(1.0f, block[0] - 128)};
  choose(kTwiceFp4, block + 1, chosen.q.data());
  return chosen;
}

template <Chosen (*chosen_at)(const Byte*, int), int kParts>
void block_chosen(const Byte* block, float* out) {
  for (int s = 0; s < kParts; ++s) {
    const Chosen chosen = chosen_at(block, s);
    for (int j = 0; j < 32; ++j) out[32 * s + j] = chosen.scale * static_cast<float>(chosen.q[j]);
  }
}

// The same blocks as codes: value = scale * code + minimum, with one scale and minimum for each 32.
struct Codes {
  Byte* codes;
  float *scales, *minima;
};

void codes_of_nibbles(const Byte* q, std::uint32_t high, Byte* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = static_cast<Byte>((q[j] & 0xf) | fifth_bit(high, j));
    codes[j + 16] = static_cast<Byte>((q[j] >> 4) | fifth_bit(high, j + 16));
  }
}
void codes_q4_0(const Byte* block, Codes to) {
  codes_of_nibbles(block + 2, 0, to.codes);
  *to.scales = f16_at(block);
  *to.minima = -8 * *to.scales;
}
void codes_q4_1(const Byte* block, Codes to) {
  codes_of_nibbles(block + 4, 0, to.codes);
  *to.scales = f16_at(block);
  *to.minima = f16_at(block + 2);
}
void codes_q5_0(const Byte* block, Codes to) {
  codes_of_nibbles(block + 6, u32_at(block + 2), to.codes);
  *to.scales = f16_at(block);
  *to.minima = -16 * *to.scales;
}
void codes_q5_1(const Byte* block, Codes to) {
  codes_of_nibbles(block + 8, u32_at(block + 4), to.codes);
  *to.scales = f16_at(block);
  *to.minima = f16_at(block + 2);
}
void codes_q8_0(const Byte* block, Codes to) {
  for (int j = 0; j < 32; ++j) to.codes[j] = static_cast<Byte>(block[2 + j] ^ 0x80);  // plus 128
  *to.scales = f16_at(block);
  *to.minima = -128 * *to.scales;
}
template <Chosen (*chosen_at)(const Byte*, int), int kParts>
void codes_chosen(const Byte* block, Codes to) {
  for (int s = 0; s < kParts; ++s) {
    const Chosen chosen = chosen_at(block, s);
    for (int j = 0; j < 32; ++j) to.codes[32 * s + j] = static_cast<Byte>(chosen.q[j] + 128);
    to.scales[s] = chosen.scale;
    to.minima[s] = -128 * chosen.scale;
  }
}
void codes_k(const Byte* scales, const Byte* nibbles, const Byte* high, float d, float dmin, Codes to) {
  for (int s = 0; s < 8; ++s) {
    const ScaleAndMinimum sub = sub_block(scales, s);
    to.scales[s] = d * sub.scale;
    to.minima[s] = -dmin * sub.minimum;
    const Byte* pair = nibbles + 32 * (s / 2);
    for (int i = 0; i < 32; ++i) {
      const int low = s % 2 == 0 ? pair[i] & 0xf : pair[i] >> 4;
      const int fifth = high == nullptr ? 0 : ((high[i] >> s) & 1) << 4;
      to.codes[32 * s + i] = static_cast<Byte>(low | fifth);
    }
  }
}
void codes_q4_k(const Byte* block, Codes to) {
  codes_k(block + 4, block + 16, nullptr, f16_at(block), f16_at(block + 2), to);
}
void codes_q5_k(const Byte* block, Codes to) {
  codes_k(block + 4, block + 48, block + 16, f16_at(block), f16_at(block + 2), to);
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

template <void (*widen_block)(const Byte*, float*)>
void widen(const GgmlTypeInfo& type, const Byte* block, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); i += static_cast<std::size_t>(type.elements), block += type.bytes) {
    widen_block(block, out.data() + i);
  }
}

struct Format {
  GgmlTypeInfo info;
  void (*widen)(const GgmlTypeInfo&, const Byte*, std::span<float>);
  int code_bits = 0;
  void (*read_codes)(const Byte*, Codes) = nullptr;  // one block
  bool own_minima = false;
};

// clang-format off
constexpr std::array kFormats = {
    Format{{GgmlType::f32, "F32", 1, 4}, widen<element_f32>},
    Format{{GgmlType::f16, "F16", 1, 2}, widen<element_f16>},
    Format{{GgmlType::bf16, "BF16", 1, 2}, widen<element_bf16>},
    Format{{GgmlType::q4_0, "Q4_0", 32, 18}, widen<block_q4_0>, 4, codes_q4_0},
    Format{{GgmlType::q4_1, "Q4_1", 32, 20}, widen<block_q4_1>, 4, codes_q4_1, true},
    Format{{GgmlType::q5_0, "Q5_0", 32, 22}, widen<block_q5_0>, 5, codes_q5_0},
    Format{{GgmlType::q5_1, "Q5_1", 32, 24}, widen<block_q5_1>, 5, codes_q5_1, true},
    Format{{GgmlType::q8_0, "Q8_0", 32, 34}, widen<block_q8_0>, 8, codes_q8_0},
    Format{{GgmlType::q2_k, "Q2_K", 256, 84}, widen<block_q2_k>},
    Format{{GgmlType::q3_k, "Q3_K", 256, 110}, widen<block_q3_k>},
    Format{{GgmlType::q4_k, "Q4_K", 256, 144}, widen<block_q4_k>, 4, codes_q4_k, true},
    Format{{GgmlType::q5_k, "Q5_K", 256, 176}, widen<block_q5_k>, 5, codes_q5_k, true},
    Format{{GgmlType::q6_k, "Q6_K", 256, 210}, widen<block_q6_k>},
    Format{{GgmlType::iq4_nl, "IQ4_NL", 32, 18}, widen<block_chosen<chosen_iq4_nl, 1>>, 8, codes_chosen<chosen_iq4_nl, 1>},
    Format{{GgmlType::iq4_xs, "IQ4_XS", 256, 136}, widen<block_chosen<chosen_iq4_xs, 8>>, 8, codes_chosen<chosen_iq4_xs, 8>},
    Format{{GgmlType::mxfp4, "MXFP4", 32, 17}, widen<block_chosen<chosen_mxfp4, 1>>, 8, codes_chosen<chosen_mxfp4, 1>},
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

int code_bits(GgmlType type) {
  return format_of(type).code_bits;
}

bool is_around_zero(GgmlType type) {
  return !format_of(type).own_minima;
}

void read_codes(GgmlType type, std::span<const std::byte> blocks, std::span<std::uint8_t> codes,
                std::span<float> scales, std::span<float> minima) {
  constexpr std::size_t kGroup = 32;
  const Format& format = format_of(type);
  const auto elements = static_cast<std::size_t>(format.info.elements);
  if (!format.read_codes || codes.size() % elements != 0 ||
      blocks.size() != codes.size() / elements * static_cast<std::size_t>(format.info.bytes) ||
      scales.size() != codes.size() / kGroup || minima.size() != scales.size())
    throw std::invalid_argument("read_codes: blocks and elements disagree");
  const auto* from = reinterpret_cast<const Byte*>(blocks.data());
  for (std::size_t i = 0; i < codes.size(); i += elements, from += format.info.bytes)
    format.read_codes(from, {codes.data() + i, scales.data() + i / kGroup, minima.data() + i / kGroup});
}

void dequantize(GgmlType type, std::span<const std::byte> blocks, std::span<float> out) {
  const Format& format = format_of(type);
  const auto elements = static_cast<std::size_t>(format.info.elements);
  if (out.size() % elements != 0 ||
      blocks.size() != out.size() / elements * static_cast<std::size_t>(format.info.bytes)) {
    throw std::invalid_argument("dequantize: blocks and elements disagree");
  }
  format.widen(format.info, reinterpret_cast<const Byte*>(blocks.data()), out);
}

}  // namespace runtime
