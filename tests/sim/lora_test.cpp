#include "sim/plan/lora.h"

#include <map>
#include <string>

#include "sim/cost/predict.h"
#include "sim/plan/legality.h"
#include "sim/planner/estimate.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"
#include "tests/sim/check_plan.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

Scenario with_lora(Scenario s, std::int64_t rank, std::vector<std::string> targets) {
  s.workload.lora_rank = rank;
  s.workload.lora_targets = std::move(targets);
  return s;
}

// Bytes of the plan's buffers of a class, of all layers.
double held(const Plan& plan, BufferClass c, bool of_parameters = true) {
  double bytes = 0;
  for (const Buffer& b : plan.buffers)
    if (b.buffer_class == c && b.view_of == kNoBuffer && (!of_parameters || b.parameter != kNoBuffer))
      bytes += static_cast<double>(b.bytes({}).value) *
               static_cast<double>(b.per_layer ? plan.scenario.model.num_hidden_layers : 1);
  return bytes;
}

double flops_of(const Scenario& s, std::initializer_list<OpKind> kinds) {
  double flops = 0;
  for (const Row& row : predict(s).rows)
    for (const OpKind kind : kinds)
      if (row.kind == kind) flops += row.flops.value;
  return flops;
}

// Parameters that learn, of the whole model.
std::int64_t adapter_parameters(const Model& m, const Workload& w) {
  std::int64_t of_layer = 0;
  for (const AdapterSite& site : adapter_sites(m, w)) of_layer += w.lora_rank * (site.inputs + site.outputs);
  return m.num_hidden_layers * of_layer;
}

// The first: torchtune, docs/source/tutorials/lora_finetune.rst. The others by rank (inputs + outputs) of
// each weight.
TEST_CASE("adapters have as many parameters as their sources print") {
  Workload w;
  w.lora_rank = 8;
  CHECK(adapter_parameters(load_model_preset("llama-2-7b"), w) == 4'194'304);
  CHECK(adapter_parameters(load_model_preset("llama-3-8b"), w) == 3'407'872);
  w.lora_targets = {"all"};
  w.lora_rank = 16;
  CHECK(adapter_parameters(load_model_preset("llama-3-8b"), w) == 41'943'040);
  w.lora_rank = 64;
  CHECK(adapter_parameters(load_model_preset("llama-2-7b"), w) == 159'907'840);
}

TEST_CASE("gradients and states are those of adapters alone") {
  const Scenario s = with_lora(test::training(load_model_preset("llama-2-7b"), 1024), 8, {"all"});
  const double learning = static_cast<double>(adapter_parameters(s.model, s.workload));
  const Plan plan = make_plan(s);
  CHECK(held(plan, BufferClass::gradient) ==
        learning * static_cast<double>(bits(element_types(s).gradient)) / 8);
  CHECK(held(plan, BufferClass::optimizer) == learning * (element_types(s).master ? 12 : 8));
  Scenario whole = s;
  whole.workload.lora_rank = 0;
  CHECK(held(plan, BufferClass::parameter, false) ==
        held(make_plan(whole), BufferClass::parameter, false) + 2 * learning);
}

// Dettmers et al. 2023, section 3: 0.5 bits a parameter for scales in 32 bits, 0.127 where these are
// quantised.
TEST_CASE("frozen weights take the bits a parameter that QLoRA's paper says") {
  Scenario s = with_lora(test::training(load_model_preset("llama-2-7b"), 1024), 8, {"all"});
  const double products = 32.0 * (4 * 4096.0 * 4096 + 3 * 4096.0 * 11008);
  const double in_16_bits = held(make_plan(s), BufferClass::parameter, false);
  const auto bits_of = [&](FrozenWeights weights) {
    s.workload.frozen_weights = weights;
    return 16 - 8 * (in_16_bits - held(make_plan(s), BufferClass::parameter, false)) / products;
  };
  CHECK(bits_of(FrozenWeights::nf4) == Approx(4.5));
  CHECK(bits_of(FrozenWeights::nf4_double) == Approx(4.127).epsilon(1e-4));
  CHECK(bits_of(FrozenWeights::int8) == Approx(8).epsilon(1e-3));
}

TEST_CASE("products cost forward and the inputs' gradients, but for weights and below the lowest adapter") {
  const Scenario full = test::training(load_model_preset("llama-2-7b"), 1024, 1, 4);
  const double forward = flops_of(full, {OpKind::matmul});
  const double tokens = 4 * 1024;
  for (const std::string target : {"value", "output", "gate", "down"}) {
    CAPTURE(target);
    const Scenario s = with_lora(full, 8, {target});
    const double adapters = 2 * tokens * static_cast<double>(adapter_parameters(s.model, s.workload));
    CHECK(flops_of(s, {OpKind::matmul}) == Approx(forward + adapters).epsilon(1e-9));
    CHECK(flops_of(s, {OpKind::matmul_backward_weight}) == Approx(adapters).epsilon(1e-9));
    // The lowest layer's gradients go no lower than to what the adapter's second factor reads.
    const double h = 4096, f = 11008;
    const double qkv = 3 * h * h, output = h * h, mlp_up = 2 * h * f, mlp_down = h * f;
    const double not_needed = target == "value"    ? qkv
                              : target == "output" ? qkv + output
                              : target == "gate"   ? qkv + output + mlp_up
                                                   : qkv + output + mlp_up + mlp_down;
    const double inputs = target == "gate" ? h : target == "down" ? f : h;
    CHECK(flops_of(s, {OpKind::matmul_backward_input}) ==
          Approx(forward + adapters - 2 * tokens * (not_needed + 8 * inputs)).epsilon(1e-9));
  }
}

TEST_CASE("LoRA is planned under every division of the work, and estimated as predicted") {
  const unsigned seed = GENERATE(range(0u, 150u));
  Scenario s = test::random_parallel_scenario(seed);
  s.workload.lora_rank = 1 + seed % 4;
  const std::vector<std::vector<std::string>> targets = {
      {"query", "value"}, {"key"}, {"mlp"}, {"all"}, {"down"}};
  s.workload.lora_targets = targets[seed % targets.size()];
  s.workload.frozen_weights = static_cast<FrozenWeights>(seed / 5 % 4);
  CAPTURE(seed, s.strategy.tensor_parallel, s.strategy.sequence_parallel, s.strategy.zero_stage,
          s.strategy.schedule, s.workload.lora_targets);
  const std::vector<Problem> problems = validate(s);
  if (!problems.empty()) {
    for (const Problem& p : problems)
      CHECK((p.field == "workload.lora_rank" || p.field == "workload.lora_targets" ||
             p.field == "strategy.zero_stage"));
    return;
  }
  const Plan plan = make_plan(s);
  CHECK(check(plan) == std::vector<std::string>{});
  const Report report = predict(s);
  const Estimate e = estimate(s);
  CHECK(e.step.value == Approx(report.step_time.value).epsilon(1e-9));
  // Addresses in one arena may leave gaps.
  CHECK(e.memory <= peak_memory(report));
  CHECK(static_cast<double>(e.memory.value) >= 0.9 * static_cast<double>(peak_memory(report).value));
}

// Hu et al. 2021, section 4.2: 43.1 tokens a second and V100 instead of 32.5, with as many shards of the
// weights.
TEST_CASE("a LoRA step of GPT-3 175B is as much faster than a full one as its paper says, within 10 %") {
  Scenario s = test::training(load_model_preset("gpt3-175b"), 2048, 1, 8, DType::fp16);
  s.hardware = load_hardware_preset("v100-sxm");
  s.implementation = load_implementation_preset("megatron_2021");
  s.strategy.tensor_parallel = 8;
  s.strategy.pipeline_parallel = 12;
  s.strategy.recompute = Recompute::full;
  const double full = predict(s).step_time.value;
  const double lora = predict(with_lora(s, 8, {"query", "value"})).step_time.value;
  CHECK(full / lora == Approx(43.1 / 32.5).epsilon(0.1));
}

TEST_CASE("what adapters cannot be beside is refused with the field") {
  const auto field = [](Scenario s) {
    const auto problems = validate(s);
    return problems.empty() ? std::string() : problems.front().field;
  };
  const Scenario s = test::training(load_model_preset("llama-2-7b"), 1024);
  CHECK(field(with_lora(s, 8, {"all"})).empty());
  CHECK(field(with_lora(s, 8, {"attention", "down"})).empty());
  CHECK(field(with_lora(s, 8, {"elbow"})) == "workload.lora_targets");
  CHECK(field(with_lora(s, 8, {})) == "workload.lora_targets");
  CHECK(field(with_lora(s, 5000, {"all"})) == "workload.lora_rank");
  CHECK(field(with_lora(test::training(load_model_preset("mixtral-8x7b"), 1024), 8, {"all"})) ==
        "workload.lora_rank");
  Scenario quantised = s;
  quantised.workload.frozen_weights = FrozenWeights::nf4;
  CHECK(field(quantised) == "workload.frozen_weights");
}

}  // namespace
