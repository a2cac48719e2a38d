// A model's shape as Hugging Face's config.json: the reverse of sim::model_from_hugging_face_config.
#pragma once
#include <string>

#include "sim/scenario/model.h"

namespace runtime {

// Families gpt2 (learned positions), qwen2 (bias on Q, K and V alone) and llama (all others), RoPE settings
// as transformers 4 writes them, which version 5 reads too.
std::string hugging_face_config(const sim::Model& model);

}  // namespace runtime
