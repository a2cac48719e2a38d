// The shape of a GGUF file's model, from its metadata.
#pragma once

#include "runtime/formats/gguf.h"
#include "runtime/weights.h"
#include "sim/scenario/model.h"

namespace runtime {

// What the metadata says is written in the words of a config.json, whose reader knows the families
// (sim/scenario/hugging_face_config.cpp); architectures are those of gguf_model.cpp's table. Throws
// InputError naming file and key. Source of the keys: the GGUF specification, "LLM" section, and llama.cpp's
// converter and loader, which also say what files leave out.
sim::Model model_from_gguf(const Gguf& file);

// Its tensors' names, and whether rotary halves are interleaved.
WeightNames gguf_weight_names(const Gguf& file);

// The key of the file that the model's field comes from; empty where there is none.
std::string gguf_key_of(const Gguf& file, std::string_view field);

}  // namespace runtime
