#include "sim/dtype.h"

#include "sim/enum_names.h"

namespace sim {
namespace {

constexpr std::array<EnumName<DType>, 9> kNames{{{DType::fp32, "fp32"},
                                                 {DType::tf32, "tf32"},
                                                 {DType::bf16, "bf16"},
                                                 {DType::fp16, "fp16"},
                                                 {DType::fp8, "fp8"},
                                                 {DType::int8, "int8"},
                                                 {DType::int4, "int4"},
                                                 {DType::int32, "int32"},
                                                 {DType::fp64, "fp64"}}};

// What PyTorch and Hugging Face call them.
constexpr std::array<EnumName<DType>, 4> kTorchNames{{{DType::fp32, "float32"},
                                                      {DType::bf16, "bfloat16"},
                                                      {DType::fp16, "float16"},
                                                      {DType::fp64, "float64"}}};

}  // namespace

std::string_view name(DType t) {
  return name_in(kNames, t);
}

std::optional<DType> dtype_from_name(std::string_view text) {
  if (const auto t = value_in(kNames, text)) return t;
  return value_in(kTorchNames, text);
}

}  // namespace sim
