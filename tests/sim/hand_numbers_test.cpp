// Figures that others published or that follow by hand from a shape, each with where it stands. "Lecture"
// is what courses on large models teach.
#include <cmath>
#include <optional>
#include <string>

#include "sim/cost/calibration_preset.h"
#include "sim/cost/predict.h"
#include "sim/cost/work.h"
#include "sim/scenario/preset.h"
#include "sim/serving/served_batch.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

TEST_CASE("models whose norms leave out biases or gains have their published counts of parameters") {
  struct Count {
    const char* model;
    std::int64_t parameters;
    const char* source;
  };
  const Count c = GENERATE(
      Count{"dbrx-132b", 131'596'523'520, "safetensors of https://huggingface.co/databricks/dbrx-base"},
      Count{"olmo-1b", 1'176'764'416, "safetensors of https://huggingface.co/allenai/OLMo-1B-hf"},
      Count{"olmo-7b", 6'888'095'744, "safetensors of https://huggingface.co/allenai/OLMo-7B-hf"},
      // By hand: h V + L (2h^2 + 2h d + 3h f + h) + h with one key-value head and one norm a layer; table 1
      // of arXiv 2204.02311 prints 8.63, 62.50 and 540.35 billion.
      Count{"palm-8b", 8'632'012'800, "arXiv 2204.02311"},
      Count{"palm-62b", 62'495'662'080, "arXiv 2204.02311"},
      Count{"palm-540b", 540'356'474'880, "arXiv 2204.02311"});
  CAPTURE(c.model, c.source);
  const Model m = load_model_preset(c.model);
  CHECK(count_parameters(m).total == c.parameters);

  // The plan has as many, tensor by tensor.
  Scenario s = test::training(m, 128);
  const Plan plan = make_plan(s);
  std::int64_t planned = 0;
  for (const Buffer& buffer : plan.buffers)
    if (buffer.buffer_class == BufferClass::parameter)
      planned += buffer.bytes(Variables{}).value / 2 * (buffer.per_layer ? m.num_hidden_layers : 1);
  CHECK(planned == c.parameters);
}

TEST_CASE("without biases and norms a GPT has 12 L D^2 + D V parameters, and another D V untied (lecture)") {
  Model m = test::gpt(1024, 24, 16, 50304, 2048);
  m.position = Position::none;
  m.norm_parameters = NormParameters::none;
  m.attention_bias = m.attention_output_bias = m.mlp_bias = false;
  const std::int64_t matrices = std::int64_t{12} * 24 * 1024 * 1024, table = std::int64_t{1024} * 50304;
  CHECK(count_parameters(m).total == matrices + table);
  m.tie_word_embeddings = false;
  CHECK(count_parameters(m).total == matrices + 2 * table);
}

TEST_CASE(
    "a step has 6 FLOPs a multiplied parameter and token, and 12 L N D a token of attention (lecture)") {
  Scenario s = test::training(test::gpt(1024, 24, 16, 50304, 2048), 2048);
  s.implementation = test::megatron_2022();  // attention over all pairs
  const Plan plan = make_plan(s);
  double products = 0, attention = 0;
  for (const Program& program : plan.programs)
    for (const Action& a : program.actions)
      for (const Operation& op : plan.blocks[static_cast<std::size_t>(a.block)].operations) {
        const double flops = work_of(plan, op, a.variables).flops.value;
        if (is_product(op.kind)) products += flops;
        if (is_attention(op.kind)) attention += flops;
      }
  const double tokens = 2048, L = 24, D = 1024, N = 2048, V = 50304;
  CHECK(products == Approx(6 * tokens * (12 * L * D * D + D * V)).epsilon(1e-3));
  CHECK(attention == Approx(12 * L * N * D * tokens).epsilon(0.05));  // and its softmax
}

TEST_CASE("the chips' rates are the datasheets' without sparsity (lecture)") {
  const Hardware a100 = load_hardware_preset("a100-sxm-80gb"), h100 = load_hardware_preset("h100-sxm"),
                 small = load_hardware_preset("a100-sxm-40gb");
  const auto tflops_of = [](const Hardware& h, DType t) { return h.peak_for(t).value / 1e12; };
  CHECK(tflops_of(a100, DType::fp32) == 19.5);
  CHECK(tflops_of(a100, DType::tf32) == 156);
  CHECK(tflops_of(a100, DType::bf16) == 312);  // 624 with sparsity
  CHECK(tflops_of(a100, DType::int8) == 624);
  CHECK(a100.memory_bandwidth == gb_per_s(2039));
  CHECK(a100.power_w == 400);
  CHECK(a100.node_link == gb_per_s(600.0 / 2));  // of both directions
  CHECK(tflops_of(h100, DType::bf16) == 989);    // 1,979 with sparsity
  CHECK(tflops_of(h100, DType::fp8) == 1979);
  CHECK(h100.memory_bandwidth == gb_per_s(3350));
  CHECK(h100.memory == gib(80));
  CHECK(h100.power_w == 700);
  CHECK(h100.node_link == gb_per_s(900.0 / 2));
  CHECK(h100.host_link == gb_per_s(128.0 / 2));
  CHECK(small.memory == gib(40));  // the memory hierarchy of the FlashAttention paper: 40 GB at 1.5 TB/s
  CHECK(small.memory_bandwidth.value / 1e12 == Approx(1.5).epsilon(0.05));
}

TEST_CASE(
    "selective recompute of 175B frees 70 % of activations for 2.7 % more time, full costs 30 to 40 %") {
  // Korthikanti et al. 2022 (arXiv 2205.05198), section 5 (70 %, 2.7 %) and table 4: a layer without
  // recompute, with selective (4 to 7 % longer) and with full recompute (39 % longer).
  Scenario s = test::training(load_model_preset("gpt3-175b"), 2048);
  s.hardware = load_hardware_preset("a100-sxm-80gb");
  s.implementation = load_implementation_preset("megatron_2022");
  s.model.num_hidden_layers = 12;
  s.strategy.tensor_parallel = 8;
  s.strategy.sequence_parallel = true;
  const auto calibration = load_calibration_preset("a100-sxm-80gb");
  const auto report_of = [&](Recompute recompute) {
    s.strategy.recompute = recompute;
    return predict(s, &*calibration);
  };
  const auto of_layers = [](const Report& r) {
    double seconds = 0;
    for (const Row& row : r.rows)
      if (row.id.starts_with("layer.")) seconds += row.duration.value;
    return seconds;
  };
  const auto kept = [](const Report& r) {
    double bytes = 0;
    for (const MemoryLine& line : r.memory)
      if (line.category == "activation") bytes += static_cast<double>(line.bytes.value);
    return bytes;
  };
  const Report keeps_all = report_of(Recompute::none), selective = report_of(Recompute::selective);
  s.model.num_hidden_layers *= 2;
  const double of_more_layers = kept(report_of(Recompute::none)) - kept(keeps_all);
  const double with_selective = kept(report_of(Recompute::selective)) - kept(selective);
  CHECK(1 - with_selective / of_more_layers == Approx(0.70).margin(0.03));
  s.model.num_hidden_layers /= 2;
  const double none = of_layers(keeps_all);
  CHECK(of_layers(selective) / none - 1 == Approx(0.027).margin(0.02));
  const double full = of_layers(report_of(Recompute::full)) / none - 1;
  CHECK(full > 0.28);
  CHECK(full < 0.40);
}

TEST_CASE("Llama-2-70B in 16 bits does not fit one A100 of 80 GB, in 8 and in 4 bits it does (gpt-fast)") {
  Scenario s = test::generation(load_model_preset("llama-2-70b"), 5, 200);
  s.hardware = load_hardware_preset("a100-sxm-80gb");
  s.implementation = load_implementation_preset("gpt_fast");
  const auto calibration = load_calibration_preset("a100-sxm-80gb");
  const auto fits_with = [&](std::optional<DType> weights) {
    s.workload.weights_dtype = weights;
    s.workload.weights_group = weights == DType::int4 ? 32 : 0;
    return fits(served_batch(s, &*calibration), s);
  };
  CHECK_FALSE(fits_with({}));
  CHECK(fits_with(DType::int8));
  CHECK(fits_with(DType::int4));
}

}  // namespace
