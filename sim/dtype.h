// Element types of buffers and of arithmetic.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/enum_names.h"

namespace sim {

// q2_k to q6_k are GGUF's types of those names: stored_blocks().
enum class DType { fp32, tf32, bf16, fp16, fp8, int8, int4, int32, fp64, int5, q2_k, q3_k, q4_k, q5_k, q6_k };

// Size of one stored element in bits, without scales beside it (tf32 is stored as fp32).
constexpr std::int64_t bits(DType t) {
  switch (t) {
    case DType::fp64:
      return 64;
    case DType::fp32:
    case DType::tf32:
    case DType::int32:
      return 32;
    case DType::bf16:
    case DType::fp16:
      return 16;
    case DType::fp8:
    case DType::int8:
      return 8;
    case DType::q6_k:
      return 6;
    case DType::int5:
    case DType::q5_k:
      return 5;
    case DType::int4:
    case DType::q4_k:
      return 4;
    case DType::q3_k:
      return 3;
    case DType::q2_k:
      return 2;
  }
  return 0;
}

// Weights whose scales are stored in fewer bits themselves: integers of 8 bits for each `group` columns of a
// row, times a number in fp16 for each 256 of them; and so are minima, where there are any. GGUF packs these
// integers into 4 to 8 bits (ggml-common.h of https://github.com/ggml-org/ggml).
struct StoredBlocks {
  static constexpr std::int64_t kColumns = 256;
  std::int64_t group;
  bool minima;

  // Of the scales and minima of `columns` columns of a row.
  constexpr std::int64_t scale_bytes(std::int64_t columns) const {
    return (columns + kColumns - 1) / kColumns * (minima ? 2 : 1) * (2 + kColumns / group);
  }
};
constexpr std::optional<StoredBlocks> stored_blocks(DType t) {
  switch (t) {
    case DType::q2_k:
      return StoredBlocks{16, true};
    case DType::q3_k:
    case DType::q6_k:
      return StoredBlocks{16, false};
    case DType::q4_k:
    case DType::q5_k:
      return StoredBlocks{32, true};
    default:
      return std::nullopt;
  }
}

// Also accepts the names of PyTorch and Hugging Face, such as "bfloat16".
template <>
std::optional<DType> from_name<DType>(std::string_view word);

}  // namespace sim
