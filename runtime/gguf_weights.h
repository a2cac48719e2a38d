// Where the plan's parameters lie in GGUF files. All architectures share their tensors' names.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/weights.h"
#include "sim/scenario/model.h"

namespace runtime {

// As weight_parts() (weights.h), for files in which the rotary halves of queries and keys are interleaved or
// not. Source of the names: llama.cpp, gguf-py/gguf/constants.py.
std::vector<WeightPart> gguf_weight_parts(const sim::Model& model, bool interleaved,
                                          std::string_view buffer_name, std::int32_t layer);

}  // namespace runtime
