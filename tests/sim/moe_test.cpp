// Laws and closed forms of mixtures of experts, latent attention and windows.
#include "sim/plan/moe.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "sim/cost/calibration_preset.h"
#include "sim/cost/iteration_cost.h"
#include "sim/cost/network.h"
#include "sim/cost/predict.h"
#include "sim/cost/work.h"
#include "sim/plan/legality.h"
#include "sim/plan/memory.h"
#include "sim/scenario/preset.h"
#include "tests/sim/check_plan.h"
#include "tests/sim/kept_for_backward.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

Model mixtral(std::int64_t layers) {
  Model m = test::llama(4096, 14336, layers, 32, 8, 32000);
  m.moe.num_experts = 8;
  m.moe.num_experts_per_tok = 2;
  m.moe.moe_intermediate_size = 14336;
  return m;
}

// DeepSeek-V3's shape with fewer layers and experts.
Model deepseek(std::int64_t layers, std::int64_t dense) {
  Model m = test::llama(7168, 18432, layers, 128, 128, 129280);
  m.latent = {.q_lora_rank = 1536,
              .kv_lora_rank = 512,
              .qk_nope_head_dim = 128,
              .qk_rope_head_dim = 64,
              .v_head_dim = 128};
  m.head_dim = 192;
  m.moe.num_experts = 16;
  m.moe.num_experts_per_tok = 8;
  m.moe.moe_intermediate_size = 2048;
  m.moe.shared_expert_intermediate_size = 2048;
  m.moe.first_k_dense_replace = dense;
  return m;
}

// Bytes that the first rank sends, by id.
std::map<std::string, std::int64_t> sent(const Report& r) {
  std::map<std::string, std::int64_t> bytes;
  for (const Row& row : r.rows)
    if (row.rank == 0 && row.network.value > 0) bytes[row.id] += row.network.value;
  return bytes;
}

double model_flops(const Report& r) {
  double sum = 0;
  for (const Row& row : r.rows) sum += row.model_flops.value;
  return sum;
}

TEST_CASE("each of dispatch and combine sends a row for each token and expert chosen, but for a rank's own") {
  const std::int64_t tokens = 4096, k = 2, h = 4096, e = 8, layers = 4;
  Scenario s = test::training(mixtral(layers), tokens, 1, e);
  s.strategy.data_parallel = s.strategy.expert_parallel = static_cast<int>(e);
  const auto bytes = sent(predict(s));
  const std::int64_t rows = layers * tokens * k * h * 2 * (e - 1) / e;
  const std::int64_t weights = layers * tokens * k * 4 * (e - 1) / e;  // of each row, to the experts
  CHECK(bytes.at("layer.experts.dispatch.all_to_all.forward") == rows + weights);
  CHECK(bytes.at("layer.experts.combine.all_to_all.forward") == rows);
  CHECK(bytes.at("layer.experts.dispatch.all_to_all.backward") == rows + weights);
  CHECK(bytes.at("layer.experts.combine.all_to_all.backward") == rows);
}

TEST_CASE("a token that crosses to each node once crosses no oftener than it has experts, or nodes") {
  Hardware hardware = load_hardware_preset("h100-sxm");
  const auto share = [&](std::int64_t chosen, std::int64_t groups, std::int64_t chosen_groups, int ranks) {
    const Dims dims{.groups = groups, .experts = 256, .chosen = chosen, .chosen_groups = chosen_groups};
    return crossing_share(dims, {Axis::expert, ranks}, hardware);
  };
  CHECK(share(8, 8, 4, 8) == 1);   // a node's links carry each copy
  CHECK(share(1, 1, 1, 64) == 1);  // one expert, one copy
  // DeepSeek-V3: 8 experts of a token on 4 of 8 nodes at most. With four nodes of 32 experts each, one has
  // none of 8 with 96! 120! / (88! 128!).
  const double none = std::exp(std::lgamma(97) + std::lgamma(121) - std::lgamma(89) - std::lgamma(129));
  CHECK(share(8, 8, 4, 64) == Approx(4 * (1 - none) / 8));
  CHECK(share(8, 8, 4, 64) < share(8, 8, 8, 64));
  for (const std::int64_t limit : {1, 2, 4, 8}) {
    CHECK(share(8, 8, limit, 64) <= static_cast<double>(limit) / 8);
    CHECK(share(8, 8, limit, 64) > 0);
  }
}

TEST_CASE("one copy for each node never makes a step longer, and is the same work inside a node") {
  Scenario s = test::training(load_model_preset("deepseek-v3"), 1024, 1, 64);
  s.hardware = load_hardware_preset("h100-sxm");
  const auto calibration = load_calibration_preset("h100-sxm");
  const auto step = [&](int ranks, ExpertDispatch dispatch, std::int64_t nodes) {
    s.model.moe.topk_group = nodes;
    s.strategy.data_parallel = 64;
    s.strategy.expert_parallel = ranks;
    s.strategy.expert_dispatch = dispatch;
    const Report with_tables = predict(s, &*calibration), without = predict(s);
    return std::pair{with_tables.step_time, without.step_time};
  };
  using D = ExpertDispatch;
  CHECK(step(8, D::each_node, 4) == step(8, D::each_expert, 4));
  const auto experts = step(64, D::each_expert, 4), four = step(64, D::each_node, 4),
             two = step(64, D::each_node, 2);
  CHECK(four.first < experts.first);
  CHECK(two.first < four.first);
  CHECK(four.second < experts.second);
  CHECK(two.second < four.second);
}

TEST_CASE("gradients of experts are exchanged by those that hold the same, all others by all") {
  Scenario s = test::training(mixtral(1), 256, 1, 16);
  s.implementation.gradient_dtype = DType::bf16;
  s.strategy.data_parallel = 16;
  s.strategy.expert_parallel = 4;
  const auto bytes = sent(predict(s));
  const ParameterCount n = count_parameters(s.model);
  const std::int64_t routed = 8 * 3LL * 4096 * 14336;
  CHECK(bytes.at("gradients.experts.all_reduce") == 2 * 3 * (2 * routed / 4) / 4);
  CHECK(bytes.at("gradients.all_reduce") ==
        Approx(2.0 * 15 * 2 * static_cast<double>(n.total - routed) / 16));
  s.strategy.expert_parallel = 8;
  s.strategy.data_parallel = 8;
  s.workload.global_batch_size = 8;
  CHECK(sent(predict(s)).count("gradients.experts.all_reduce") == 0);
}

TEST_CASE("imbalance of experts never makes a step faster, and is none where one rank has all of them") {
  const unsigned seed = GENERATE(range(0u, 60u));
  Scenario s = test::random_parallel_scenario(seed);
  if (!s.model.has_experts()) return;
  s.workload.expert_capacity_factor = 0;
  const auto step = [&](double imbalance) {
    s.workload.expert_imbalance = std::min(imbalance, static_cast<double>(s.model.moe.num_experts));
    return predict(s).step_time;
  };
  CAPTURE(seed, s.strategy.expert_parallel);
  const Seconds balanced = step(1), uneven = step(1.5), bad = step(3);
  CHECK(balanced <= uneven);
  CHECK(uneven <= bad);
  if (s.strategy.expert_parallel == 1) CHECK(balanced.value == bad.value);
}

TEST_CASE(
    "memory with room for any choice is that of all tokens on one rank, whatever imbalance is expected") {
  Scenario s = test::training(mixtral(2), 64, 1, 4);
  s.strategy.data_parallel = s.strategy.expert_parallel = 4;
  const auto peak = [&](bool any_choice, double imbalance) {
    s.implementation.expert_parallel.room_for_any_choice = any_choice;
    s.workload.expert_imbalance = imbalance;
    return plan_memory(make_plan(s), 0, Addresses::none).live_peak;
  };
  CHECK(peak(true, 1) == peak(true, 3));
  CHECK(peak(true, 1) == peak(false, 4));  // two experts a rank, two chosen: each token may have both there
  CHECK(peak(false, 1) < peak(false, 4));
  s.implementation.expert_parallel.room_for_any_choice = true;
  s.workload.expert_imbalance = 1.5;
  CHECK(check(make_plan(s)).empty());
  // What is expected decides the work.
  const Seconds expected = predict(s).step_time;
  s.implementation.expert_parallel.room_for_any_choice = false;
  CHECK(predict(s).step_time == expected);
}

TEST_CASE("model FLOPs do not depend on imbalance, executed FLOPs of experts grow with it") {
  Scenario s = test::training(mixtral(2), 512, 1, 8);
  s.strategy.data_parallel = s.strategy.expert_parallel = 8;
  const auto experts = [](const Report& r) {
    double sum = 0;
    for (const Row& row : r.rows)
      if (row.id == "layer.experts.down.forward") sum += row.flops.value;
    return sum;
  };
  const Report even = predict(s);
  s.workload.expert_imbalance = 1.25;
  const Report uneven = predict(s);
  CHECK(model_flops(uneven) == Approx(model_flops(even)).epsilon(1e-6));
  CHECK(experts(uneven) == Approx(1.25 * experts(even)));
}

TEST_CASE("a rank of a group of n does an n-th of an even mixture's work, wherever the experts are") {
  Scenario s = test::training(mixtral(2), 512, 1, 8);
  s.strategy.data_parallel = 8;
  const double alone = model_flops(predict(s));
  for (const int e : {2, 4, 8}) {
    s.strategy.expert_parallel = e;
    CHECK(model_flops(predict(s)) == Approx(alone).epsilon(1e-12));
  }
}

TEST_CASE("a capacity makes places: a factor of 1.25 is a quarter more rows, filled or not") {
  Scenario s = test::training(mixtral(1), 1024);
  s.workload.expert_capacity_factor = 1.25;
  const Plan plan = make_plan(s);
  const Variables v{.batch = 1, .query_length = 1024, .kv_length = 1024};
  CHECK(plan.buffers[static_cast<std::size_t>(plan.find("layer.experts.activation"))].elements(v) ==
        1024 * 2 * 5 / 4 * 14336);
}

// peers of Llama: 8h + 4 q + 4 g d + 4 a in attention and norms; then k (2h + 6 f) for the experts chosen,
// logits and, for each of the chosen, its number and its weight, once by token and once by row.
TEST_CASE("a layer of experts keeps k (2h + 6 f) bytes a token where a dense one keeps 6 f") {
  const std::int64_t tokens = 2048, h = 4096, q = 4096, kv = 1024, a = 32, k = 2, f = 14336, experts = 8;
  const Plan plan = make_plan(test::training(mixtral(1), tokens));
  std::int64_t kept = 0;
  for (const LiveBuffer& b : kept_for_backward(plan, 0))
    if (const std::string& name = plan.buffers[static_cast<std::size_t>(b.buffer)].name;
        !name.ends_with(".rstd"))
      kept += b.bytes.value;
  CHECK(kept == tokens * (8 * h + 4 * q + 4 * kv + 4 * a + k * (2 * h + 6 * f) + 4 * experts + 12 * k));
}

TEST_CASE("experts hit by T tokens are E (1 - (1 - k / E)^T)") {
  Operation op;
  const auto hit = [&](std::int64_t tokens, std::int64_t held) {
    op.dims = {.rows = kBatch * Extent{2} * Extent{held} / 8, .groups = held, .experts = 8, .chosen = 2};
    return experts_hit(op, {.batch = tokens, .query_length = 1, .kv_length = 1});
  };
  for (const std::int64_t tokens : {4, 16, 64})
    CHECK(hit(tokens, 8) == Approx(8 * (1 - std::pow(0.75, static_cast<double>(tokens)))).epsilon(1e-12));
  // Half of the experts, with the rows of twice as many tokens' halves.
  CHECK(hit(16, 4) == Approx(4 * (1 - std::pow(0.75, 16.0))).epsilon(1e-12));
  // Where each has places of its own, all are, however few the tokens.
  op.has_capacity = true;
  CHECK(hit(1, 8) == 8);
}

TEST_CASE("a window's pairs are those that counting finds") {
  for (std::int64_t q = 1; q <= 9; ++q)
    for (std::int64_t kv = q; kv <= 12; ++kv)
      for (std::int64_t w = 0; w <= 13; ++w) {
        std::int64_t pairs = 0;
        for (std::int64_t i = 0; i < q; ++i) pairs += w > 0 ? std::min(w, kv - i) : kv - i;
        CHECK(visible_pairs({.batch = 2, .query_length = q, .kv_length = kv}, w) ==
              static_cast<double>(2 * pairs));
      }
}

TEST_CASE("the pairs of attention in segments are those that counting finds") {
  for (std::int64_t q = 1; q <= 9; ++q)
    for (std::int64_t kv = q; kv <= 12; ++kv)
      for (std::int64_t chunk = 1; chunk <= 13; ++chunk) {
        std::int64_t pairs = 0;
        for (std::int64_t position = kv - q; position < kv; ++position) pairs += position % chunk + 1;
        CHECK(visible_pairs({.batch = 2, .query_length = q, .kv_length = kv}, 0, chunk) ==
              static_cast<double>(2 * pairs));
      }
}

std::int64_t cache_bytes(const Scenario& s) {
  const Plan plan = make_plan(s);
  std::int64_t sum = 0;
  for (const Instance& i : plan_memory(plan, 0, Addresses::none).instances)
    if (plan.buffers[static_cast<std::size_t>(i.buffer)].buffer_class == BufferClass::kv_cache)
      sum += i.bytes.value;
  return sum;
}

TEST_CASE("DeepSeek-V3 caches 70,272 bytes a token") {
  const Scenario s = test::generation(load_model_preset("deepseek-v3"), 100, 28);
  CHECK(cache_bytes(s) == 70'272 * 128);
}

TEST_CASE("a window that hides nothing from the longest sequence changes nothing") {
  for (const bool trains : {true, false}) {
    Scenario s = trains ? test::training(test::llama(64, 128, 4, 4, 2, 100), 64)
                        : test::generation(test::llama(64, 128, 4, 4, 2, 100), 10, 10);
    const Plan without = make_plan(s);
    const std::int64_t longest = trains ? s.workload.seq_len : 20;
    const auto windows = [&](std::int64_t tokens) {
      s.model.sliding_window = tokens;
      s.model.sliding_window_pattern = 0;
      bool any = false;
      const Plan plan = make_plan(s);
      CHECK(plan.blocks.size() == without.blocks.size());
      for (const Block& b : plan.blocks)
        for (const Operation& op : b.operations) any = any || op.dims.window > 0;
      return any;
    };
    CHECK_FALSE(windows(longest));
    CHECK(windows(longest - 1));
  }
}

TEST_CASE("layers with a window cache the window alone") {
  Model m = test::llama(64, 128, 6, 4, 2, 100);
  m.sliding_window = 32;
  m.sliding_window_pattern = 3;  // layers 2 and 5 see all
  const std::int64_t token = 2 * 2 * 16 * 2;
  CHECK(cache_bytes(test::generation(m, 100, 28)) == (2 * 128 + 4 * 32) * token);
  CHECK(cache_bytes(test::generation(m, 10, 10)) == 6 * 20 * token);  // shorter than the window
}

TEST_CASE(
    "Llama 4 caches a segment in three of four layers, all tokens in the fourth, which is not rotated") {
  for (const char* name : {"llama-4-scout", "llama-4-maverick"}) {
    const Model m = load_model_preset(name);
    CHECK(m.chunk_layers() == 36);
    const std::int64_t token = 2 * 8 * 128 * 2, stretch = 8192;
    CHECK(cache_bytes(test::generation(m, 16000, 384)) == (12 * 16384 + 36 * stretch) * token);
    CHECK(cache_bytes(test::generation(m, 4000, 96)) == 48 * 4096 * token);
    const Plan plan = make_plan(test::generation(m, 16000, 384));
    for (const Block& block : plan.blocks) {
      if (!block.name.starts_with("layer.")) continue;
      const bool rotates = std::any_of(block.operations.begin(), block.operations.end(),
                                       [](const Operation& op) { return op.kind == OpKind::rope; });
      CHECK(rotates == (block.name.find("unrotated") == std::string::npos));
    }
  }
}

TEST_CASE("segments that hide nothing from the longest sequence change nothing, shorter ones take less") {
  const auto with = [](std::int64_t chunk) {
    Model m = test::llama(512, 1024, 4, 8, 2, 1000);
    m.attention_chunk_size = chunk;
    return predict(test::training(m, 4096));
  };
  const Report all = with(0), long_enough = with(4096), halves = with(2048), quarters = with(1024);
  CHECK(long_enough.step_time == all.step_time);
  CHECK(model_flops(long_enough) == model_flops(all));
  CHECK(halves.step_time < all.step_time);
  CHECK(quarters.step_time < halves.step_time);
  const auto attention = [](const Report& r) {
    double sum = 0;
    for (const Row& row : r.rows)
      if (row.id == "layer.attention.flash.forward") sum += row.model_flops.value;
    return sum;
  };
  const auto pairs = [](double s) { return s * (s + 1) / 2; };
  CHECK(attention(halves) / attention(all) == Approx(2 * pairs(2048) / pairs(4096)));
}

TEST_CASE("a decoded token reads its own segment of the cache, from its first token on") {
  Model m = test::llama(64, 128, 1, 4, 2, 100);
  m.attention_chunk_size = 16;
  const Scenario s = test::generation(m, 20, 30);
  const Plan plan = make_plan(s);
  const Block* block = nullptr;
  for (const Block& b : plan.blocks)
    if (b.name == "layer.window.forward") block = &b;
  REQUIRE(block);
  for (const Operation& op : block->operations) {
    if (op.kind != OpKind::attention_cached) continue;
    const auto read = [&](std::int64_t length) {
      const Variables v{.batch = 1, .query_length = 1, .kv_length = length};
      return work_of(plan, op, v).flops.value;
    };
    const double key = read(17);  // a segment begins
    CHECK(read(32) == 16 * key);
    CHECK(read(33) == key);
    CHECK(read(40) == 8 * key);
  }
}

TEST_CASE("a forward pass of latent attention and experts takes the products of the paper's equations") {
  const double s = 1024, h = 7168, heads = 128, rq = 1536, rk = 512, nope = 128, rope = 64, value = 128;
  const Model m = deepseek(3, 1);
  const Report r = predict(test::training(m, 1024));
  double forward = 0;
  for (const Row& row : r.rows)
    if (row.phase == Phase::forward) forward += row.model_flops.value;
  const double attention =
      h * rq + rq * heads * (nope + rope) + h * (rk + rope) + rk * heads * (nope + value) + heads * value * h;
  const double scores = heads * (nope + rope + value) * (s + 1);  // 2 FLOPs of half of the pairs
  const double moe = h * 16 + (8 + 1) * 3 * h * 2048, dense = 3 * h * 18432;
  const double expected = s * (3 * (2 * attention + scores) + 2 * (2 * moe + dense) + 2 * h * 129280);
  CHECK(forward == Approx(expected).epsilon(1e-12));
  CHECK(model_flops(r) == Approx(3 * expected).epsilon(1e-12));
}

TEST_CASE("plans of latent attention can be executed, however they are divided") {
  const unsigned seed = GENERATE(range(0u, 60u));
  Scenario s = test::random_parallel_scenario(seed);
  s.implementation.attention = AttentionKind::flash;
  s.workload.global_batch_size *= s.strategy.context_parallel;  // more data-parallel ranks in its place
  s.strategy.data_parallel *= s.strategy.context_parallel;
  s.strategy.context_parallel = 1;
  Model& m = s.model;
  m.latent = {.q_lora_rank = seed % 3 == 0 ? 0 : 24,
              .kv_lora_rank = 16,
              .qk_nope_head_dim = 8,
              .qk_rope_head_dim = 4,
              .v_head_dim = 10};
  m.head_dim = 12;
  m.num_key_value_heads = m.num_attention_heads;
  m.attention_bias = false;
  m.qk_norm = QkNorm::none;
  m.position = Position::rope;
  m.no_rope_layer_interval = 0;
  CAPTURE(seed, s.strategy.tensor_parallel, s.strategy.sequence_parallel, s.strategy.schedule);
  REQUIRE(validate(s) == std::vector<Problem>{});
  const Plan plan = make_plan(s);
  CHECK(check(plan) == std::vector<std::string>{});
  CHECK(predict(plan, s.hardware).step_time.value > 0);
}

TEST_CASE("decoding by latents reads the cache and no expanded keys, prefill expands them") {
  Scenario s = test::generation(deepseek(2, 1), 64, 4);
  const Plan plan = make_plan(s);
  CHECK(check(plan) == std::vector<std::string>{});
  std::map<Phase, std::map<OpKind, int>> kinds;
  for (const Action& a : plan.programs.front().actions)
    for (const Operation& op : plan.blocks[static_cast<std::size_t>(a.block)].operations)
      ++kinds[a.phase][op.kind];
  CHECK(kinds[Phase::prefill].count(OpKind::attention_latent) == 1);
  CHECK(kinds[Phase::prefill].count(OpKind::attention_latent_cached) == 0);
  CHECK(kinds[Phase::decode].count(OpKind::attention_latent) == 0);
  CHECK(kinds[Phase::decode][OpKind::attention_latent_cached] == 2 * 3);
}

TEST_CASE("a serving engine prices latent attention: more sequences and longer contexts take longer") {
  Scenario s = test::generation(deepseek(4, 1), 64, 64);
  s.implementation = load_implementation_preset("vllm_0.8");
  s.strategy.tensor_parallel = 8;
  const IterationCost cost(s, nullptr);
  const auto decode = [&](double sequences, double context) {
    Iteration iteration;
    iteration.decode_sequences = sequences;
    iteration.decode_context = context;
    return cost.iteration(iteration).total();
  };
  CHECK(decode(1, 1000).value > 0);
  CHECK(decode(64, 1000) > decode(1, 1000));
  CHECK(decode(64, 100000) > decode(64, 1000));
}

TEST_CASE("multi-token prediction trains a layer more for each module, and decodes without them") {
  const unsigned seed = GENERATE(range(0u, 80u));
  Scenario s = test::random_parallel_scenario(seed);
  const auto parameters = [](const Scenario& scenario) {
    const Plan plan = make_plan(scenario);
    std::int64_t sum = 0;
    for (const Instance& i : plan_memory(plan, 0, Addresses::none).instances) {
      const Buffer& b = plan.buffers[static_cast<std::size_t>(i.buffer)];
      if (b.buffer_class == BufferClass::parameter) sum += b.elements({});
    }
    return sum;
  };
  s.model.num_nextn_predict_layers = 1 + seed % 3;
  s.model.embedding_multiplier = 1;  // modules have none
  CAPTURE(seed, s.strategy.zero_stage, s.strategy.pipeline_parallel, s.strategy.schedule);
  // Its embedding is the head's too, which DualPipe's two directions share under ZeRO 0 and 1 alone.
  if (s.strategy.schedule == "dualpipe" && s.strategy.zero_stage >= 2) {
    CHECK(validate(s).front().field == "strategy.zero_stage");
    s.strategy.zero_stage = 1;
  }
  REQUIRE(validate(s) == std::vector<Problem>{});
  CHECK(check(make_plan(s)) == std::vector<std::string>{});
  s.strategy = {};
  const std::int64_t with = parameters(s);
  Scenario without = s;
  without.model.num_nextn_predict_layers = 0;
  CHECK(with - parameters(without) == count_parameters(s.model).multi_token_prediction);
  // Modules do alike: FLOPs grow by as much with each.
  Scenario one = s;
  one.model.num_nextn_predict_layers = 1;
  const double none = model_flops(predict(without)), of_module = model_flops(predict(one)) - none;
  CHECK(of_module > 0);
  CHECK(model_flops(predict(s)) ==
        Approx(none + static_cast<double>(s.model.num_nextn_predict_layers) * of_module));
}

TEST_CASE("what cannot be of experts and latents is refused by field") {
  struct Refused {
    const char* field;
    void (*change)(Scenario&);
  };
  const Refused refused = GENERATE(
      Refused{"strategy.expert_parallel", [](Scenario& s) { s.strategy.expert_parallel = 3; }},
      Refused{"strategy.expert_parallel", [](Scenario& s) { s.strategy.expert_parallel = 8; }},
      Refused{"strategy.expert_parallel", [](Scenario& s) { s.strategy.tensor_parallel = 2; }},
      Refused{"strategy.expert_tensor_parallel", [](Scenario& s) { s.strategy.expert_tensor_parallel = 5; }},
      Refused{"model.num_experts_per_tok", [](Scenario& s) { s.model.moe.num_experts_per_tok = 9; }},
      Refused{"model.moe_intermediate_size", [](Scenario& s) { s.model.moe.moe_intermediate_size = 0; }},
      Refused{"model.n_group", [](Scenario& s) { s.model.moe.n_group = 3; }},
      Refused{"model.activation", [](Scenario& s) { s.model.activation = Activation::gelu; }},
      Refused{"workload.expert_imbalance", [](Scenario& s) { s.workload.expert_imbalance = 0.5; }},
      Refused{"model.sliding_window_pattern", [](Scenario& s) { s.model.sliding_window_pattern = 2; }},
      Refused{"model.num_nextn_predict_layers", [](Scenario& s) { s.model.num_nextn_predict_layers = -1; }},
      Refused{"model.attention_chunk_size",
              [](Scenario& s) { s.model.attention_chunk_size = s.model.sliding_window = 32; }},
      Refused{"model.no_rope_layer_interval",
              [](Scenario& s) {
                s.model.no_rope_layer_interval = 4;
                s.model.position = Position::alibi;
              }},
      Refused{"model.shared_expert_gate", [](Scenario& s) { s.model.moe.shared_expert_gate = true; }},
      Refused{"model.shared_norm", [](Scenario& s) { s.model.shared_norm = true; }},
      Refused{"model.head_dim",
              [](Scenario& s) {
                s.model = deepseek(2, 1);
                s.model.head_dim = 128;
              }},
      Refused{"implementation.attention", [](Scenario& s) {
                s.model = deepseek(2, 1);
                s.implementation.attention = AttentionKind::standard;
              }});
  Scenario s = test::training(mixtral(2), 64, 1, 4);
  s.strategy.data_parallel = s.strategy.expert_parallel = 4;
  REQUIRE(validate(s).empty());
  refused.change(s);
  const std::vector<Problem> problems = validate(s);
  CAPTURE(refused.field);
  CHECK(std::any_of(problems.begin(), problems.end(),
                    [&](const Problem& p) { return p.field == refused.field; }));
}

}  // namespace
