// Laws and closed forms of state-space layers in hybrid stacks, and figures that others publish of them.
#include <map>
#include <random>
#include <string>

#include "sim/cost/predict.h"
#include "sim/plan/legality.h"
#include "sim/plan/memory.h"
#include "sim/planner/estimate.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"
#include "tests/sim/check_plan.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

// Each sort of layer, states of two groups, a convolution and chunks that do not divide the sequence.
Model small_hybrid(const std::string& pattern = "M-*ME-M*", bool experts = true) {
  Model m = test::llama(64, 96, static_cast<std::int64_t>(pattern.size()), 4, 2, 128);
  m.activation = Activation::squared_relu;
  m.position = Position::none;
  m.hybrid_override_pattern = pattern;
  m.state_space = {.mamba_num_heads = 8,
                   .mamba_head_dim = 16,
                   .ssm_state_size = 24,
                   .n_groups = 4,
                   .conv_kernel = 4,
                   .chunk_size = 16};
  if (experts) {
    m.moe.num_experts = 8;
    m.moe.num_experts_per_tok = 2;
    m.moe.moe_intermediate_size = 48;
    m.moe.shared_expert_intermediate_size = 96;
    m.moe.router_bias = true;
  }
  return m;
}

Scenario training(const Model& model, std::int64_t seq_len, std::int64_t batch = 1) {
  Scenario s;
  s.model = model;
  s.hardware = test::h100();
  s.implementation = test::ridgepoint();
  s.workload.seq_len = seq_len;
  s.workload.global_batch_size = s.workload.micro_batch_size = batch;
  return s;
}

Scenario generation(const Model& model, std::int64_t prompt, std::int64_t tokens) {
  Scenario s;
  s.model = model;
  s.hardware = test::h100();
  s.implementation = test::ridgepoint();
  s.workload.task = Task::generate;
  s.workload.prompt_length = prompt;
  s.workload.max_new_tokens = tokens;
  return s;
}

void require_sound(const Scenario& s) {
  for (const Problem& p : validate(s)) FAIL(p.field + ": " + p.message);
  for (const std::string& violation : check(make_plan(s))) FAIL(violation);
}

bool is_problem(const Scenario& s, const std::string& field, const std::string& words) {
  for (const Problem& p : validate(s))
    if (p.field == field && p.message.find(words) != std::string::npos) return true;
  return false;
}

double sum_of_rows(const Report& r, const std::string& part) {
  double flops = 0;
  for (const Row& row : r.rows)
    if (row.id.find(part) != std::string::npos) flops += row.model_flops.value;
  return flops;
}

double bytes_of(const Plan& plan, BufferClass c) {
  double bytes = 0;
  const MemoryPlan memory = plan_memory(plan);
  for (const Instance& instance : memory.instances)
    if (plan.buffers[static_cast<std::size_t>(instance.buffer)].buffer_class == c)
      bytes += static_cast<double>(instance.bytes.value);
  return bytes;
}

}  // namespace

TEST_CASE("hybrid presets have the published number of parameters") {
  struct Golden {
    const char* name;
    std::int64_t parameters;
  };
  // 8B, 3 Nano: numbers in the checkpoints at the address in the preset; of 3 Nano with the 2,944 numbers by
  // which its routers balance (llama.cpp counts as many in its conversion). For the others fewer digits are
  // published, and the rest follow from the tensors of the preset's shape: 9B v2 8.89 billion (model card of
  // nvidia/NVIDIA-Nemotron-Nano-9B-v2-Base), Bamba 9.78 billion
  // (https://huggingface.co/docs/transformers/model_doc/bamba); 47B, 56B and Mamba-2's 2.7B are only named
  // after theirs.
  const Golden golden =
      GENERATE(Golden{"nemotron-h-8b", 8'100'852'736}, Golden{"nemotron-h-47b", 46'791'554'816},
               Golden{"nemotron-h-56b", 56'324'350'464}, Golden{"nemotron-nano-9b-v2", 8'888'227'328},
               Golden{"nemotron-3-nano-30b-a3b", 31'577'940'288}, Golden{"mamba2-2.7b", 2'702'599'680},
               Golden{"bamba-9b", 9'780'235'392});
  CAPTURE(golden.name);
  CHECK(count_parameters(load_model_preset(golden.name)).total == golden.parameters);
}

TEST_CASE("a plan holds exactly the parameters that are counted, however they are divided") {
  for (const char* name : {"nemotron-h-8b", "nemotron-3-nano-30b-a3b", "mamba2-2.7b", "tiny-hybrid"}) {
    CAPTURE(name);
    const Model m = load_model_preset(name);
    Scenario s = training(m, 128);
    const Plan plan = make_plan(s);
    std::int64_t numbers = 0;
    for (const Instance& i : plan_memory(plan).instances) {
      const Buffer& b = plan.buffers[static_cast<std::size_t>(i.buffer)];
      if (b.buffer_class == BufferClass::parameter) numbers += b.elements({});
    }
    CHECK(numbers == count_parameters(m).total);
  }
}

TEST_CASE("Nemotron 3 Nano passes 3.5 billion parameters a token, as its model card says") {
  const ParameterCount n = count_parameters(load_model_preset("nemotron-3-nano-30b-a3b"));
  CHECK(static_cast<double>(n.active) / 1e9 == Approx(3.5).epsilon(0.03));
}

TEST_CASE("a training step of Nemotron-H 56B makes the FLOPs that NVIDIA counts") {
  // https://github.com/NVIDIA/dgxc-benchmarking, nemotron-h/README.md, notes: 2.816e15 for a sequence of 8192
  // tokens, with every pair of tokens in attention, of which causal attention computes half.
  const Model m = load_model_preset("nemotron-h-56b");
  const Report r = predict(training(m, 8192));
  double flops = 0;
  for (const Row& row : r.rows) flops += row.model_flops.value;
  const double s = 8192, h = 8192;
  const double pairs = 12 * s * s * h * 10;
  CHECK(flops + pairs / 2 == Approx(2.816e15).epsilon(1e-3));

  // Its parts, forward and backward, by the formulas there.
  const double inner = 256 * 64, groups = 8, states = 256, chunk = 256;
  const double scan = s * h * 2 * chunk + 2 * s * h * 2 * states + s * chunk * states * groups;
  CHECK(sum_of_rows(r, "state_space.scan") == Approx(6 * 54 * scan).epsilon(1e-12));
  CHECK(sum_of_rows(r, "state_space.in") + sum_of_rows(r, "state_space.out") ==
        Approx(6 * 54 * s * h * (3 * inner + 2 * groups * states + 256)).epsilon(1e-12));
  CHECK(sum_of_rows(r, "layer.mlp.") == Approx(6 * 54 * 2 * s * h * 32768).epsilon(1e-12));
}

TEST_CASE("plans of hybrid models are sound under every strategy that they allow") {
  std::mt19937_64 random(7);
  const auto one_of = [&](auto... values) {
    const std::array all{values...};
    return all[random() % all.size()];
  };
  int sound = 0;
  for (int i = 0; i < 300; ++i) {
    Scenario s = training(small_hybrid(one_of("M-*ME-M*", "MMMMMMMM", "*-M-*EME")), one_of(32, 40, 64));
    if (s.model.layers_of(LayerSort::experts) == 0) s.model.moe = {};
    Strategy& t = s.strategy;
    t.tensor_parallel = one_of(1, 2, 4);
    t.sequence_parallel = t.tensor_parallel > 1 && one_of(true, false);
    t.data_parallel = one_of(1, 2, 4);
    t.pipeline_parallel = one_of(1, 2, 4);
    t.schedule = one_of("1f1b", "gpipe", "zb_h1");
    t.zero_stage = t.data_parallel > 1 ? one_of(0, 1, 2, 3) : 0;
    if (s.model.has_experts()) t.expert_parallel = one_of(1, t.data_parallel);
    t.recompute = one_of(Recompute::none, Recompute::selective, Recompute::full, Recompute::sqrt);
    t.gradient_bucket = one_of(0, 100000);
    s.workload.global_batch_size = 4 * t.data_parallel;
    s.workload.dtype = one_of(DType::fp32, DType::bf16);
    if (!validate(s).empty()) continue;
    CAPTURE(s.model.hybrid_override_pattern, t.tensor_parallel, t.sequence_parallel, t.data_parallel,
            t.pipeline_parallel, t.schedule, t.zero_stage, t.expert_parallel, static_cast<int>(t.recompute),
            t.gradient_bucket);
    require_sound(s);
    ++sound;
  }
  CHECK(sound > 100);
  for (const bool kv_cache : {true, false}) {
    Scenario s = generation(small_hybrid(), 20, 5);
    s.workload.kv_cache = kv_cache;
    s.workload.batch_size = 3;
    require_sound(s);
    s.strategy.tensor_parallel = 2;
    require_sound(s);
  }
}

TEST_CASE("tensor-parallel ranks share the products and scans of state-space layers evenly") {
  Scenario one = training(small_hybrid("M-*ME-M*", false), 64);
  one.model = small_hybrid("M-*M-MM*", false);
  Scenario four = one;
  four.strategy.tensor_parallel = 4;
  const Report a = predict(one), b = predict(four);
  for (const char* part : {"state_space.in", "state_space.scan", "state_space.out"})
    CHECK(sum_of_rows(a, part) == Approx(4 * sum_of_rows(b, part)).epsilon(1e-12));
}

TEST_CASE("generation keeps a state that does not grow, and keys and values of attention layers alone") {
  const Model m = load_model_preset("nemotron-h-8b");
  const StateSpace& n = m.state_space;
  const auto cache = [&](std::int64_t prompt, std::int64_t batch) {
    Scenario s = generation(m, prompt, 1);
    s.workload.dtype = DType::bf16;
    s.workload.batch_size = batch;
    return bytes_of(make_plan(s), BufferClass::kv_cache);
  };
  // 24 state-space layers: states of 128 x 8192 numbers in fp32 and the last three inputs of the convolution
  // in bf16; four attention layers: 8 heads of 128, keys and values, in bf16.
  const double states = 24.0 * (4.0 * static_cast<double>(n.state_size()) +
                                2.0 * static_cast<double>((n.conv_kernel - 1) * n.conv_size()));
  const double token = 4.0 * 2 * 2 * 8 * 128;
  for (const std::int64_t batch : {1, 4}) {
    const double sequences = static_cast<double>(batch);
    CHECK(cache(1023, batch) == Approx(sequences * (states + 1024 * token)).epsilon(1e-4));
    CHECK(cache(65535, batch) == Approx(sequences * (states + 65536 * token)).epsilon(1e-4));
  }
}

TEST_CASE("a decoded token's scan costs the same after any prompt, its attention more after a longer one") {
  const auto decode = [](std::int64_t prompt, const std::string& part) {
    const Report r = predict(generation(load_model_preset("nemotron-h-8b"), prompt, 2));
    double seconds = 0;
    for (const Row& row : r.rows)
      if (row.phase == Phase::decode && row.id.find(part) != std::string::npos) seconds += row.duration.value;
    return seconds;
  };
  CHECK(decode(1024, "state_space.scan") > 0);
  CHECK(decode(1024, "state_space.scan") == Approx(decode(65536, "state_space.scan")).epsilon(1e-12));
  CHECK(decode(65536, "attention.cached") > 4 * decode(1024, "attention.cached"));
}

TEST_CASE("prefill of state-space layers is linear in the prompt") {
  const auto scan = [](std::int64_t prompt) {
    return sum_of_rows(predict(generation(load_model_preset("mamba2-2.7b"), prompt, 1)), "state_space.scan");
  };
  CHECK(scan(65536) == Approx(64 * scan(1024)).epsilon(1e-12));
}

TEST_CASE("an estimate of a hybrid step is its prediction") {
  Scenario s = training(small_hybrid(), 64);
  s.strategy.data_parallel = 2;
  s.workload.global_batch_size = 4;
  const Estimate e = estimate(s);
  const Report r = predict(s);
  CHECK(e.step.value == Approx(r.step_time.value).epsilon(1e-9));
}

TEST_CASE("what does not fit a pattern of layers is refused by a sentence that names the field") {
  const auto with = [](auto change) {
    Scenario s = training(small_hybrid(), 64);
    change(s);
    return s;
  };
  CHECK(validate(with([](Scenario&) {})).empty());
  CHECK(is_problem(with([](Scenario& s) { s.model.num_hidden_layers = 9; }), "model.hybrid_override_pattern",
                   "one letter a layer"));
  CHECK(is_problem(with([](Scenario& s) { s.model.hybrid_override_pattern = "M-*MX-M*"; }),
                   "model.hybrid_override_pattern", "has \"X\""));
  CHECK(is_problem(with([](Scenario& s) { s.model.moe = {}; }), "model.hybrid_override_pattern",
                   "num_experts is 0"));
  CHECK(is_problem(with([](Scenario& s) { s.model.state_space.n_groups = 3; }), "model.n_groups",
                   "does not divide"));
  CHECK(is_problem(with([](Scenario& s) { s.model.sliding_window = 16; }), "model.sliding_window",
                   "must be 0"));
  CHECK(is_problem(with([](Scenario& s) { s.strategy.tensor_parallel = 8; }), "strategy.tensor_parallel",
                   "groups of the state-space heads"));
  CHECK(is_problem(with([](Scenario& s) { s.strategy.context_parallel = 2; }), "strategy.context_parallel",
                   "state-space layers"));
  CHECK(is_problem(with([](Scenario& s) {
                     s.model.hybrid_override_pattern.clear();
                     s.model.moe = {};
                   }),
                   "model.mamba_num_heads", "must be 0"));
}

TEST_CASE("a step of Nemotron-H 56B on 256 H100 takes what NVIDIA measured, within the stated band") {
  // https://github.com/NVIDIA/dgxc-benchmarking, nemotron-h/README.md: 15.714 s, standard deviation 2.989, in
  // fp8, tensor parallel over 8, 768 sequences of 8192 tokens. With Megatron Core 11.9 s are predicted
  // here, 8.5 to 17.3: too fast by 24 %.
  Scenario s;
  s.model = load_model_preset("nemotron-h-56b");
  s.hardware = load_hardware_preset("h100-sxm");
  s.implementation = load_implementation_preset("mcore_te_2026");
  s.strategy.tensor_parallel = 8;
  s.strategy.sequence_parallel = true;
  s.strategy.data_parallel = 32;
  s.strategy.zero_stage = 1;
  s.workload.seq_len = 8192;
  s.workload.global_batch_size = 768;
  s.workload.dtype = DType::fp8;
  const Report r = predict(s);
  CHECK(r.step_low.value <= 15.714);
  CHECK(r.step_high.value >= 15.714);
  CHECK(peak_memory(r).value < s.hardware.memory.value);
}

TEST_CASE(
    "Nemotron-H generates two to three times as fast as transformers of 70 billion after long prompts") {
  // NVIDIA 2025 (arXiv 2504.03624), abstract: up to three times as fast as Qwen-2.5-72B and Llama-3.1-70B;
  // 47B 20 % faster than 56B. Section 2.4: 65,536 tokens in, 1,024 out, on H100. The batches are the largest
  // of a few that fit eight devices in fp8.
  const auto tokens_per_second = [](const char* name, std::int64_t batch) {
    Scenario s = generation(load_model_preset(name), 65536, 1024);
    s.hardware = load_hardware_preset("h100-sxm");
    s.implementation = load_implementation_preset("ideal");
    s.strategy.tensor_parallel = 8;
    s.workload.batch_size = batch;
    s.workload.dtype = DType::bf16;
    s.workload.weights_dtype = DType::fp8;
    const Report r = predict(s);
    CHECK(peak_memory(r).value < 80'000'000'000);
    return static_cast<double>(batch) * 1024 / r.step_time.value;
  };
  const double h56 = tokens_per_second("nemotron-h-56b", 16), h47 = tokens_per_second("nemotron-h-47b", 24);
  for (const double transformer :
       {tokens_per_second("llama-3.1-70b", 8), tokens_per_second("qwen2.5-72b", 8)}) {
    CHECK(h56 > 1.8 * transformer);
    CHECK(h47 > 2.4 * transformer);
    CHECK(h47 < 3.3 * transformer);
  }
  CHECK(h47 / h56 > 1.1);
  CHECK(h47 / h56 < 1.4);
}
