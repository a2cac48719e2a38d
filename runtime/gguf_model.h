// The shape of a GGUF file's model, from its metadata.
#pragma once

#include "runtime/formats/gguf.h"
#include "sim/scenario/model.h"

namespace runtime {

// Architectures llama (Mistral and SmolLM2 are of it too), qwen2 and gpt2. Throws InputError naming file and
// key. Source of the keys: the GGUF specification, "LLM" section, and llama.cpp's converter for qwen2.
sim::Model model_from_gguf(const Gguf& file);

}  // namespace runtime
