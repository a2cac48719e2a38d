#include "runtime/model_source.h"

#include <algorithm>
#include <fstream>
#include <numeric>

#include "runtime/error.h"
#include "runtime/formats/safetensors.h"
#include "runtime/hugging_face_config.h"
#include "runtime/weights.h"
#include "sim/plan/legality.h"
#include "tests/runtime/llama_file.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

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
  CHECK(tensor_names(llama, WeightNames::gguf_interleaved, "layer.mlp.gate_up.weight", 1) ==
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
  const auto parts =
      runtime::weight_parts(llama, WeightNames::gguf_interleaved, "layer.attention.qkv.weight", 0);
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
                                     std::pair{tests::small_llama(), WeightNames::gguf_interleaved}}) {
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

TEST_CASE("A file that mixes types is held in the types that hold its codes in the fewest bits") {
  struct Case {
    const char* file;
    tests::TypeOfTensor type_of;
    std::optional<sim::DType> weights, embedding;
    std::map<sim::LayerProduct, sim::DType> own;
    std::string mixed_layers;
    bool zeros;
  };
  using runtime::GgmlType;
  using enum GgmlType;
  using sim::DType;
  using enum sim::LayerProduct;
  const auto more_in = [](GgmlType few, GgmlType more, const Names& tensors) {
    return [=](std::string_view tensor, int layer) {
      const bool named = std::ranges::find(tensors, tensor) != tensors.end();
      return tensor == "token_embd" || (named && layer == 1) ? more : few;
    };
  };
  const auto q3_k_m = [](std::string_view tensor, int layer) {
    return tensor == "token_embd"    ? q6_k
           : tensor == "ffn_down"    ? (layer == 0 ? q5_k : q4_k)
           : tensor == "attn_output" ? q4_k
                                     : q3_k;
  };
  // Queries, keys and values are one weight here: where values are in Q6_K beside others in Q4_K, int8 alone
  // holds all of them.
  const Case cases[] = {
      {"Q4_K_M",
       more_in(q4_k, q6_k, {"attn_v", "ffn_down"}),
       DType::q4_k,
       DType::q6_k,
       {{qkv, DType::int8}, {down, DType::q6_k}},
       "1",
       false},
      {"Q4_K_S", more_in(q4_k, q5_k, {"attn_v"}), DType::q4_k, DType::q5_k, {{qkv, DType::q5_k}}, "1", false},
      {"Q4_0", more_in(q4_0, q6_k, {}), DType::int4, DType::q6_k, {}, "", false},
      {"Q4_1", more_in(q4_1, q6_k, {}), DType::int4, DType::q6_k, {}, "", true},
      {"Q4_0, one layer in Q8_0",
       more_in(q4_0, q8_0, {"ffn_gate"}),
       DType::int4,
       DType::int8,
       {{up, DType::int8}},
       "1",
       false},
      {"Q5_K_M",
       more_in(q5_k, q6_k, {"attn_v", "ffn_down"}),
       DType::q5_k,
       DType::q6_k,
       {{qkv, DType::int8}, {down, DType::q6_k}},
       "1",
       false},
      {"Q3_K_M", q3_k_m, DType::q3_k, DType::q6_k, {{output, DType::q4_k}, {down, DType::q5_k}}, "", false},
      {"Q2_K",
       more_in(q2_k, q3_k, {"attn_v", "ffn_down"}),
       DType::q2_k,
       DType::q3_k,
       {{qkv, DType::int8}, {down, DType::q3_k}},
       "1",
       false},
      {"Q6_K", more_in(q6_k, q6_k, {}), DType::q6_k, DType::q6_k, {}, "", false},
      {"Q5_0, one tensor in Q4_K", more_in(q5_0, q4_k, {"ffn_down"}), DType::int5, DType::q4_k, {}, "", true},
      {"IQ4_NL", more_in(iq4_nl, iq4_nl, {}), DType::int8, DType::int8, {}, "", false},
      {"Q4_0, one tensor and the embedding in F16", more_in(q4_0, f16, {"ffn_up"}), {}, {}, {}, "", true},
  };
  const TemporaryFolder folder;
  for (const Case& c : cases) {
    CAPTURE(c.file);
    const runtime::ModelSource source =
        runtime::open_model(folder.write("model.gguf", tests::llama_of_types(c.type_of)).string());
    CHECK(source.stored.weights == c.weights);
    CHECK(source.stored.embedding == c.embedding);
    CHECK(source.stored.own == c.own);
    CHECK(source.stored.mixed_layers == c.mixed_layers);
    CHECK(source.stored.zeros == c.zeros);
    sim::Scenario scenario = tests::generation(source.model, 2);
    source.stored.set(scenario.workload);
    CHECK(sim::validate(scenario).empty());
  }
}

TEST_CASE(
    "A head with weights of its own is held in a type of its own, and one without codes as it is computed") {
  using enum runtime::GgmlType;
  using sim::DType;
  const TemporaryFolder folder;
  const auto stored = [&](runtime::GgmlType embedding, std::optional<runtime::GgmlType> head) {
    const auto type_of = [=](std::string_view tensor, int) {
      return tensor == "token_embd" ? embedding : q4_k;
    };
    const runtime::ModelSource source =
        runtime::open_model(folder.write("model.gguf", tests::llama_of_types(type_of, head)).string());
    CHECK(source.model.tie_word_embeddings == !head);
    return std::pair(source.stored.embedding, source.stored.head);
  };
  using Types = std::pair<std::optional<DType>, std::optional<DType>>;
  CHECK(stored(q4_k, q6_k) == Types(DType::q4_k, DType::q6_k));  // as in Q4_K_M
  CHECK(stored(q4_k, q4_k) == Types(DType::q4_k, std::nullopt));
  CHECK(stored(q4_k, std::nullopt) == Types(DType::q4_k, std::nullopt));
  CHECK(stored(f16, q6_k) == Types(std::nullopt, DType::q6_k));
  CHECK(stored(q6_k, f16) == Types(std::nullopt, std::nullopt));
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
