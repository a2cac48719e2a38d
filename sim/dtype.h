// Element types of buffers and of arithmetic.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/enum_names.h"

namespace sim {

enum class DType { fp32, tf32, bf16, fp16, fp8, int8, int4, int32, fp64 };

// Size of one stored element in bits (tf32 is stored as fp32).
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
    case DType::int4:
      return 4;
  }
  return 0;
}

// Also accepts the names of PyTorch and Hugging Face, such as "bfloat16".
template <>
std::optional<DType> from_name<DType>(std::string_view word);

}  // namespace sim
