// Figures that others published, and the asymptotics that lectures teach.
#include <cmath>

#include "sim/cost/calibration_preset.h"
#include "sim/cost/predict.h"
#include "sim/scenario/preset.h"
#include "sim/serving/engine_limits.h"
#include "sim/cost/iteration_cost.h"
#include "sim/cost/static_batch.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

using sim::DType;
using sim::Scenario;

namespace {

Scenario engine(const char* model, const char* hardware, const char* implementation, int tensor_parallel) {
  Scenario s;
  s.model = sim::load_model_preset(model);
  s.hardware = sim::load_hardware_preset(hardware);
  s.implementation = sim::load_implementation_preset(implementation);
  s.workload.task = sim::Task::generate;
  s.strategy.tensor_parallel = tensor_parallel;
  return s;
}

// FLOPs of the mathematics, and how often the first layer's forward pass runs.
struct Counted {
  double flops = 0, forward_calls = 0, activation_bytes = 0;
};

Counted count(const Scenario& s) {
  const sim::Report report = sim::predict(s);
  Counted c;
  for (const sim::Row& row : report.rows) {
    c.flops += row.model_flops.value;
    if (row.id == "layer.attention.qkv.forward")
      c.forward_calls += static_cast<double>(row.count) / static_cast<double>(s.model.num_hidden_layers);
  }
  for (const sim::MemoryLine& line : report.memory)
    if (line.category == "activation") c.activation_bytes += static_cast<double>(line.bytes.value);
  return c;
}

// A model so narrow that attention, not its weights, is what sequences cost.
Scenario narrow(std::int64_t layers, std::int64_t length) {
  Scenario s = test::generation(test::llama_8b(), 1, 1);
  s.model = test::llama(8, 16, layers, 1, 1, 16);
  s.workload.task = sim::Task::generate;
  s.workload.kv_cache = false;
  s.workload.prompt_length = 1;
  s.workload.max_new_tokens = length;
  return s;
}

double slope(double x1, double y1, double x2, double y2) {
  return std::log(y2 / y1) / std::log(x2 / x1);
}

}  // namespace

TEST_CASE("gpt-fast's published tokens a second on A100, bf16, int8, int4, tensor parallel 1 to 8") {
  // meta-pytorch/gpt-fast, README: A100 80 GB at 330 W, batch 1, prompt of 5, 200 new tokens.
  struct Published {
    const char* model;
    int tensor_parallel;
    std::optional<DType> weights;
    double tokens_per_second;
    double tolerance;
  };
  // 16-bit weights of 70B, or on one or two devices, are read at the bandwidth that is measured; 7B on four
  // and eight waits for small all-reduces, whose time of torch's collectives is an estimate; how well
  // generated kernels read quantised weights was taken from Llama-2-7B on one device. Both rows of Llama 3.1
  // over several devices were a quarter slower than Llama 2's, also where bytes and kernels are the same
  // (70B on two devices: 16.03 and 21.32 tokens a second), and the source does not say why.
  constexpr double kRead = 0.05, kReduced = 0.15, kQuantised = 0.12, kUnexplained = 0.45;
  // clang-format off
  const Published p = GENERATE(
      Published{"llama-2-7b", 1, {}, 104.9, kRead},
      Published{"llama-2-7b", 1, DType::int8, 155.58, kQuantised},
      Published{"llama-2-7b", 1, DType::int4, 196.80, kQuantised},
      Published{"llama-2-7b", 2, {}, 168.84, kRead},
      Published{"llama-2-7b", 4, {}, 254.02, kReduced},
      Published{"llama-2-7b", 8, {}, 328.43, kReduced},
      Published{"llama-2-70b", 1, DType::int8, 19.13, kQuantised},
      Published{"llama-2-70b", 1, DType::int4, 25.25, kQuantised},
      Published{"llama-2-70b", 2, {}, 21.32, kRead},
      Published{"llama-2-70b", 4, {}, 38.01, kRead},
      Published{"llama-2-70b", 8, {}, 62.50, kRead},
      Published{"llama-2-70b", 8, DType::int8, 80.44, kQuantised},
      Published{"llama-2-70b", 8, DType::int4, 90.77, kQuantised},
      Published{"mixtral-8x7b", 8, {}, 227.82, kReduced},
      Published{"mixtral-8x7b", 8, DType::int8, 279.35, kQuantised},
      Published{"llama-3.1-8b", 1, {}, 93.89, kRead},
      Published{"llama-3.1-8b", 1, DType::int8, 137.64, kQuantised},
      Published{"llama-3.1-70b", 1, DType::int8, 18.04, kQuantised},
      Published{"llama-3.1-70b", 2, {}, 16.03, kUnexplained},
      Published{"llama-3.1-405b", 8, DType::int8, 15.6, kUnexplained});
  // clang-format on
  CAPTURE(p.model, p.tensor_parallel, p.tokens_per_second);
  Scenario s = engine(p.model, "a100-sxm-80gb", "gpt_fast", p.tensor_parallel);
  s.workload.weights_dtype = p.weights;
  if (p.weights == DType::int4) s.workload.weights_group = 32;
  s.workload.prompt_length = 5;
  s.workload.max_new_tokens = 200;
  const auto calibration = sim::load_calibration_preset("a100-sxm-80gb");
  const sim::IterationCost cost(s, &*calibration);
  const sim::StaticBatchTimes times = sim::static_batch_times(cost, s);
  const double rate = 200 / times.total.total().value;
  CHECK(rate == Approx(p.tokens_per_second).epsilon(p.tolerance));
  const double band = times.total.band();
  if (p.tolerance < kUnexplained)
    CHECK((p.tokens_per_second > rate / band && p.tokens_per_second < rate * band));
}

TEST_CASE(
    "vanilla generation: N forward passes, time as the cube of N and linear in depth, memory as N alone") {
  const Counted base = count(narrow(2, 4096)), longer = count(narrow(2, 8192)),
                deeper = count(narrow(8, 4096));
  CHECK(base.forward_calls == 4096);
  CHECK(longer.forward_calls == 8192);
  CHECK(slope(4096, base.flops, 8192, longer.flops) == Approx(3).margin(0.05));
  CHECK(slope(2, base.flops, 8, deeper.flops) == Approx(1).margin(0.05));
  CHECK(slope(4096, base.activation_bytes, 8192, longer.activation_bytes) == Approx(1).margin(0.05));
  CHECK(deeper.activation_bytes == base.activation_bytes);
}

TEST_CASE("with a cache a token's time no longer grows with what was computed before, but by what is read") {
  Scenario s = narrow(2, 1024);
  const Counted vanilla = count(s);
  s.workload.kv_cache = true;
  const Counted cached = count(s);
  s.workload.max_new_tokens = 2048;
  const Counted longer = count(s);
  CHECK(slope(1024, cached.flops, 2048, longer.flops) == Approx(2).margin(0.1));
  CHECK(vanilla.flops / cached.flops > 300);
}

TEST_CASE("training against generation: one forward pass of all positions, and two with full recompute") {
  Scenario s = narrow(16, 1);
  s.workload.task = sim::Task::train;
  s.workload.seq_len = 4096;
  const Counted once = count(s);
  CHECK(once.forward_calls == 1);
  s.workload.seq_len = 8192;
  const Counted longer = count(s);
  CHECK(slope(4096, once.flops, 8192, longer.flops) == Approx(2).margin(0.05));
  CHECK(slope(4096, once.activation_bytes, 8192, longer.activation_bytes) == Approx(1).margin(0.05));
  s.model.num_hidden_layers = 64;
  const Counted deeper = count(s);
  CHECK(slope(16, longer.flops, 64, deeper.flops) == Approx(1).margin(0.05));
  CHECK(slope(16, longer.activation_bytes, 64, deeper.activation_bytes) == Approx(1).margin(0.05));
  s.strategy.recompute = sim::Recompute::full;
  CHECK(count(s).forward_calls == 2);
}

TEST_CASE("DeepSeek-V3 keeps 70,272 bytes of cache a token in bf16, on every tensor-parallel rank") {
  // 61 layers of a latent of 512 and a rotary key of 64, two bytes each (arXiv 2412.19437).
  const int ranks = GENERATE(1, 8);
  Scenario s = engine("deepseek-v3", "h200-sxm", "vllm_0.14", ranks);
  s.hardware.memory = sim::gib(2000);
  CHECK(sim::engine_memory(s).cache_of_token == 70'272);
}

TEST_CASE("weights of an engine that computes in fp8 are fp8 unless it says otherwise") {
  Scenario s = engine("llama-3.1-8b", "h100-sxm", "vllm_0.14", 1);
  s.workload.dtype = sim::DType::fp8;
  const auto weights = [&](std::optional<sim::DType> stored) {
    s.workload.weights_dtype = stored;
    return sim::engine_memory(s).weights.value;
  };
  CHECK(weights(std::nullopt) == weights(sim::DType::fp8));
  CHECK(weights(sim::DType::bf16) > weights(std::nullopt));
}

TEST_CASE("layers with a window keep no more than the window") {
  // gpt-oss-20b: of 24 layers every second one sees 128 tokens; 8 key-value heads of 64.
  Scenario s = engine("gpt-oss-20b", "h100-sxm", "vllm_0.14", 1);
  s.workload.prompt_length = 7168;
  s.workload.max_new_tokens = 1024;
  const double of_layer = 2.0 * 8 * 64 * 2;
  CHECK(sim::engine_memory(s).cache_of_token * 8192 == Approx(of_layer * (12 * 8192 + 12 * 128)));
}
