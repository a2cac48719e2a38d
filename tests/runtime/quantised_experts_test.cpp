// Generation with experts' weights, and latent attention's, in fewer bits: logits are those of the values
// that the codes stand for.
#include <cmath>
#include <string>
#include <vector>

#include "runtime/cpu/arguments.h"
#include "runtime/error.h"
#include "runtime/generate.h"
#include "runtime/initial_values.h"
#include "sim/cost/predict.h"
#include "sim/plan/builder.h"
#include "sim/plan/programs.h"
#include "tests/runtime/shrunk_model.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

using sim::DType;

// A model of a preset, small, whose weights have rows of whole multiples of `columns`.
sim::Model small_model(const std::string& preset, std::int64_t columns) {
  sim::Model m = tests::shrunk(sim::load_model_preset(preset));
  // As published: in int4 with a scale of 8 bits, which the CPU's kernels have otherwise.
  if (preset.starts_with("gpt-oss")) m.moe.weights_dtype = DType::int4, m.moe.weights_group = 32;
  m.hidden_size = std::max<std::int64_t>(64, columns);
  m.intermediate_size = m.moe.moe_intermediate_size = columns;
  if (m.moe.shared_expert_intermediate_size > 0) m.moe.shared_expert_intermediate_size = columns;
  const std::int64_t of_head = std::max<std::int64_t>(16, columns / m.num_attention_heads);
  if (!m.has_latent_attention()) {
    m.head_dim = of_head;
    return m;
  }
  m.latent.kv_lora_rank = columns;
  if (m.latent.q_lora_rank > 0) m.latent.q_lora_rank = columns;
  m.latent.v_head_dim = of_head;
  return m;
}

// Random weights, and biases that are not zero.
void draw(const sim::Model& model, std::string_view name, std::int32_t layer, std::span<float> out) {
  runtime::draw_parameter(model, 1, name, layer, out);
  if (!name.ends_with(".bias")) return;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = 0.01f * static_cast<float>(i % 7) - 0.03f;
}

runtime::ModelSource drawn(const sim::Model& model) {
  runtime::ModelSource source = tests::drawn(model);
  source.load = [model](std::string_view name, std::int32_t layer, std::span<float> out) {
    draw(model, name, layer, out);
  };
  return source;
}

// The values that a scenario's codes stand for, of the weights that it stores in fewer than 16 bits.
runtime::ModelSource values_of_codes(const sim::Scenario& coded) {
  runtime::ModelSource source = tests::drawn(coded.model);
  source.load = [coded, plan = sim::make_plan(coded)](std::string_view name, std::int32_t layer,
                                                      std::span<float> out) {
    draw(coded.model, name, layer, out);
    sim::BufferId id = plan.find(std::string(name));
    const sim::BufferId mixed = plan.find("mixed." + std::string(name));
    if (mixed != sim::kNoBuffer && sim::kind_of_layer(coded, layer).mixed) id = mixed;
    const sim::Buffer& buffer = plan.buffer(id);
    if (sim::bits(buffer.dtype) >= 16) return;
    const sim::Workload& w = coded.workload;
    const kernels::QuantisedFormat format =
        runtime::quantised_format(buffer.dtype, w.weights_group, sim::has_zeros(w, buffer.dtype));
    const std::int64_t columns = buffer.shape.back().factor,
                       rows = static_cast<std::int64_t>(out.size()) / columns;
    std::vector<std::byte> codes(static_cast<std::size_t>(format.code_bytes(rows, columns))),
        numbers(static_cast<std::size_t>(format.number_bytes(rows, columns)));
    const kernels::QuantisedWeight weight{codes.data(), numbers.data(), format};
    kernels::cpu::quantise(weight, out.data(), rows, columns);
    kernels::cpu::dequantise(out.data(), weight, rows, columns);
  };
  return source;
}

runtime::GenerateSettings reading_six() {
  runtime::GenerateSettings settings;
  settings.prompt = {1, 2, 3, 5, 8};
  settings.read = {13, 21, 34, 55, 89, 144};
  settings.device.threads = 2;
  return settings;
}

// Relative, by the root mean square.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - b[i];
    difference += d * d;
    size += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(difference / size);
}

std::int64_t parameter_bytes(const sim::Report& report) {
  std::int64_t bytes = 0;
  for (const sim::MemoryLine& line : report.memory)
    if (line.category == "parameter") bytes += line.bytes.value;
  return bytes;
}

struct Stored {
  std::int64_t columns;
  std::optional<DType> weights, experts, up, down;
  std::string layers;
  bool zeros = true;
};

sim::Scenario stored_as(const Stored& stored, const std::string& preset) {
  sim::Scenario s = tests::generation(small_model(preset, stored.columns), 6);
  s.workload.prompt_length = 5;
  s.workload.weights_dtype = stored.weights;
  s.workload.expert_weights_dtype = stored.experts;
  s.workload.up_dtype = stored.up;
  s.workload.down_dtype = stored.down;
  s.workload.mixed_layers = stored.layers;
  s.workload.weights_group = 32;
  s.workload.weights_zeros = stored.zeros;
  return s;
}

}  // namespace

TEST_CASE(
    "Experts and latent attention in 2 to 8 bits give the logits of the values that their codes stand for, "
    "for "
    "a prompt and from token to token, in the memory that was predicted") {
  const std::string preset =
      GENERATE("mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v2-lite", "deepseek-v3",
               "qwen1.5-moe-a2.7b", "llama-4-scout", "nemotron-3-nano-30b-a3b");
  const Stored stored = GENERATE(
      Stored{32, DType::int8, {}, {}, {}, "", true}, Stored{32, DType::int4, {}, {}, {}, "", true},
      Stored{32, DType::int5, DType::int8, {}, {}, "", false}, Stored{32, {}, DType::int4, {}, {}, "", true},
      Stored{32, {}, DType::int4, {}, DType::int8, "1-2", true},
      Stored{256, DType::q4_k, {}, {}, DType::q6_k, "0,2", true},
      Stored{256, DType::q5_k, DType::q2_k, DType::q3_k, {}, "", true});
  CAPTURE(preset, stored.columns, stored.layers, stored.zeros);
  const sim::Scenario s = stored_as(stored, preset);
  if (s.model.is_hybrid() && stored.columns > 32) return;  // its states are no whole blocks of columns
  const runtime::GenerateSettings settings = reading_six();
  const runtime::Generation codes = runtime::generate(s, drawn(s.model), settings, {}, {});
  sim::Scenario wide = s;
  for (const auto type : {&sim::Workload::weights_dtype, &sim::Workload::expert_weights_dtype,
                          &sim::Workload::up_dtype, &sim::Workload::down_dtype})
    (wide.workload.*type).reset();
  wide.workload.mixed_layers.clear();
  const runtime::Generation values = runtime::generate(wide, values_of_codes(s), settings, {}, {});
  CHECK(distance(codes.first_logits, values.first_logits) < 1e-3);  // activations are rounded to 16 bits
  CHECK(codes.first_logits != values.first_logits);
  REQUIRE(codes.report.tokens.size() == 6);
  for (std::size_t t = 0; t < 6; ++t)
    CHECK(codes.report.tokens[t].surprise.value() ==
          Approx(values.report.tokens[t].surprise.value()).epsilon(1e-4));
  CHECK(parameter_bytes(codes.report) == parameter_bytes(sim::predict(s)));
  CHECK(parameter_bytes(codes.report) < parameter_bytes(values.report));
}

TEST_CASE("In bf16 experts in fewer bits give fp32's logits to the roundings of activations") {
  const std::string preset = GENERATE("mixtral-8x7b", "qwen1.5-moe-a2.7b");
  sim::Scenario s = stored_as({32, DType::int8, {}, {}, {}, "", true}, preset);
  const runtime::Generation wide = runtime::generate(s, drawn(s.model), reading_six(), {}, {});
  s.workload.dtype = DType::bf16;
  s.hardware.peak[DType::bf16] = sim::tflops(0.1);
  const runtime::Generation narrow = runtime::generate(s, drawn(s.model), reading_six(), {}, {});
  constexpr double kHalfStep = 0x1p-9, kTensorsOfLayer = 12;
  CHECK(distance(narrow.first_logits, wide.first_logits) <
        std::sqrt(kTensorsOfLayer * static_cast<double>(s.model.num_hidden_layers)) * 2 * kHalfStep);
  CHECK(narrow.first_logits != wide.first_logits);
}

TEST_CASE("Experts whose weights are no whole tiles of 16 rows are refused before a run in fewer bits") {
  sim::Scenario s = stored_as({32, DType::int8, {}, {}, {}, "", true}, "mixtral-8x7b");
  s.model.hidden_size = 72;
  s.workload.weights_dtype.reset();
  s.workload.expert_weights_dtype = DType::int8;
  s.workload.weights_group = 0;
  CHECK_THROWS_AS(runtime::generate(s, drawn(s.model), reading_six(), {}, {}), runtime::NoDevice);
  CHECK_THROWS_WITH(runtime::generate(s, drawn(s.model), reading_six(), {}, {}),
                    "rows of layer.experts.gate_up.weight have 72 columns, which are no whole groups of "
                    "workload.weights_group 0 in multiples of 32");
  s.model.hidden_size = 64;
  s.model.moe.moe_intermediate_size = 20;
  CHECK_THROWS_WITH(
      runtime::generate(s, drawn(s.model), reading_six(), {}, {}),
      "experts have 40 rows each in layer.experts.gate_up.weight; in int8 they run with a multiple "
      "of 16");
}
