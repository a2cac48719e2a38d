#include "sim/report/metrics.h"

#include <string>

#include "sim/cost/predict.h"
#include "sim/plan/legality.h"
#include "sim/report/step_parts.h"
#include "sim/scenario/preset.h"
#include "tests/support/catch.h"

using sim::FlopsConvention;
using sim::Report;

namespace {

double gflops(const sim::Model& model, std::int64_t seq_len, FlopsConvention c) {
  return sim::flops_per_token(model, seq_len, c).value / 1e9;
}

Report training_report() {
  Report r;
  r.source.scenario.model = sim::load_model_preset("llama-3.1-8b");
  r.source.scenario.hardware = sim::load_hardware_preset("h100-sxm");
  r.source.scenario.workload.seq_len = 8192;
  r.source.scenario.workload.global_batch_size = 4;
  r.step_time = {4};
  return r;
}

sim::Row row(sim::OpKind kind, sim::Bound bound, double seconds, double flops, std::int64_t bytes) {
  sim::Row r;
  r.id = std::string(name(kind));
  r.kind = kind;
  r.count = 32;
  r.bound = bound;
  r.duration = {seconds};
  r.flops = {flops};
  r.memory = {bytes};
  return r;
}

}  // namespace

TEST_CASE("FLOPs of a token of Llama 3.1 8B by every convention") {
  // GFLOP; worked out by hand from the formulas in metrics.h, and to the digits that others print: PaLM's
  // formula of 8,030,261,248 parameters, torchtitan's and Megatron-LM's own counts at 2K, 8K and 128K
  // (Megatron-LM's is three times the forward pass of the products that run, as 6N + causal attention).
  struct Golden {
    std::int64_t seq_len;
    double all_parameters, torchtitan, causal;
    double half_a_digit;
  };
  const Golden g = GENERATE(Golden{2048, 51.4, 48.3, 46.6, 0.05}, Golden{8192, 61.1, 57.9, 51.5, 0.05},
                            Golden{131072, 254, 251, 148, 0.5});
  CAPTURE(g.seq_len);
  const sim::Model model = sim::load_model_preset("llama-3.1-8b");
  // 7,504,924,672 weights of products: all but embedding and norms.
  CHECK(gflops(model, g.seq_len, FlopsConvention::six_n) == Approx(6 * 7.504658432).epsilon(1e-6));
  CHECK(gflops(model, g.seq_len, FlopsConvention::all_parameters) ==
        Approx(g.all_parameters).margin(g.half_a_digit));
  CHECK(gflops(model, g.seq_len, FlopsConvention::torchtitan) == Approx(g.torchtitan).margin(g.half_a_digit));
  CHECK(gflops(model, g.seq_len, FlopsConvention::six_n_causal) == Approx(g.causal).margin(g.half_a_digit));
}

TEST_CASE("conventions differ by what they count and by nothing else") {
  for (const std::string& preset : sim::preset_names(sim::PresetKind::model)) {
    CAPTURE(preset);
    const sim::Model m = sim::load_model_preset(preset);
    const std::int64_t s = 4096;
    const double six_n = gflops(m, s, FlopsConvention::six_n);
    const double full = gflops(m, s, FlopsConvention::six_n_full);
    const double causal = gflops(m, s, FlopsConvention::six_n_causal);
    CHECK(six_n - gflops(m, 1, FlopsConvention::six_n) == 0);
    // Without windows and chunks a query sees half of the sequence in the mean, and itself.
    if (m.window_layers() == 0 && m.chunk_layers() == 0)
      CHECK(causal - six_n == Approx((full - six_n) * (s + 1) / (2 * s)));
    else
      CHECK(causal - six_n <= (full - six_n) * (s + 1) / (2 * s) * (1 + 1e-12));
    CHECK(gflops(m, s, FlopsConvention::all_parameters) > gflops(m, s, FlopsConvention::torchtitan));
  }
}

TEST_CASE("MFU is the rate of useful FLOPs over the dense peak") {
  const Report r = training_report();
  CHECK(sim::tokens_per_second(r) == Approx(4 * 8192 / 4.0));
  // 8,192 tokens/s x 61.1 GFLOP = 500 TFLOP/s of 989.
  CHECK(sim::mfu(r, FlopsConvention::all_parameters) == Approx(8192 * 61.066e9 / 989e12).epsilon(1e-4));
  CHECK(sim::mfu(r, FlopsConvention::six_n) < sim::mfu(r, FlopsConvention::six_n_causal));

  Report generation = r;
  generation.source.scenario.workload.task = sim::Task::generate;
  CHECK(sim::mfu(generation, FlopsConvention::six_n) == 0);
}

TEST_CASE("HFU counts the FLOPs that ran, averaged over ranks") {
  Report r = training_report();
  r.rows = {row(sim::OpKind::matmul, sim::Bound::compute, 3, 989e12, 0)};
  CHECK(sim::hfu(r) == Approx(0.25));
  r.rows.push_back(r.rows[0]);
  r.rows[1].rank = 1;
  CHECK(sim::hfu(r) == Approx(0.25));
}

TEST_CASE("a step's FLOPs on all devices are the same however the devices divide it") {
  sim::Scenario s;
  s.model = sim::load_model_preset("llama-3.1-8b");
  s.hardware = sim::load_hardware_preset("h100-sxm");
  s.implementation = sim::load_implementation_preset("ridgepoint");
  s.workload.seq_len = 4096;
  s.workload.micro_batch_size = 1;
  s.workload.global_batch_size = 16;
  const double alone = sim::executed_flops(sim::predict(s)).value;
  // At least 6 FLOPs for each weight that a token is multiplied with.
  CHECK(alone > 16 * 4096 * sim::flops_per_token(s.model, 4096, FlopsConvention::six_n).value * 0.99);
  const auto divided = [&](int data, int tensor, int pipeline, int context, int zero) {
    sim::Scenario d = s;
    d.strategy.data_parallel = data;
    d.strategy.tensor_parallel = tensor;
    d.strategy.pipeline_parallel = pipeline;
    d.strategy.context_parallel = context;
    d.strategy.zero_stage = zero;
    REQUIRE(sim::validate(d).empty());
    const Report report = sim::predict(d);
    INFO(data << " x " << tensor << " x " << pipeline << " x " << context << ", ZeRO " << zero);
    CHECK(sim::executed_flops(report).value == Approx(alone).epsilon(0.01));
    CHECK(sim::hfu(report) * d.strategy.devices() * d.hardware.peak_for(d.workload.dtype).value *
              sim::step_time(report).value ==
          Approx(sim::executed_flops(report).value));
  };
  divided(8, 1, 1, 1, 0);
  divided(8, 1, 1, 1, 3);
  divided(1, 4, 1, 1, 0);
  divided(1, 1, 4, 1, 0);
  divided(2, 2, 2, 1, 1);
  divided(2, 1, 1, 4, 0);
}

TEST_CASE("a decoded token moves the bytes that gpt-fast's published bandwidths are made of") {
  // gpt-fast README, A100 80 GB, bf16, batch 1: tokens/s and GB/s; 5 tokens of prompt and 200 new ones.
  struct Published {
    const char* model;
    double tokens_per_s, gb_per_s;
  };
  const Published p =
      GENERATE(Published{"llama-2-7b", 104.9, 1397.31}, Published{"llama-3.1-8b", 93.89, 1410.76});
  CAPTURE(p.model);
  sim::Scenario s;
  s.model = sim::load_model_preset(p.model);
  s.hardware = sim::load_hardware_preset("a100-sxm-80gb");
  s.implementation = sim::load_implementation_preset("ridgepoint");
  s.workload.task = sim::Task::generate;
  s.workload.dtype = sim::DType::bf16;
  s.workload.batch_size = 1;
  s.workload.prompt_length = 5;
  s.workload.max_new_tokens = 200;
  const Report r = sim::predict(s);
  const double bytes = sim::mbu(r) * s.hardware.memory_bandwidth.value * sim::tpot(r)->value;
  // Weights and cache, and beside them a token's activations: a percent.
  CHECK(bytes == Approx(p.gb_per_s * 1e9 / p.tokens_per_s).epsilon(0.015));
}

TEST_CASE("MBU is that of one device, with weights and cache as they are stored") {
  sim::Scenario s;
  s.model = sim::load_model_preset("llama-3.1-70b");
  s.hardware = sim::load_hardware_preset("h100-sxm");
  s.implementation = sim::load_implementation_preset("ridgepoint");
  s.workload.task = sim::Task::generate;
  s.workload.dtype = sim::DType::bf16;
  s.workload.batch_size = 1;
  s.workload.prompt_length = 1024;
  s.workload.max_new_tokens = 64;
  s.strategy.tensor_parallel = 8;
  const auto bytes_of_token = [](const sim::Scenario& scenario) {
    const Report r = sim::predict(scenario);
    CHECK(sim::mbu(r) < 1);
    return sim::mbu(r) * scenario.hardware.memory_bandwidth.value * sim::tpot(r)->value;
  };
  // An eighth of the 69.5 billion weights that are multiplied, in 16 bits.
  const double divided = bytes_of_token(s);
  CHECK(divided == Approx(2 * 69.5e9 / 8).epsilon(0.02));
  s.workload.weights_dtype = sim::DType::int4;
  s.workload.weights_group = 128;
  CHECK(bytes_of_token(s) < 0.35 * divided);
}

TEST_CASE("time to first token and time per later token are means of what was seen") {
  Report r;
  CHECK_FALSE(sim::ttft(r).has_value());
  r.tokens = {{0, 1, "", {0.5}}};
  CHECK(sim::ttft(r)->value == 0.5);
  CHECK_FALSE(sim::tpot(r).has_value());
  r.tokens.push_back({1, 1, "", {0.1}});
  r.tokens.push_back({2, 1, "", {0.2}});
  CHECK(sim::tpot(r)->value == Approx(0.15));
  r.source.scenario.workload.task = sim::Task::generate;
  CHECK(sim::step_time(r).value == Approx(0.8));
}

TEST_CASE("a training run that goes on has the median of its steps as step time") {
  Report r;
  for (const double seconds : {9.0, 0.3, 0.2, 0.4, 0.3}) r.steps.push_back({1, 0, 0, {seconds}, 1});
  CHECK(sim::step_time(r).value == 0.3);
  r.step_time = {0.25};
  CHECK(sim::step_time(r).value == 0.25);
}

TEST_CASE("the peak is the sum of a rank's ledger, and every rank must fit") {
  Report r = training_report();
  r.memory = {
      {"parameter", 0, sim::gib(40)}, {"activation", 0, sim::gib(39)}, {"parameter", 1, sim::gib(79)}};
  CHECK(sim::peak_memory(r) == sim::gib(79));
  CHECK(sim::peak_memory(r, 1) == sim::gib(79));
  sim::Bytes sum;
  for (const sim::MemoryLine& line : sim::peak_ledger(r)) sum += line.bytes;
  CHECK(sum == sim::peak_memory(r));
  CHECK(sim::fits(r));
  r.memory.push_back({"platform", 1, sim::gib(2)});
  CHECK_FALSE(sim::fits(r));
}

TEST_CASE("the bottleneck sentence says what binds, its share, and how much of the peak is reached") {
  Report r = training_report();
  CHECK_THAT(sim::bottleneck_sentence(r), contains("No operation"));
  r.rows = {row(sim::OpKind::matmul, sim::Bound::compute, 7.1, 7.1 * 0.78 * 989e12, 0),
            row(sim::OpKind::rmsnorm, sim::Bound::memory, 1.9, 0, 1000),
            row(sim::OpKind::adamw, sim::Bound::launch, 1.0, 0, 1000)};
  CHECK(sim::bottleneck_sentence(r) ==
        "Bound by arithmetic: 71 % of the step is matrix products at 78 % of what the chip can do.");
  const auto shares = sim::part_shares(r);
  REQUIRE(shares.size() == 3);
  CHECK(shares[0].part == sim::StepPart::compute);
  CHECK(shares[0].share + shares[1].share + shares[2].share == Approx(1));

  r.source.scenario.workload.task = sim::Task::generate;
  r.rows = {row(sim::OpKind::matmul, sim::Bound::memory, 9, 0, 9 * 3350'000'000'000 / 2),
            row(sim::OpKind::attention_cached, sim::Bound::memory, 1, 0, 1000)};
  CHECK(sim::bottleneck_sentence(r) ==
        "Bound by memory bandwidth: 90 % of the generation is matrix products at 50 % of what the memory can "
        "do.");
  r.rows = {row(sim::OpKind::add, sim::Bound::launch, 1, 0, 1000)};
  r.step_time = {1};
  CHECK_THAT(sim::bottleneck_sentence(r), contains("Bound by launches: 100 %") && contains("32 operations"));
}
