// What --model may name: a preset (weights drawn at random), a Hugging Face directory (config.json,
// *.safetensors, tokenizer.json), a GGUF file, or a pretrained model that ./run has fetched
// ("smollm2-135m-instruct").
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/stored_codes.h"
#include "runtime/text/tokenizer.h"
#include "runtime/weights.h"
#include "sim/scenario/model.h"

namespace runtime {

struct ModelSource {
  sim::Model model;
  std::string origin;  // "preset gpt2-124m", a path
  std::optional<Tokenizer> tokenizer;
  // Fills `out` (row-major, in the plan's shape) with the plan's parameter of that name and layer. Null: no
  // weights; draw them. Packs Q, K, V and gate, up; transposes GPT-2's Conv1D; dequantises block formats;
  // undoes GGUF's rotary permutation.
  std::function<void(std::string_view buffer_name, std::int32_t layer, std::span<float> out)> load;
  // The same, as codes. False where the file has none, or not in groups of one length. Null: no codes at all.
  std::function<bool(std::string_view buffer_name, std::int32_t layer, CodedWeight& out)> load_codes{};
  StoredTypes stored{};
  // For an adapter (LoRA); false where the files have none, as those of a model that has only been trained
  // whole.
  std::function<bool(const WeightPart& part, std::span<float> out)> load_adapter = nullptr;
};

// Throws InputError or sim::PresetError, one sentence.
ModelSource open_model(const std::string& name_or_path);

// Names that open_model knows beside the presets, with whether their files are on this machine.
struct PretrainedModel {
  std::string name, file;
  bool present = false;
};
std::vector<PretrainedModel> pretrained_models();

}  // namespace runtime
