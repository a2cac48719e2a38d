#include "runtime/model_source.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runtime/error.h"
#include "runtime/formats/gguf.h"
#include "runtime/formats/safetensors.h"
#include "runtime/gguf_model.h"
#include "runtime/this_machine.h"
#include "runtime/weights.h"
#include "sim/file_text.h"
#include "sim/plan/legality.h"
#include "sim/plan/parameters.h"
#include "sim/scenario/preset.h"

namespace runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSmolLm2 = "smollm2-135m-instruct";

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// A single row may be a vector in the file.
void require_shape(const fs::path& file, const WeightPart& part, std::span<const std::int64_t> shape) {
  const std::vector<std::int64_t> expected = part.file_shape();
  const bool one_row = part.rows == 1 && part.cols > 0 && std::ranges::equal(shape, std::vector{part.cols});
  if (!one_row && !std::ranges::equal(shape, expected))
    throw InputError(file.string() + ": tensor " + part.tensor + " has shape " + shape_text(shape) +
                     ", this model's is " + shape_text(expected));
}

// Files name the model with or without the wrapper around it: GPT2Model and GPT2LMHeadModel, LlamaModel and
// LlamaForCausalLM.
const SafetensorsTensor* find_tensor(const Safetensors& file, const std::string& name) {
  if (const SafetensorsTensor* const tensor = file.find(name)) return tensor;
  if (const SafetensorsTensor* const tensor = file.find("transformer." + name)) return tensor;
  constexpr std::string_view kWrapper = "model.";
  return name.starts_with(kWrapper) ? file.find(name.substr(kWrapper.size())) : nullptr;
}

// Families whose weights mean the same here as in their files. Others can be predicted, and run with random
// weights: GPT-J's head has a bias, ...
constexpr std::string_view kReadFamilies[] = {
    "gpt2",      "llama",      "mistral",     "qwen2",       "qwen3",   "bloom",      "qwen2_moe", "mixtral",
    "qwen3_moe", "nemotron_h", "deepseek_v2", "deepseek_v3", "opt",     "mpt",        "falcon",    "gpt_neox",
    "olmo2",     "gemma",      "gemma2",      "gemma3_text", "gpt_oss", "llama4_text"};

void require_read_family(const std::string& json, const fs::path& file) {
  const auto config = nlohmann::json::parse(json);
  const std::string family = config.value("model_type", "");
  for (const char* const rope : {"rope_scaling", "rope_parameters"})
    if (family.starts_with("deepseek") && config.contains(rope) && config[rope].is_object())
      if (const std::string type = config[rope].value("rope_type", config[rope].value("type", "default"));
          type != "default")
        throw InputError(file.string() + ": " + rope + " is of type \"" + type +
                         "\"; the weights of models with latent attention run without it here");
  if (std::find(std::begin(kReadFamilies), std::end(kReadFamilies), family) != std::end(kReadFamilies))
    return;
  std::string all;
  for (const std::string_view name : kReadFamilies) all += (all.empty() ? "" : ", ") + std::string(name);
  throw InputError(file.string() + ": model_type is \"" + family +
                   "\", whose weights are not read; those of " + all +
                   " are, and without weights in the folder the model runs with ones drawn at random");
}

// The names of one of our fields in files: the keys that families and architectures have for it.
struct FileKeys {
  std::string_view field;
  std::initializer_list<std::string_view> keys;
};
const FileKeys kConfigKeys[] = {
    {"hidden_size", {"hidden_size", "n_embd", "n_embed"}},
    {"intermediate_size", {"intermediate_size", "n_inner", "ffn_dim", "intermediate_size_mlp"}},
    {"num_hidden_layers", {"num_hidden_layers", "n_layer"}},
    {"num_attention_heads", {"num_attention_heads", "n_head"}},
    {"num_key_value_heads", {"num_key_value_heads", "num_kv_heads"}},
    {"head_dim", {"head_dim", "attention_head_dim"}},
    {"max_position_embeddings", {"max_position_embeddings", "n_positions", "seq_length"}},
    {"norm_eps", {"rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps"}},
    {"num_experts", {"num_experts", "num_local_experts", "n_routed_experts"}},
    {"decoder_sparse_step", {"decoder_sparse_step", "interleave_moe_layer_step"}},
};
// Refuses sizes that no plan has; the message names the file and its key. key_of(field) is empty where what
// is wrong follows from other keys.
void require_sound(const sim::Model& model, const fs::path& file, const auto& key_of) {
  const std::vector<sim::Problem> problems = sim::validate(model);
  if (problems.empty()) return;
  const std::string field = problems.front().field.substr(std::string_view("model.").size());
  const std::string key = key_of(field);
  throw InputError(file.string() + ": " + (key.empty() ? field : key) + " " + problems.front().message);
}

ModelSource open_hugging_face(const fs::path& directory) {
  const fs::path config = directory / "config.json";
  const std::optional<std::string> json = sim::file_text(config);
  if (!json)
    throw InputError(
        directory.string() +
        " has no config.json; a model folder holds config.json, *.safetensors and tokenizer.json");

  ModelSource source;
  source.model = sim::model_from_hugging_face_config(*json, config.string());
  require_sound(source.model, config,
                [fields = nlohmann::json::parse(*json)](const std::string& field) -> std::string {
                  for (const FileKeys& row : kConfigKeys)
                    for (const std::string_view known : row.keys)
                      if (row.field == field && fields.contains(known)) return std::string(known);
                  return "";
                });
  if (source.model.name.empty()) source.model.name = fs::weakly_canonical(directory).filename().string();
  source.origin = directory.string();
  if (const fs::path tokenizer = directory / "tokenizer.json"; fs::exists(tokenizer))
    source.tokenizer = Tokenizer::from_tokenizer_json(tokenizer);

  if (!fs::exists(directory / "model.safetensors") &&
      !fs::exists(directory / "model.safetensors.index.json")) {
    if (fs::exists(directory / "pytorch_model.bin") || fs::exists(directory / "pytorch_model.bin.index.json"))
      throw InputError(directory.string() +
                       " has its weights in pytorch_model.bin; save them as model.safetensors");
    source.origin += " (no weights: drawn at random)";
    return source;
  }
  require_read_family(*json, config);
  const auto weights = std::make_shared<const Safetensors>(Safetensors::open(directory));
  source.load_adapter = [weights, directory](const WeightPart& part, std::span<float> out) {
    const SafetensorsTensor* const tensor = find_tensor(*weights, part.tensor);
    if (!tensor) return false;
    require_shape(directory, part, tensor->shape);
    weights->read_as_f32(tensor->name, out);
    return true;
  };
  source.load = [file = weights, model = source.model, directory](std::string_view buffer_name,
                                                                  std::int32_t layer, std::span<float> out) {
    const auto read = [&](const WeightPart& part, std::span<float> values) {
      const SafetensorsTensor* const tensor = find_tensor(*file, part.tensor);
      if (!tensor)
        throw InputError(directory.string() + ": no tensor " + part.tensor +
                         " in the safetensors files; this model needs it with shape " +
                         shape_text(part.file_shape()));
      require_shape(directory, part, tensor->shape);
      file->read_as_f32(tensor->name, values);
    };
    assemble(weight_parts(model, WeightNames::hugging_face, buffer_name, layer), read, out);
  };
  return source;
}

ModelSource open_gguf(const fs::path& path) {
  const auto file = std::make_shared<const Gguf>(Gguf::open(path));
  ModelSource source;
  source.model = model_from_gguf(*file);
  require_sound(source.model, path, [&](const std::string& field) { return gguf_key_of(*file, field); });
  source.origin = path.string();
  // Byte-level BPE; a file with another kind of vocabulary still runs on token ids.
  if (file->has("tokenizer.ggml.model") && file->string("tokenizer.ggml.model") == "gpt2")
    source.tokenizer = Tokenizer::from_gguf(*file);
  const WeightNames names = gguf_weight_names(*file);
  source.load = [file, names, model = source.model, path](std::string_view buffer_name, std::int32_t layer,
                                                          std::span<float> out) {
    const auto read = [&](const WeightPart& part, std::span<float> values) {
      const GgufTensor* const tensor = file->find(part.tensor);
      if (!tensor)
        throw InputError(path.string() + ": no tensor " + part.tensor + "; this model needs it with shape " +
                         shape_text(part.file_shape()));
      require_shape(path, part, tensor->shape);
      file->read_as_f32(part.tensor, values);
    };
    assemble(weight_parts(model, names, buffer_name, layer), read, out);
  };
  source.stored = stored_types(*file, names, source.model);
  source.load_codes = [file, names, model = source.model, path](std::string_view buffer_name,
                                                                std::int32_t layer, CodedWeight& out) {
    out = {};
    const std::vector<WeightPart> parts = weight_parts(model, names, buffer_name, layer);
    const std::vector<RowPlace> places = row_places(parts);
    std::int64_t rows = 0;
    for (const WeightPart& part : parts) rows += part.rows;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const GgufTensor* const tensor = file->find(parts[p].tensor);
      if (!tensor) return false;  // reading its values says what is wrong
      require_shape(path, parts[p], tensor->shape);
      if (!read_codes_of_part(*tensor, parts[p], places[p], rows, out)) return false;
    }
    return true;
  };
  return source;
}

ModelSource open_preset(const std::string& name) {
  ModelSource source;
  source.model = sim::load_model_preset(name);
  source.origin = "preset " + name;
  if (Tokenizer bytes = Tokenizer::bytes(); source.model.vocab_size == bytes.vocab_size())
    source.tokenizer = std::move(bytes);
  return source;
}

// Without a home folder, the file is named as scripts/fetch_model would name it, and does not exist.
fs::path pretrained_file(std::string_view name) {
  return cache_directory().value_or("~/.cache/ridgepoint") / "models" / (std::string(name) + ".gguf");
}

}  // namespace

std::vector<PretrainedModel> pretrained_models() {
  const fs::path file = pretrained_file(kSmolLm2);
  std::error_code ignored;
  const bool present = cache_directory() && fs::is_regular_file(file, ignored);
  return {{std::string(kSmolLm2), file.string(), present}};
}

ModelSource open_model(const std::string& name_or_path) {
  for (const PretrainedModel& known : pretrained_models()) {
    if (known.name != name_or_path) continue;
    if (!known.present)
      throw InputError("the pretrained model " + known.name + " is not at " + known.file +
                       ": scripts/fetch_model fetches it, as ./run does when it starts");
    ModelSource source = open_gguf(known.file);
    source.model.name = known.name;
    return source;
  }
  const std::vector<std::string> presets = sim::preset_names(sim::PresetKind::model);
  if (std::find(presets.begin(), presets.end(), name_or_path) != presets.end())
    return open_preset(name_or_path);

  const fs::path path = name_or_path;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return open_hugging_face(path);
  if (fs::is_regular_file(status)) return open_gguf(path);
  if (path.has_parent_path() || path.extension() == ".gguf")
    throw InputError(name_or_path +
                     " does not exist; --model takes a preset, a Hugging Face folder or a GGUF file");
  return open_preset(name_or_path);  // throws, naming the nearest presets
}

}  // namespace runtime
