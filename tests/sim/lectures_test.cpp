// Rules that lectures on large models teach, against the code that counts.
#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "sim/cost/calibration_preset.h"
#include "sim/cost/predict.h"
#include "sim/plan/plan.h"
#include "sim/scenario/model.h"
#include "sim/scenario/preset.h"
#include "tests/sim/random_scenario.h"
#include "tests/support/catch.h"

using sim::count_parameters;
using sim::Model;

TEST_CASE("a GPT has hV + L(12h^2 + 13h) + 2h parameters, and its positions") {
  // The lecture's form, with f = 4h and a tied head: attention 4h^2 + 4h, feed-forward 8h^2 + 5h, norms 4h.
  std::mt19937_64 random(15);
  for (int i = 0; i < 500; ++i) {
    Model m = sim::load_model_preset("gpt2-124m");
    m.head_dim = draw(random, 1, 128);
    m.num_attention_heads = m.num_key_value_heads = draw(random, 1, 32);
    m.hidden_size = m.head_dim * m.num_attention_heads;
    m.intermediate_size = 4 * m.hidden_size;
    m.num_hidden_layers = draw(random, 1, 100);
    m.vocab_size = draw(random, 1, 100'000);
    m.max_position_embeddings = draw(random, 1, 10'000);
    const std::int64_t h = m.hidden_size, L = m.num_hidden_layers, V = m.vocab_size,
                       s = m.max_position_embeddings;
    REQUIRE(count_parameters(m).total == h * V + L * (12 * h * h + 13 * h) + 2 * h + s * h);
  }
}

TEST_CASE("a Llama has L[h(a + 2g)d + adh + 3hf + 2h] + h + Vh(1 or 2) parameters") {
  std::mt19937_64 random(16);
  for (int i = 0; i < 500; ++i) {
    Model m = sim::load_model_preset("llama-3.1-8b");
    m.head_dim = draw(random, 1, 128);
    m.num_key_value_heads = draw(random, 1, 16);
    m.num_attention_heads = m.num_key_value_heads * draw(random, 1, 8);
    m.hidden_size = draw(random, 1, 8192);
    m.intermediate_size = draw(random, 1, 30'000);
    m.num_hidden_layers = draw(random, 1, 100);
    m.vocab_size = draw(random, 1, 200'000);
    m.tie_word_embeddings = draw(random, 0, 1);
    const std::int64_t h = m.hidden_size, a = m.num_attention_heads, g = m.num_key_value_heads,
                       d = m.head_dim, f = m.intermediate_size, V = m.vocab_size;
    const std::int64_t layer = h * (a + 2 * g) * d + a * d * h + 3 * h * f + 2 * h;
    REQUIRE(count_parameters(m).total ==
            m.num_hidden_layers * layer + h + V * h * (m.tie_word_embeddings ? 1 : 2));
  }
}

TEST_CASE("the closed forms give the published counts") {
  // 3 x 12288 x ... in full: a check of the forms above that does not go through count_parameters.
  const auto gpt = [](std::int64_t h, std::int64_t L, std::int64_t V, std::int64_t s) {
    return h * V + L * (12 * h * h + 13 * h) + 2 * h + s * h;
  };
  CHECK(gpt(768, 12, 50257, 1024) == 124'439'808);
  CHECK(gpt(12288, 96, 50257, 2048) == 174'604'259'328);
}

TEST_CASE("weights, gradients and Adam's states of a training run take 16 bytes a parameter") {
  // fp32: 4 + 4 + (4 + 4); mixed precision: 2 + 2 + (4 + 4) and a master copy of 4. Totals of the lecture,
  // for 1, 7, 70 and 405 billion parameters: 16, 112, 1,120 and 6,480 GB.
  struct Golden {
    const char* model;
    double lecture_gb, billions;
  };
  const Golden g = GENERATE(Golden{"llama-3.2-1b", 16, 1}, Golden{"llama-2-7b", 112, 7},
                            Golden{"llama-2-70b", 1120, 70}, Golden{"llama-3.1-405b", 6480, 405});
  const sim::DType dtype = GENERATE(sim::DType::fp32, sim::DType::bf16);
  CAPTURE(g.model, sim::name(dtype));
  sim::Scenario s;
  s.model = sim::load_model_preset(g.model);
  s.hardware = sim::load_hardware_preset("h100-sxm");
  s.implementation = sim::load_implementation_preset("ridgepoint");
  s.workload.dtype = dtype;
  s.workload.seq_len = 128;

  const sim::Plan plan = sim::make_plan(s);
  const sim::Variables any;
  std::int64_t states = 0;
  for (const sim::Buffer& buffer : plan.buffers) {
    const bool kept = buffer.buffer_class == sim::BufferClass::parameter ||
                      buffer.buffer_class == sim::BufferClass::gradient ||
                      buffer.buffer_class == sim::BufferClass::optimizer;
    if (kept && buffer.name != sim::buffer_names::gradient_norm)
      states += buffer.bytes(any).value * (buffer.per_layer ? s.model.num_hidden_layers : 1);
  }
  const std::int64_t parameters = count_parameters(s.model).total;
  CHECK(states == 16 * parameters);
  // The lecture rounds the number of parameters first.
  CHECK(static_cast<double>(states) / 1e9 * g.billions * 1e9 / static_cast<double>(parameters) ==
        Approx(g.lecture_gb));
}

namespace {

// A step on one node of eight A100, by the clock that published kernels were timed with.
double seconds_of_step(const sim::Model& model, const char* stack, std::string attention, std::int64_t length,
                       std::int64_t micro_batch) {
  sim::Scenario s;
  s.model = model;
  s.model.max_position_embeddings = std::max(model.max_position_embeddings, length);
  s.hardware = sim::load_hardware_preset("a100-sxm-80gb");
  s.implementation = sim::load_implementation_preset(stack);
  if (!attention.empty()) s.implementation.kernels.attention = std::move(attention);
  s.strategy.data_parallel = 8;
  s.workload.seq_len = length;
  s.workload.micro_batch_size = micro_batch;
  s.workload.global_batch_size = 16 * 8 * micro_batch;
  const auto calibration = sim::load_calibration_preset("a100-sxm-80gb");
  REQUIRE(calibration);
  return sim::predict_step(sim::make_plan(s), s.hardware, &*calibration).seconds.value;
}

}  // namespace

TEST_CASE("training with FlashAttention is as much faster than with standard attention as was published") {
  struct Claim {
    const char* model;
    const char* attention;
    std::int64_t length, micro_batch;
    double faster;
  };
  // Dao et al. 2022 (arXiv 2205.14135), table 2: 4.7 and 2.7 days, 11.5 and 6.9, against Megatron-LM. Dao
  // 2023 (arXiv 2307.08691), table 1: 142 and 196 TFLOP/s. With 8k tokens that table has 72 and 220, where
  // 1.9 times is predicted; which software runs without FlashAttention it does not say.
  const Claim c = GENERATE(Claim{"gpt2-124m", "FlashAttention1", 1024, 8, 4.7 / 2.7},
                           Claim{"gpt2-355m", "FlashAttention1", 1024, 8, 11.5 / 6.9},
                           Claim{"gpt3-1.3b", "FlashAttention2", 2048, 4, 196.0 / 142});
  const sim::Model model = sim::load_model_preset(c.model);
  const double standard = seconds_of_step(model, "megatron_2022", "", c.length, c.micro_batch),
               flash = seconds_of_step(model, "flash_script", c.attention, c.length, c.micro_batch);
  CAPTURE(c.model, c.length, standard, flash, standard / flash, c.faster);
  CHECK(standard / flash == Approx(c.faster).epsilon(0.2));
}
