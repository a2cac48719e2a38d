// What the kinds of context parallelism, recompute, sharding, offloading and optimizers do, against what
// their papers say.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "sim/cost/predict.h"
#include "sim/plan/builder.h"
#include "sim/plan/memory.h"
#include "sim/plan/ranks.h"
#include "sim/plan/recompute.h"
#include "sim/report/metrics.h"
#include "sim/report/step_parts.h"
#include "tests/sim/check_plan.h"
#include "tests/sim/kept_for_backward.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

// Bytes that a rank sends, or copies, by the beginning of the operation's id and its phase.
std::int64_t sent(const Report& r, const std::string& begins, Phase phase) {
  std::int64_t bytes = 0;
  for (const Row& row : r.rows)
    if (row.id.starts_with(begins) && row.phase == phase) bytes += row.network.value;
  return bytes;
}

double model_flops(const Report& r) {
  double sum = 0;
  for (const Row& row : r.rows) sum += row.model_flops.value;
  return sum;
}

TEST_CASE("every kind of context parallelism shares the pairs of tokens exactly") {
  const Scenario whole = test::training(test::llama_8b(), 4096);
  const double expected = model_flops(predict(whole));
  for (const int c : {2, 4, 8})
    for (const auto comm :
         {ContextParallelComm::all_gather, ContextParallelComm::ring, ContextParallelComm::all_to_all}) {
      Scenario s = whole;
      s.strategy.context_parallel = c;
      s.strategy.context_parallel_comm = comm;
      CAPTURE(c, name(comm));
      CHECK(c * model_flops(predict(s)) == Approx(expected).epsilon(1e-12));
    }
}

TEST_CASE("a ring passes keys and values round once, and in backward twice, heads are exchanged four times") {
  const std::int64_t length = 4096, layers = 32, key_values = 2 * 8 * 128, queries = 32 * 128;
  for (const std::int64_t c : {2, 4, 8}) {
    Scenario s = test::training(test::llama_8b(), length);
    s.strategy.context_parallel = static_cast<int>(c);
    s.strategy.context_parallel_comm = ContextParallelComm::ring;
    const Report ring = predict(s);
    const std::int64_t round = layers * 2 * length * key_values * (c - 1) / c;
    CHECK(sent(ring, "layer.attention.ring", Phase::forward) == round);
    CHECK(sent(ring, "layer.attention.ring", Phase::backward) == 2 * round);
    s.strategy.context_parallel_comm = ContextParallelComm::all_to_all;
    const Report exchanged = predict(s);
    const std::int64_t rows = length / c;  // DeepSpeed-Ulysses, section 3.2: queries, keys, values; and back
    const std::int64_t once = layers * 2 * rows * (queries + key_values + queries) * (c - 1) / c;
    CHECK(sent(exchanged, "layer.attention.", Phase::forward) == once);
    CHECK(sent(exchanged, "layer.attention.", Phase::backward) == once);
  }
}

TEST_CASE("a ring hides its transfers where attention takes longer, and waits for them where it does not") {
  Scenario s = test::training(test::llama_8b(), 131072);
  s.strategy.context_parallel = 8;
  s.strategy.context_parallel_comm = ContextParallelComm::ring;
  const Plan plan = make_plan(s);
  Hardware h = s.hardware;
  const double with_links = predict_step(plan, h).seconds.value;
  h.node_link = h.node_link * 1000;
  CHECK(predict_step(plan, h).seconds.value == Approx(with_links).epsilon(1e-2));
  h.node_link = s.hardware.node_link * 1e-3;
  CHECK(predict_step(plan, h).seconds.value > 2 * with_links);
}

// Bytes of optimizer states a parameter, the fp32 copy apart.
double state_bytes(Optimizer optimizer) {
  Scenario s = test::training(test::llama_8b(), 128);
  s.workload.optimizer = optimizer;
  const Plan plan = make_plan(s);
  double bytes = 0, parameters = 0;
  for (const Buffer& b : plan.buffers) {
    const double held = static_cast<double>(b.bytes({}).value * (b.per_layer ? 32 : 1));
    if (b.buffer_class == BufferClass::parameter) parameters += held / 2;
    if (b.buffer_class == BufferClass::optimizer && b.parameter != kNoBuffer &&
        !b.name.starts_with("master."))
      bytes += held;
  }
  return bytes / parameters;
}

TEST_CASE("optimizers hold the bytes a parameter that their papers say") {
  CHECK(state_bytes(Optimizer::adamw) == 8);
  CHECK(state_bytes(Optimizer::sgd) == 4);
  CHECK(state_bytes(Optimizer::lion) == 4);
  CHECK(state_bytes(Optimizer::adamw_8bit) == Approx(2 + 2 * 4.0 / 256).epsilon(1e-3));
  // A row and a column of 4,096 and more numbers in place of their product.
  CHECK(state_bytes(Optimizer::adafactor) < 4 * 2.0 / 4096 + 1e-4);
  // 4 of the layers' matrices, 8 of embedding and head (1.05 of 8.03 billion) and the norms.
  CHECK(state_bytes(Optimizer::muon) == Approx(4 + 4 * 1.0509 / 8.0303).epsilon(1e-3));
}

TEST_CASE("Muon's products are five Newton-Schulz iterations along each matrix's shorter side") {
  Scenario s = test::training(test::llama_8b(), 128);
  s.workload.optimizer = Optimizer::muon;
  const auto of = [](double n, double m) { return 5 * (4 * n * n * m + 2 * n * n * n); };
  double flops = 0;
  for (const Row& row : predict(s).rows)
    if (row.kind == OpKind::orthogonalise) flops += row.flops.value;
  CHECK(flops ==
        Approx(32 * (of(4096, 6144) + of(4096, 4096) + of(4096, 28672) + of(4096, 14336))).epsilon(1e-12));
}

double most_activations(const Scenario& s) {
  const Plan plan = make_plan(s);
  Bytes most;
  for (const MemoryPoint& p : memory_timeline(plan, plan_memory(plan, 0, Addresses::none)))
    most = std::max(most, p.bytes[static_cast<std::size_t>(BufferClass::activation)]);
  return static_cast<double>(most.value);
}

TEST_CASE("inputs kept every r layers: least memory near the square root of 2 h L / A") {
  // Kept inputs are 2h bytes a token, a layer's activations A = 139,392 (memory_test.cpp).
  Scenario s = test::training(test::llama_8b(), 4096);
  s.model.num_hidden_layers = 128;
  s.model.vocab_size = 64;
  s.strategy.recompute = Recompute::full;
  const double tokens = 4096, input = 2 * 4096, layer = 139'400;
  std::map<int, double> held;
  for (const int r : {1, 2, 3, 4, 6, 8, 16, 64, 128}) {
    s.strategy.recompute_interval = r;
    held[r] = most_activations(s);
    const double formula = tokens * (input * std::ceil(128.0 / r) + layer * r);
    CAPTURE(r);
    CHECK(held[r] == Approx(formula).epsilon(0.1));
  }
  const double best = std::sqrt(128 * input / layer);  // where input * 128 / r + layer * r is least: 2.7
  for (const auto& [r, bytes] : held) CHECK(bytes >= held.at(static_cast<int>(std::lround(best))));
  s.strategy.recompute_interval = 1;
  s.strategy.recompute = Recompute::sqrt;
  CHECK(recompute_interval(s.strategy, 128) == 11);
}

TEST_CASE("whatever is recomputed, every operation runs forward once, and again at most once") {
  Scenario s = test::training(test::llama(64, 96, 7, 4, 2, 101), 32, 1, 3);
  std::map<std::string, std::int64_t> first;
  for (const Row& row : predict(s).rows)
    if (row.phase == Phase::forward) first[row.id] = row.count;
  const auto check_counts = [&](const std::set<std::string>& words) {
    const Report r = predict(s);
    for (const Row& row : r.rows) {
      if (row.phase == Phase::forward) CHECK(row.count == first.at(row.id));
      if (row.phase != Phase::recompute) continue;
      CHECK(row.count == 7 * 3);
      if (!words.empty()) CHECK(words.contains(std::string(recompute_word_of(row.id))));
    }
  };
  s.strategy.recompute = Recompute::full;
  for (s.strategy.recompute_interval = 1; s.strategy.recompute_interval <= 8; ++s.strategy.recompute_interval)
    check_counts({});
  s.strategy.recompute_interval = 1;
  s.strategy.recompute = Recompute::operations;
  s.strategy.recompute_operations = {"norm", "activation"};
  check_counts({"norm", "activation"});
}

TEST_CASE("recomputed norms and activations are not kept: 4h and 2f bytes a token less") {
  Scenario s = test::training(test::llama_8b(), 512);
  const auto kept = [&] {
    Bytes bytes;
    const Plan plan = make_plan(s);
    for (const LiveBuffer& b : kept_for_backward(plan, 0)) bytes += b.bytes;
    return bytes.value;
  };
  const std::int64_t all = kept();
  s.strategy.recompute = Recompute::operations;
  s.strategy.recompute_operations = {"activation"};
  CHECK(all - kept() == 512 * 2 * 14336);
  s.strategy.recompute_operations = {"norm"};
  CHECK(all - kept() == 512 * (4 * 4096 + 8));  // and their statistics
}

TEST_CASE("hybrid sharding scatters inside a group and sums the shards over the groups") {
  const std::int64_t n = 16, group = 4, bytes = 2 * 8'030'261'248;
  Scenario s = test::training(test::llama_8b(), 128, 1, n);
  s.implementation.gradient_dtype = DType::bf16;
  s.strategy.data_parallel = static_cast<int>(n);
  s.strategy.shard_group = static_cast<int>(group);
  for (const int zero : {1, 2, 3}) {
    s.strategy.zero_stage = zero;
    const Report r = predict(s);
    CAPTURE(zero);
    CHECK(sent(r, "gradients.reduce_scatter", Phase::backward) == (group - 1) * bytes / group);
    CHECK(sent(r, "gradients.replicas.all_reduce", Phase::backward) ==
          2 * (n / group - 1) * (bytes / group) / (n / group));
  }
  // All of one group is ZeRO as it was.
  s.strategy.shard_group = static_cast<int>(n);
  const Seconds whole = predict(s).step_time;
  s.strategy.shard_group = 0;
  CHECK(predict(s).step_time == whole);
}

TEST_CASE("buckets send the same bytes in fewer messages") {
  Scenario s = test::training(test::llama_8b(), 128, 1, 8);
  s.strategy.data_parallel = 8;
  const auto reduced = [&] {
    std::pair<std::int64_t, std::int64_t> messages_and_bytes;
    for (const Row& row : predict(s).rows)
      if (row.id == "gradients.all_reduce") {
        messages_and_bytes.first += row.count;
        messages_and_bytes.second += row.network.value;
      }
    return messages_and_bytes;
  };
  const auto [each, bytes] = reduced();
  CHECK(each == 34);
  s.strategy.gradient_bucket = std::int64_t{5} * 2 * 218'112'000;  // five layers
  const auto [few, same] = reduced();
  CHECK(few == 2 + 7);  // 32 layers in fives and a two
  CHECK(same == bytes);
}

TEST_CASE("gathering further ahead is no slower and holds more") {
  Scenario s = test::training(test::llama_8b(), 2048, 1, 16);
  s.strategy.data_parallel = 16;
  s.strategy.zero_stage = 3;
  Seconds before{1e9};
  Bytes held_before;
  for (const int ahead : {0, 1, 2, 4}) {
    s.strategy.prefetch = ahead;
    const Plan plan = make_plan(s);
    const Seconds t = predict_step(plan, s.hardware).seconds;
    Bytes held;
    for (const MemoryPoint& p : memory_timeline(plan, plan_memory(plan, 0, Addresses::none)))
      held = std::max(held, p.bytes[static_cast<std::size_t>(BufferClass::communication)]);
    CAPTURE(ahead);
    CHECK(t <= before);
    CHECK(held >= held_before);
    before = t;
    held_before = held;
  }
}

TEST_CASE("ranks are numbered as the order says") {
  Strategy s;
  s.tensor_parallel = 2;
  s.context_parallel = 3;
  s.data_parallel = 5;
  s.pipeline_parallel = 7;
  const auto strides = [&](const char* order) {
    s.rank_order = order;
    const RankStrides r = rank_strides(s);
    return std::vector<int>{r.tensor, r.context, r.data, r.pipeline};
  };
  CHECK(strides("tp-cp-ep-dp-pp") == std::vector<int>{1, 2, 6, 30});  // Megatron-LM
  CHECK(strides("tp-cp-pp-ep-dp") == std::vector<int>{1, 2, 42, 6});  // Llama 3
  CHECK(strides("pp-dp-cp-ep-tp") == std::vector<int>{105, 35, 7, 1});
  s.rank_order = "tp-cp-pp-ep-dp";
  const Group data = data_group(s);
  CHECK(data.size == 15);
  CHECK(data.outer_size == 5);
  CHECK(ranks_in_node(data, 8) == 3);   // the context-parallel ones
  CHECK(ranks_in_node(data, 48) == 3);  // the next replica begins at 42
  CHECK(ranks_in_node(data, 84) == 6);
  CHECK_FALSE(rank_order_problem("tp-cp-dp-pp").empty());
  CHECK(rank_order_problem("dp-ep-tp-pp-cp").empty());
}

TEST_CASE("replicas beside each other exchange gradients inside a node, and stages send between nodes") {
  Scenario s = test::training(test::llama_8b(), 2048, 1, 8);
  s.strategy.data_parallel = 8;
  s.strategy.pipeline_parallel = 4;
  const auto all_reduce_time = [&](const char* order) {
    s.strategy.rank_order = order;
    Seconds t;
    for (const Row& row : predict(s).rows)
      if (row.id == "gradients.all_reduce") t += row.duration;
    return t;
  };
  // Two replicas of a node have two adapters: 2 x 50 GB/s x 0.93 instead of 450 x 0.8.
  CHECK(all_reduce_time("tp-cp-ep-dp-pp") * 3.5 < all_reduce_time("tp-cp-pp-ep-dp"));
}

TEST_CASE("with the optimizer offloaded the device holds parameters and gradients, the host the rest") {
  Scenario s = test::training(test::llama_8b(), 512);
  const double parameters = 8'030'261'248;
  const auto optimizer_bytes = [](const MemoryPlan& m) {
    return static_cast<double>(m.at_peak[static_cast<std::size_t>(BufferClass::optimizer)].value);
  };
  const Plan here = make_plan(s);
  const Seconds fast = predict_step(here, s.hardware).seconds;
  CHECK(optimizer_bytes(plan_memory(here, 0, Addresses::none)) == Approx(12 * parameters).epsilon(1e-6));
  CHECK(plan_host_memory(here).live_peak.value == 0);
  s.strategy.offload_optimizer = true;
  const Plan away = make_plan(s);
  CHECK(optimizer_bytes(plan_memory(away, 0, Addresses::none)) < 1000);
  // Moments and master copy 12, and what is exchanged: gradients and parameters of 2 bytes each.
  CHECK(optimizer_bytes(plan_host_memory(away)) == Approx(16 * parameters).epsilon(1e-6));
  // 28 bytes a parameter through the host's memory are far more time than through the device's.
  const double host = 28 * parameters / s.hardware.host_memory_bandwidth.value;
  CHECK(predict_step(away, s.hardware).seconds > fast + Seconds{host * 0.9});
  // The report says so, and that the host is what the step waits for.
  const Report report = predict(s);
  CHECK(host_memory(report).value == plan_host_memory(away).live_peak.value);
  CHECK(static_cast<double>(peak_memory(report).value) < 12 * parameters);
  CHECK(part_shares(report).front().part == StepPart::host);
}

TEST_CASE(
    "offloaded activations leave the device between forward and backward, and take their time on the link") {
  Scenario s = test::training(test::llama_8b(), 4096);
  const double here = most_activations(s);
  const Seconds fast = predict(s).step_time;
  s.strategy.offload_activations = true;
  CHECK(most_activations(s) < here / 4);
  const Plan plan = make_plan(s);
  const double on_host = static_cast<double>(plan_host_memory(plan).live_peak.value);
  CHECK(on_host == Approx(32.0 * 4096 * (139'392 + 8)).epsilon(0.01));
  Hardware h = s.hardware;
  const Seconds slow = predict_step(plan, h).seconds;
  CHECK(slow.value >= 2 * on_host / h.host_link.value);  // there and back
  h.host_link = h.host_link * 1000;
  CHECK(predict_step(plan, h).seconds.value == Approx(fast.value).epsilon(0.02));
}

TEST_CASE("fp8 products convert what they read, attention and head stay in 16 bits") {
  Scenario s = test::training(test::llama(64, 96, 2, 4, 2, 101), 32);
  const auto counts = [&] {
    std::map<std::pair<OpKind, Phase>, std::int64_t> count;
    for (const Row& row : predict(s).rows) count[{row.kind, row.phase}] += row.count;
    return count;
  };
  CHECK(counts()[{OpKind::quantise, Phase::forward}] == 0);
  s.workload.dtype = DType::fp8;
  const Plan plan = make_plan(s);
  CHECK(check(plan) == std::vector<std::string>{});
  auto fp8 = counts();
  CHECK(fp8[{OpKind::quantise, Phase::forward}] == 2 * 4 * 2);  // four products of each layer, both factors
  // Each product's gradient, input and weight.
  CHECK(fp8[{OpKind::quantise, Phase::backward}] == 2 * 4 * 3);
  for (const Block& block : plan.blocks)
    for (const Operation& op : block.operations) {
      const bool wide = op.kind == OpKind::attention_flash || op.kind == OpKind::attention_flash_backward ||
                        op.id.starts_with("head.");
      if (wide) CHECK(op.dtype != DType::fp8);
    }
}

TEST_CASE("fp16 scales the loss: gradients are unscaled, and the host reads whether one overflowed") {
  const auto counts = [](DType dtype) {
    Scenario s = test::training(test::llama(64, 96, 2, 4, 2, 101), 32);
    s.workload.dtype = dtype;
    std::map<OpKind, std::int64_t> count;
    for (const Row& row : predict(s).rows) count[row.kind] += row.count;
    return std::pair{count[OpKind::unscale], count[OpKind::host_read]};
  };
  CHECK(counts(DType::fp16) == std::pair<std::int64_t, std::int64_t>{4, 1});  // embedding, two layers, head
  CHECK(counts(DType::bf16) == std::pair<std::int64_t, std::int64_t>{0, 0});
}

}  // namespace
