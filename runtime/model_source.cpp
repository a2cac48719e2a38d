#include "runtime/model_source.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
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
#include "sim/scenario/layer_list.h"
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

void require_shape(const fs::path& file, const WeightPart& part, std::span<const std::int64_t> shape) {
  const std::vector<std::int64_t> expected = part.file_shape();
  if (!std::equal(shape.begin(), shape.end(), expected.begin(), expected.end()))
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
  const std::string family = nlohmann::json::parse(json).value("model_type", "");
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
const FileKeys kGgufKeys[] = {
    {"hidden_size", {"embedding_length"}},
    {"intermediate_size", {"feed_forward_length"}},
    {"num_hidden_layers", {"block_count"}},
    {"num_attention_heads", {"attention.head_count"}},
    {"num_key_value_heads", {"attention.head_count_kv"}},
    {"head_dim", {"attention.key_length"}},
    {"max_position_embeddings", {"context_length"}},
    {"norm_eps", {"attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"}},
    {"rope_theta", {"rope.freq_base"}},
    {"rope_scaling.factor", {"rope.scaling.factor"}},
};

// Refuses sizes that no plan has; the message names the file and its key. `is_there` looks for a key.
void require_sound(const sim::Model& model, const fs::path& file, std::span<const FileKeys> table,
                   const std::string& prefix, const auto& is_there) {
  const std::vector<sim::Problem> problems = sim::validate(model);
  if (problems.empty()) return;
  const std::string field = problems.front().field.substr(std::string_view("model.").size());
  std::string key = field;  // what follows from other keys has ours
  for (const FileKeys& row : table)
    if (row.field == field)
      for (const std::string_view known : row.keys)
        if (is_there(prefix + std::string(known))) key = prefix + std::string(known);
  throw InputError(file.string() + ": " + key + " " + problems.front().message);
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
  require_sound(
      source.model, config, kConfigKeys, "",
      [fields = nlohmann::json::parse(*json)](const std::string& key) { return fields.contains(key); });
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

constexpr std::int64_t kCodedGroup = 32;  // columns that share a scale in all of GGUF's codes

using Tensors = std::vector<const GgufTensor*>;

// The type, in a workload's terms, that holds the codes of all these tensors; empty where some tensor is not
// coded, or its rows are no whole groups.
std::optional<sim::DType> type_of(const Tensors& tensors) {
  int most = 0;
  for (const GgufTensor* tensor : tensors) {
    // Blocks with a scale for 16 columns (Q2_K, Q3_K, Q6_K): their values are rounded to 8 bits anew.
    const bool in_blocks = ggml_type_info(tensor->type).elements > 1;
    const int bits = in_blocks && code_bits(tensor->type) == 0 ? 8 : code_bits(tensor->type);
    if (bits == 0 || tensor->shape.back() % kCodedGroup != 0) return std::nullopt;
    most = std::max(most, bits);
  }
  if (most == 0) return std::nullopt;
  return most <= 4 ? sim::DType::int4 : sim::DType::int8;
}

// The tensors of the product's weight in each layer.
std::vector<Tensors> tensors_of(const Gguf& file, WeightNames names, const sim::Model& model,
                                sim::LayerProduct product) {
  const std::string weight = std::string(sim::name_of(model, product)) + ".weight";
  std::vector<Tensors> layers;
  for (std::int32_t layer = 0; layer < model.num_hidden_layers; ++layer) {
    Tensors& tensors = layers.emplace_back();
    for (const WeightPart& part : weight_parts(model, names, weight, layer))
      if (const GgufTensor* const tensor = file.find(part.tensor)) tensors.push_back(tensor);
    if (tensors.empty()) return {};  // whoever reads it will say what is missing
  }
  return layers;
}

// A product's weight in each layer, and the type that each fits into.
struct StoredProduct {
  std::string_view word;  // LayerProduct's
  std::vector<Tensors> tensors;
  std::vector<std::optional<sim::DType>> types;

  bool has(std::optional<sim::DType> type) const { return std::ranges::count(types, type) > 0; }
  bool is_coded() const { return !types.empty() && !has(std::nullopt); }
};

std::vector<StoredProduct> stored_products(const Gguf& file, WeightNames names, const sim::Model& model) {
  std::vector<StoredProduct> products;
  for (const std::string_view word : sim::words_of<sim::LayerProduct>()) {
    StoredProduct& p = products.emplace_back();
    p.word = word;
    p.tensors = tensors_of(file, names, model, *sim::value_of<sim::LayerProduct>(word));
    for (const Tensors& tensors : p.tensors) p.types.push_back(type_of(tensors));
  }
  return products;
}

// Names what is in int8 beside int4: each product that is so in some layer is in all layers where any is.
void set_int8_weights(std::span<const StoredProduct> products, std::int64_t layers, StoredTypes& stored) {
  std::set<std::int64_t> in_int8;
  for (const StoredProduct& product : products) {
    if (!product.has(sim::DType::int8)) continue;
    stored.int8_weights.emplace_back(product.word);
    for (std::size_t layer = 0; layer < product.types.size(); ++layer)
      if (product.types[layer] == sim::DType::int8) in_int8.insert(static_cast<std::int64_t>(layer));
  }
  if (std::ssize(in_int8) < layers) {
    stored.int8_layers = sim::layer_list({in_int8.begin(), in_int8.end()});
  } else if (stored.int8_weights.size() == products.size()) {
    stored.weights = sim::DType::int8;
    stored.int8_weights.clear();
  }
}

StoredTypes stored_types(const Gguf& file, WeightNames names, const sim::Model& model) {
  const std::vector<StoredProduct> products = stored_products(file, names, model);
  Tensors vocabulary;
  for (const char* const name : {"token_embd.weight", "output.weight"})
    if (const GgufTensor* const tensor = file.find(name)) vocabulary.push_back(tensor);

  StoredTypes stored;
  stored.embedding = type_of(vocabulary);
  const bool coded = std::ranges::all_of(products, &StoredProduct::is_coded);
  const bool some_in_4_bits =
      std::ranges::any_of(products, [](const StoredProduct& p) { return p.has(sim::DType::int4); });
  if (coded) stored.weights = some_in_4_bits ? sim::DType::int4 : sim::DType::int8;
  if (!stored.weights && !stored.embedding) return stored;
  stored.group = kCodedGroup;
  if (coded && some_in_4_bits) set_int8_weights(products, model.num_hidden_layers, stored);

  // Zeros are for what has minima of its own, in the types that may have them.
  sim::Workload workload;
  stored.set(workload);
  const auto needs_zeros = [&](const Tensors& tensors, std::optional<sim::DType> type) {
    return type && sim::has_zeros(workload, *type) &&
           !std::ranges::all_of(tensors, [](const GgufTensor* t) { return is_around_zero(t->type); });
  };
  stored.zeros = needs_zeros(vocabulary, stored.embedding);
  for (const StoredProduct& product : products)
    for (std::size_t layer = 0; coded && layer < product.types.size(); ++layer)
      stored.zeros = stored.zeros || needs_zeros(product.tensors[layer], product.types[layer]);
  return stored;
}

// Appends a part's rows to `out`, in the plan's order; false where the file has other codes for it.
bool append_codes(const GgufTensor& tensor, const WeightPart& part, CodedWeight& out) {
  const int bits = code_bits(tensor.type);
  if (bits == 0 || part.transposed || part.cols == 0 || part.cols % kCodedGroup != 0) return false;
  const auto cols = static_cast<std::size_t>(part.cols);
  const auto groups = static_cast<std::size_t>(part.cols / kCodedGroup);
  const std::size_t row_bytes = tensor.bytes.size() / static_cast<std::size_t>(part.rows);
  const std::size_t first = out.codes.size() / cols, rows = static_cast<std::size_t>(part.rows);
  out.bits = std::max(out.bits, bits);
  out.codes.resize((first + rows) * cols);
  out.scales.resize((first + rows) * groups);
  out.minima.resize((first + rows) * groups);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto there = static_cast<std::size_t>(part.file_row(static_cast<std::int64_t>(r)));
    const std::size_t here = first + r;
    read_codes(tensor.type, tensor.bytes.subspan(there * row_bytes, row_bytes),
               std::span(out.codes).subspan(here * cols, cols),
               std::span(out.scales).subspan(here * groups, groups),
               std::span(out.minima).subspan(here * groups, groups));
  }
  return true;
}

ModelSource open_gguf(const fs::path& path) {
  const auto file = std::make_shared<const Gguf>(Gguf::open(path));
  ModelSource source;
  source.model = model_from_gguf(*file);
  require_sound(source.model, path, kGgufKeys, std::string(file->string("general.architecture")) + ".",
                [&file](const std::string& key) { return file->has(key); });
  source.origin = path.string();
  // Byte-level BPE; a file with another kind of vocabulary still runs on token ids.
  if (file->has("tokenizer.ggml.model") && file->string("tokenizer.ggml.model") == "gpt2")
    source.tokenizer = Tokenizer::from_gguf(*file);
  const WeightNames names =
      file->string("general.architecture") == "llama" ? WeightNames::gguf_llama : WeightNames::gguf;
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
    out.group = kCodedGroup;
    for (const WeightPart& part : weight_parts(model, names, buffer_name, layer)) {
      const GgufTensor* const tensor = file->find(part.tensor);
      if (!tensor) return false;  // reading its values says what is wrong
      require_shape(path, part, tensor->shape);
      if (!append_codes(*tensor, part, out)) return false;
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

void StoredTypes::set(sim::Workload& workload) const {
  workload.weights_dtype = weights;
  workload.embedding_dtype = embedding;
  workload.weights_group = group;
  workload.weights_zeros = zeros;
  workload.int8_weights = int8_weights;
  workload.int8_layers = int8_layers;
}

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
