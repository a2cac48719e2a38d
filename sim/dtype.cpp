#include "sim/dtype.h"

#include <utility>

namespace sim {

template <>
std::optional<DType> from_name<DType>(std::string_view word) {
  // What PyTorch and Hugging Face call them.
  constexpr std::pair<std::string_view, DType> kTorchNames[] = {{"float32", DType::fp32},
                                                                {"bfloat16", DType::bf16},
                                                                {"float16", DType::fp16},
                                                                {"float64", DType::fp64}};
  for (const auto& [torch_name, type] : kTorchNames)
    if (torch_name == word) return type;
  return value_of<DType>(word);
}

}  // namespace sim
