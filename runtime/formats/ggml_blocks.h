// ggml's tensor types and their block layouts, widened to fp32.
// Source of ids, sizes and layouts: the GGUF specification (docs/gguf.md of ggml-org/ggml) and the structures
// of ggml-common.h there; the arithmetic is the reference dequantisation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace runtime {

// The numbers are the file's.
enum class GgmlType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq4_nl = 20,
  iq4_xs = 23,
  bf16 = 30,
  mxfp4 = 39,
};

// A row is a whole number of blocks; a block of `elements` values takes `bytes` bytes.
struct GgmlTypeInfo {
  GgmlType type;
  std::string_view name;  // "Q4_1"
  std::int64_t elements;
  std::int64_t bytes;
};

// Null when the number is none of GgmlType's.
const GgmlTypeInfo* find_ggml_type(std::uint32_t number);
const GgmlTypeInfo& ggml_type_info(GgmlType type);
std::string ggml_type_names();  // "F32, F16, Q4_0, ...": what is accepted, for messages

// How a type's blocks code values: value = scale * code + minimum, with code in 0 .. 2^bits - 1.
struct CodeFormat {
  int bits = 0;             // 0: floats
  std::int64_t group = 32;  // elements that share a scale and a minimum
  bool own_minima = false;  // false: minima follow from scales, and the code 2^(bits - 1) stands for 0
  // Whether scales are whole numbers, of no more than 8 bits with their sign, times a scale of the block; and
  // minima, where they are own, times a minimum of the block.
  bool in_blocks = false;
};
CodeFormat code_format(GgmlType type);

// Codes (elements); their scales and minima (elements / group); and, for formats in blocks, the blocks'
// scales and minima (blocks each, fp16's values).
struct GgmlCodes {
  std::span<std::uint8_t> codes;
  std::span<float> scales, minima, block_scales, block_minima;
};

// Requires code_format(type).bits > 0. Throws std::invalid_argument where sizes disagree.
void read_codes(GgmlType type, std::span<const std::byte> blocks, const GgmlCodes& to);

// `blocks` holds exactly the blocks of `out` (out.size() a multiple of the block's elements); any alignment.
// std::invalid_argument otherwise.
void dequantize(GgmlType type, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace runtime
