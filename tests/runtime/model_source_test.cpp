#include "runtime/model_source.h"

#include <fstream>
#include <numeric>

#include "runtime/error.h"
#include "runtime/formats/safetensors.h"
#include "runtime/hugging_face_config.h"
#include "runtime/weights.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

using runtime::WeightNames;
using runtime::WeightPart;

std::vector<std::string> tensor_names(const sim::Model& model, WeightNames names, const char* buffer,
                                      int layer) {
  std::vector<std::string> result;
  for (const WeightPart& part : runtime::weight_parts(model, names, buffer, layer))
    result.push_back(part.tensor);
  return result;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("Packed parameters come from the tensors that Hugging Face and GGUF keep apart") {
  const sim::Model gpt = tests::small_gpt(), llama = tests::small_llama();
  CHECK(tensor_names(llama, WeightNames::hugging_face, "layer.attention.qkv.weight", 2) ==
        Names{"model.layers.2.self_attn.q_proj.weight", "model.layers.2.self_attn.k_proj.weight",
              "model.layers.2.self_attn.v_proj.weight"});
  CHECK(tensor_names(llama, WeightNames::hugging_face, "layer.mlp.gate_up.weight", 0) ==
        Names{"model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight"});
  CHECK(tensor_names(llama, WeightNames::gguf_llama, "layer.mlp.gate_up.weight", 1) ==
        Names{"blk.1.ffn_gate.weight", "blk.1.ffn_up.weight"});
  CHECK(tensor_names(gpt, WeightNames::hugging_face, "layer.attention.qkv.bias", 1) ==
        Names{"h.1.attn.c_attn.bias"});
  CHECK(tensor_names(gpt, WeightNames::gguf, "layer.attention.qkv.weight", 1) ==
        Names{"blk.1.attn_qkv.weight"});
  CHECK_THROWS_AS(runtime::weight_parts(gpt, WeightNames::gguf, "losses", 0), std::invalid_argument);
}

TEST_CASE("Conv1D's matrices are transposed") {
  const sim::Model gpt = tests::small_gpt();
  const auto parts = runtime::weight_parts(gpt, WeightNames::hugging_face, "layer.mlp.up.weight", 0);
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].file_shape() == std::vector<std::int64_t>{gpt.hidden_size, gpt.intermediate_size});
  std::vector<float> out(static_cast<std::size_t>(parts[0].elements()));
  runtime::assemble(
      parts, [](const WeightPart&, std::span<float> file) { std::iota(file.begin(), file.end(), 0.0f); },
      out);
  // (out feature 1, in feature 2) lies in the file at (2, 1).
  CHECK(out[static_cast<std::size_t>(gpt.hidden_size + 2)] ==
        static_cast<float>(2 * gpt.intermediate_size + 1));
}

TEST_CASE("GGUF's interleaved rotary rows return to Hugging Face's halves") {
  // llama.cpp's converter: weights.reshape(heads, 2, head_dim / 2, columns).swapaxes(1, 2).
  const sim::Model llama = tests::small_llama();
  const std::int64_t D = llama.head_dim, C = llama.hidden_size;
  const auto parts = runtime::weight_parts(llama, WeightNames::gguf_llama, "layer.attention.qkv.weight", 0);
  std::vector<float> out(static_cast<std::size_t>(llama.qkv_size() * C));
  runtime::assemble(
      parts,
      [&](const WeightPart& part, std::span<float> file) {
        for (std::int64_t row = 0; row < part.rows;
             ++row)  // each row bears the number of its own in the original
          for (std::int64_t col = 0; col < C; ++col) {
            const std::int64_t head = row / D, pair = row % D / 2, half = row % 2;
            const std::int64_t original = part.interleaved_heads > 0 ? head * D + half * (D / 2) + pair : row;
            file[static_cast<std::size_t>(row * C + col)] = static_cast<float>(original);
          }
      },
      out);
  std::int64_t first = 0;
  for (const WeightPart& part : parts) {
    for (std::int64_t row = 0; row < part.rows; ++row)
      REQUIRE(out[static_cast<std::size_t>((first + row) * C)] == static_cast<float>(row));
    first += part.rows;
  }
}

TEST_CASE("A part in the file's order reads back as it was") {
  for (const auto& [model, names] : {std::pair{tests::small_gpt(), WeightNames::hugging_face},
                                     std::pair{tests::small_llama(), WeightNames::gguf_llama}}) {
    const WeightPart part = runtime::weight_parts(model, names, "layer.attention.qkv.weight", 0)[0];
    std::vector<float> values(static_cast<std::size_t>(part.elements())), back(values.size());
    std::iota(values.begin(), values.end(), 0.0f);
    const std::vector<float> in_file = runtime::file_order(part, values);
    runtime::assemble(
        std::vector{part},
        [&](const WeightPart&, std::span<float> file) {
          std::copy(in_file.begin(), in_file.end(), file.begin());
        },
        back);
    CHECK(back == values);
    CHECK(in_file != values);
  }
}

TEST_CASE("config.json reads back as the model that it was written from") {
  sim::Model model = GENERATE(tests::small_gpt(), tests::small_llama(), tests::small_hybrid());
  if (model.position == sim::Position::rope) {
    model.rope_scaling = {sim::RopeScaling::Kind::llama3, 8, 1, 4, 32};
    model.norm_eps = 1e-6;
  }
  sim::Model back = sim::model_from_hugging_face_config(runtime::hugging_face_config(model), "config.json");
  back.name = model.name;
  back.source = model.source;
  CHECK(back == model);
}

TEST_CASE("A missing or wrongly shaped tensor is named with its file and both shapes") {
  const TemporaryFolder folder;
  const sim::Model model = tests::small_llama();
  std::ofstream(folder.path() / "config.json") << runtime::hugging_face_config(model);
  const std::vector<float> values(48 * 255);
  runtime::write_safetensors(
      folder.path() / "model.safetensors",
      std::vector<runtime::SafetensorsF32>{{"model.embed_tokens.weight", {255, 48}, values}});
  const runtime::ModelSource source = runtime::open_model(folder.path().string());
  std::vector<float> out(256 * 48);
  CHECK_THROWS_WITH(source.load("embedding.weight", 0, out),
                    folder.path().string() +
                        ": tensor model.embed_tokens.weight has shape [255, 48], this model's is [256, 48]");
  std::vector<float> norm(48);
  CHECK_THROWS_WITH(source.load("final_norm.weight", 0, norm),
                    folder.path().string() +
                        ": no tensor model.norm.weight in the safetensors files; this model needs "
                        "it with shape [48]");
}

TEST_CASE("A path that is not there says what a model may be, an unknown preset names those that exist") {
  CHECK_THROWS_AS(runtime::open_model("/nowhere/model.gguf"), runtime::InputError);
  CHECK_THROWS_AS(runtime::open_model("gpt2-123m"), sim::PresetError);
  CHECK(runtime::open_model("tiny-gpt").load == nullptr);
}
