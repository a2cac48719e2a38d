// Laws of plans that are divided over devices.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "sim/cost/predict.h"
#include "sim/cost/step_detail.h"
#include "sim/plan/builder.h"
#include "sim/plan/legality.h"
#include "sim/plan/memory.h"
#include "sim/plan/schedule.h"
#include "sim/report/metrics.h"
#include "tests/sim/check_plan.h"
#include "tests/sim/kept_for_backward.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

TEST_CASE(
    "every divided plan can be executed: operands fit, nothing is read before it is written or has arrived") {
  const unsigned seed = GENERATE(range(0u, 400u));
  const Scenario s = test::random_parallel_scenario(seed);
  CAPTURE(seed, s.strategy.schedule, s.strategy.tensor_parallel, s.strategy.zero_stage);
  REQUIRE(validate(s) == std::vector<Problem>{});
  CHECK(check(make_plan(s)) == std::vector<std::string>{});
}

TEST_CASE("the checker finds an action that does not wait for another stream") {
  Scenario s = test::training(test::llama(64, 128, 2, 4, 2, 100), 32, 1, 4);
  s.strategy.data_parallel = 2;
  s.strategy.zero_stage = 3;
  Plan plan = make_plan(s);
  REQUIRE(check(plan).empty());
  auto& actions = plan.programs.front().actions;
  const auto forward = std::find_if(actions.begin(), actions.end(), [&](const Action& a) {
    return plan.blocks[static_cast<std::size_t>(a.block)].name == "layer.forward";
  });
  forward->wait = -1;
  const std::vector<std::string> violations = check(plan);
  REQUIRE(violations.size() >= 1);
  CHECK(violations.front().find("does not wait for what stream 1 writes to gathered.layer") !=
        std::string::npos);
}

// Elements of one kind that all ranks hold together, of each tensor and layer. `prefix` is of the buffers'
// names.
struct Held {
  std::int64_t elements = 0;
  std::int64_t stages = 0;  // that hold it
};
std::map<std::pair<std::string, std::int32_t>, Held> held(const Plan& plan, BufferClass c,
                                                          const std::string& prefix) {
  std::map<std::pair<std::string, std::int32_t>, Held> sum;
  const std::int64_t ranks_of_stage = plan.ranks / static_cast<std::int64_t>(plan.programs.size());
  for (std::size_t p = 0; p < plan.programs.size(); ++p)
    for (const MemoryPlan& memory : {plan_memory(plan, p, Addresses::none), plan_host_memory(plan, p)})
      for (const Instance& i : memory.instances) {
        const Buffer& b = plan.buffers[i.buffer];
        if (b.buffer_class != c || b.lifetime != Lifetime::plan || !b.name.starts_with(prefix)) continue;
        if (b.name == buffer_names::gradient_norm) continue;
        Held& h = sum[{b.name.substr(prefix.size()), i.layer}];
        h.elements += ranks_of_stage * b.elements({});
        ++h.stages;
      }
  return sum;
}

// Elements of a tensor in the whole model, and on how many of tp ranks each is held.
struct Whole {
  std::int64_t elements = 0, padding = 0, copies = 1;
  // Divided over `divided` ranks of a stage, copied on the others; of these `data` share its states under
  // ZeRO.
  std::int64_t divided = 1, data = 1;
};
Whole whole_of(const Scenario& s, const std::string& name) {
  Plan alone = [&] {
    Scenario one = s;
    one.strategy = {};
    one.workload.global_batch_size = one.workload.micro_batch_size;
    return make_plan(one);
  }();
  const Model& m = s.model;
  const std::int64_t t = s.strategy.tensor_parallel;
  Whole w{alone.buffers[alone.find(name)].elements({}), 0, 1};
  if (name == "embedding.weight" || name == "head.weight")
    w.padding = ((m.vocab_size + t - 1) / t * t - m.vocab_size) * m.hidden_size;
  const bool norm = name.find("norm") != std::string::npos &&
                    !(s.model.qk_norm == QkNorm::all_heads && name.find("qk_norm") != std::string::npos);
  if (norm || name.starts_with("layer.router.") || name == "layer.shared_expert.down.bias" ||
      name == "layer.shared_expert.gate.weight" || name == "position_embedding.weight" ||
      name == "layer.attention.output.bias" || name == "layer.mlp.down.bias")
    w.copies = t;
  if (name.starts_with("layer.attention.qkv") && t > m.num_key_value_heads) {
    const std::int64_t columns = name.ends_with("bias") ? 1 : m.hidden_size;
    w.padding = 2 * (t - m.num_key_value_heads) * m.head_dim * columns;  // copies of key-value heads
  }
  if (name == "layer.attention.qk_norm.weight" && m.qk_norm == QkNorm::all_heads && t > m.num_key_value_heads)
    w.padding = (t - m.num_key_value_heads) * m.head_dim;
  w.data = shard_ranks(s.strategy);
  w.divided = w.copies == t ? 1 : t;
  if (name.starts_with("layer.experts.")) {
    const std::int64_t shared = s.strategy.devices_of_expert(), e = s.strategy.expert_parallel;
    w.divided = (name == "layer.experts.down.bias" ? 1 : shared) * e;
    w.data = t / shared * data_ranks(s.strategy) / e;
  }
  return w;
}

TEST_CASE("parameters, gradients and optimizer states over all ranks add up to the whole") {
  const unsigned seed = GENERATE(range(0u, 60u));
  const Scenario s = test::random_parallel_scenario(seed);
  const Plan plan = make_plan(s);
  const std::int64_t data = data_ranks(s.strategy), t = s.strategy.tensor_parallel;
  CAPTURE(seed, s.strategy.tensor_parallel, s.strategy.data_parallel, s.strategy.zero_stage,
          s.strategy.expert_parallel, s.strategy.expert_tensor_parallel, s.strategy.shard_group);
  const auto holds = [&](BufferClass c, const std::string& prefix, bool sharded) {
    for (const auto& [key, h] : held(plan, c, prefix)) {
      if (key.first.starts_with("moment") || key.first.starts_with("master")) continue;
      const Whole w = whole_of(s, key.first);
      const std::int64_t of_rank = (w.elements + w.padding) / w.divided;
      const std::int64_t each = sharded ? (of_rank + w.data - 1) / w.data : of_rank;
      CAPTURE(key.first, key.second);
      CHECK(h.elements == each * t * data * h.stages);
      const Placement placement = placement_of(s.strategy.schedule);
      const bool copied = plan.programs.size() > 1 && s.model.tie_word_embeddings &&
                          key.first == "embedding.weight" && placement == Placement::loop;
      CHECK(h.stages == (copied || placement == Placement::two_directions ? 2 : 1));
    }
  };
  holds(BufferClass::parameter, "", s.strategy.zero_stage == 3);
  holds(BufferClass::gradient, "gradient.", s.strategy.zero_stage >= 2);
  const Optimizer optimizer = s.workload.optimizer;
  if (optimizer != Optimizer::adafactor)
    holds(BufferClass::optimizer, "moment1.", s.strategy.zero_stage >= 1);
  if (optimizer == Optimizer::adamw || optimizer == Optimizer::adamw_8bit)
    holds(BufferClass::optimizer, "moment2.", s.strategy.zero_stage >= 1);
  // Nothing is missing: as many tensors as the model has, of each kind.
  std::size_t layers_and_tensors = 0;
  for (const auto& [key, h] : held(plan, BufferClass::parameter, "")) layers_and_tensors += h.elements > 0;
  CHECK(held(plan, BufferClass::gradient, "gradient.").size() == layers_and_tensors);
  if (optimizer == Optimizer::adafactor) return;
  CHECK(held(plan, BufferClass::optimizer, "moment1.").size() == layers_and_tensors);
}

// Table 5.3 of ZeRO (Rajbhandari et al. 2020) with fp32 gradients: w + q + o = 2 + 4 + 12 bytes a parameter.
TEST_CASE("ZeRO's stages hold 18, 6 + 12/n, 2 + 16/n and 18/n bytes a parameter") {
  const std::int64_t n = 8;
  for (int stage = 0; stage <= 3; ++stage) {
    Scenario s = test::training(test::llama_8b(), 128, 1, n);
    s.implementation.gradient_dtype = DType::fp32;
    s.strategy.data_parallel = static_cast<int>(n);
    s.strategy.zero_stage = stage;
    const Plan plan = make_plan(s);
    std::int64_t bytes = -3 * 8;  // gradient_norm
    for (const Instance& i : plan_memory(plan, 0, Addresses::none).instances) {
      const Buffer& b = plan.buffers[i.buffer];
      const bool state = b.buffer_class == BufferClass::parameter ||
                         b.buffer_class == BufferClass::gradient || b.buffer_class == BufferClass::optimizer;
      if (state && b.lifetime == Lifetime::plan) bytes += i.bytes.value;
    }
    const std::int64_t parameters = 8'030'261'248;  // every tensor is a multiple of 8
    const std::int64_t expected[] = {18 * n, 6 * n + 12, 2 * n + 16, 18};
    CHECK(bytes == expected[stage] * parameters / n);
  }
}

Bytes kept_tensors(const Scenario& s) {
  const Plan plan = make_plan(s);
  Bytes kept;
  for (const LiveBuffer& b : kept_for_backward(plan, 0)) {
    const std::string& name = plan.buffers[b.buffer].name;
    if (!name.ends_with(".mean") && !name.ends_with(".rstd")) kept += b.bytes;
  }
  return kept;
}

TEST_CASE("kept activations of a GPT layer over t ranks are Korthikanti et al.'s, table 2") {
  const std::int64_t s = 2048, b = 4, h = 6144, a = 64;
  const std::int64_t t = GENERATE(2, 4, 8);
  Scenario scenario = test::training(test::gpt(h, 48, a, 51200, s), s, b, b);
  scenario.implementation = test::megatron_2022();
  scenario.strategy.tensor_parallel = static_cast<int>(t);
  const std::int64_t sbh = s * b * h;
  CHECK(kept_tensors(scenario).value == 10 * sbh + 24 * sbh / t + 5 * a * s * s * b / t);
  scenario.strategy.sequence_parallel = true;
  CHECK(kept_tensors(scenario).value == 34 * sbh / t + 5 * a * s * s * b / t);
  scenario.strategy.recompute = Recompute::selective;
  CHECK(kept_tensors(scenario).value == 34 * sbh / t);
  scenario.strategy.recompute = Recompute::full;
  CHECK(kept_tensors(scenario).value == 2 * sbh / t);
}

double stage_activations(const Scenario& s, std::size_t stage) {
  const Plan plan = make_plan(s);
  const MemoryPlan memory = plan_memory(plan, stage, Addresses::none);
  Bytes most;
  for (const MemoryPoint& p : memory_timeline(plan, memory))
    most = std::max(most, p.bytes[static_cast<std::size_t>(BufferClass::activation)]);
  return static_cast<double>(most.value);
}

TEST_CASE("a stage's activations are those of the micro-batches that its schedule has in flight") {
  // In the middle: no head, no embedding. One layer's activations dominate the stream's.
  const auto with = [](const char* schedule, std::int64_t micro_batches) {
    Scenario s = test::training(test::llama(256, 4096, 8, 8, 8, 64), 512, 1, micro_batches);
    s.strategy.pipeline_parallel = 4;
    s.strategy.schedule = schedule;
    return s;
  };
  const Scenario s = with("1f1b", 8);
  const double one = stage_activations(with("1f1b", 1), 1);
  CHECK(stage_activations(s, 1) / one == Approx(3).epsilon(0.05));
  CHECK(stage_activations(s, 2) / one == Approx(2).epsilon(0.05));
  CHECK(stage_activations(with("gpipe", 8), 1) / one == Approx(8).epsilon(0.05));
}

TEST_CASE(
    "what one device does is what each of a data-parallel group does: n times the batch in the same "
    "operations") {
  const Scenario one = test::training(test::llama_8b(), 256, 1, 4);
  Scenario many = one;
  many.strategy.data_parallel = 16;
  many.workload.global_batch_size = 64;
  const Report a = predict(one), b = predict(many);
  std::map<std::pair<Phase, std::string>, Row> rows;
  for (const Row& row : b.rows) rows[{row.phase, row.id}] = row;
  for (const Row& row : a.rows) {
    const Row& same = rows.at({row.phase, row.id});
    CHECK(same.duration == row.duration);
    CHECK(same.count == row.count);
  }
  CHECK(b.step_time >= a.step_time);
}

// Bytes that a rank sends, by id.
std::map<std::string, std::int64_t> sent(const Report& r) {
  std::map<std::string, std::int64_t> bytes;
  for (const Row& row : r.rows)
    if (row.network.value > 0) bytes[row.id] += row.network.value;
  return bytes;
}
TEST_CASE("ranks send what the ring algorithms and ZeRO's paper say") {
  const std::int64_t n = 8, parameters = 8'030'261'248, micro_batches = 3;
  const auto with = [&](int zero) {
    Scenario s = test::training(test::llama_8b(), 128, 1, n * micro_batches);
    s.implementation.gradient_dtype = DType::bf16;
    s.strategy.data_parallel = static_cast<int>(n);
    s.strategy.zero_stage = zero;
    return sent(predict(s));
  };
  const std::int64_t once = (n - 1) * 2 * parameters / n;
  CHECK(with(0).at("gradients.all_reduce") == 2 * once);
  CHECK(with(1).at("gradients.reduce_scatter") == once);
  CHECK(with(1).at("parameters.all_gather") == once);
  CHECK(with(2).at("gradients.reduce_scatter") == micro_batches * once);
  // Gathered for forward and again for backward, but for the embedding, which only forward reads.
  const std::int64_t embedding = (n - 1) * 2 * 128256LL * 4096 / n;
  CHECK(with(3).at("parameters.all_gather") == micro_batches * (2 * once - embedding));
}

TEST_CASE("sequence parallelism sends what tensor parallelism sends, and the norms' outputs once more") {
  const std::int64_t t = 8, tokens = 2048, h = 4096, layers = 32;
  Scenario s = test::training(test::llama_8b(), tokens);
  s.strategy.tensor_parallel = static_cast<int>(t);
  const auto layer_bytes = [&] {
    std::int64_t sum = 0;
    for (const auto& [id, bytes] : sent(predict(s)))
      if (id.starts_with("layer.")) sum += bytes;
    return sum;
  };
  const std::int64_t all_gather = (t - 1) * 2 * tokens * h / t;
  CHECK(layer_bytes() == layers * 4 * 2 * all_gather);  // 2 all-reduces forward, 2 backward
  s.strategy.sequence_parallel = true;
  CHECK(layer_bytes() == layers * (4 * 2 + 2) * all_gather);
}

TEST_CASE("context-parallel ranks share the pairs of tokens exactly, and send keys and values thrice") {
  const std::int64_t length = 4096, layers = 32, key_values = 2 * 8 * 128;
  const auto flops = [](const Report& r) {
    double sum = 0;
    for (const Row& row : r.rows) sum += row.model_flops.value;
    return sum;
  };
  Scenario s = test::training(test::llama_8b(), length);
  const double whole = flops(predict(s));
  for (const int c : {2, 4, 8}) {
    s.strategy.context_parallel = c;
    const Report r = predict(s);
    CHECK(c * flops(r) == Approx(whole).epsilon(1e-12));
    const auto bytes = sent(r);
    const std::int64_t once = layers * 2 * length * key_values * (c - 1) / c;
    // Gathered forward and again backward; their gradients summed and scattered.
    CHECK(bytes.at("layer.attention.kv.all_gather.forward") == once);
    CHECK(bytes.at("layer.attention.kv.all_gather.backward") == once);
    CHECK(bytes.at("layer.attention.kv.reduce_scatter.backward") == once);
  }
}

TEST_CASE("degree 1 of every strategy is its absence") {
  const unsigned seed = GENERATE(range(0u, 20u));
  Scenario plain = test::random_parallel_scenario(seed);
  const Strategy drawn = plain.strategy;
  plain.strategy = {.recompute = drawn.recompute,
                    .recompute_interval = drawn.recompute_interval,
                    .recompute_operations = drawn.recompute_operations};
  plain.workload.global_batch_size = 2 * plain.workload.micro_batch_size;
  plain.implementation.head_chunks = 1;  // parts of rows are views, too
  const Plan plan = make_plan(plain);
  CHECK(plan.groups.empty());
  for (const Block& b : plan.blocks)
    for (const Operation& op : b.operations) CHECK_FALSE(is_collective(op.kind));
  for (const Buffer& b : plan.buffers) CHECK(b.view_of == kNoBuffer);
  for (const Action& a : plan.programs.front().actions) CHECK(a.stream == kComputeStream);
}

TEST_CASE("no step is shorter on a slower machine, however it is divided") {
  const unsigned seed = GENERATE(range(0u, 60u));
  const Plan plan = make_plan(test::random_parallel_scenario(seed));
  const Hardware h = test::h100();
  const Seconds fast = predict(plan, h).step_time;
  const auto slower = [&](auto change) {
    Hardware less = h;
    change(less);
    return predict(plan, less).step_time;
  };
  CAPTURE(seed);
  CHECK(slower([](Hardware& x) { x.memory_bandwidth = x.memory_bandwidth * 0.5; }) >= fast);
  CHECK(slower([](Hardware& x) { x.node_link = x.node_link * 0.5; }) >= fast);
  CHECK(slower([](Hardware& x) { x.network_link = x.network_link * 0.5; }) >= fast);
  CHECK(slower([](Hardware& x) { x.node_latency = x.node_latency * 2; }) >= fast);
  CHECK(slower([](Hardware& x) { x.network_latency = x.network_latency * 2; }) >= fast);
  CHECK(slower([](Hardware& x) { x.host_link = x.host_link * 0.5; }) >= fast);
  CHECK(slower([](Hardware& x) { x.host_memory_bandwidth = x.host_memory_bandwidth * 0.5; }) >= fast);
  CHECK(slower([](Hardware& x) {
          for (auto& [dtype, peak] : x.peak) peak = peak * 0.5;
        }) >= fast);
}

TEST_CASE(
    "a step lasts at least as long as the computing of any stage, and at most as long as everything in "
    "turn") {
  const unsigned seed = GENERATE(range(0u, 60u));
  const Scenario s = test::random_parallel_scenario(seed);
  const Report r = predict(s);
  std::map<std::int32_t, Seconds> compute;
  Seconds everything;
  for (const Row& row : r.rows) {
    if (row.kind == OpKind::receive) continue;
    everything += row.duration;
    const bool beside = is_collective(row.kind) || row.kind == OpKind::copy_to_host ||
                        row.kind == OpKind::copy_from_host ||
                        (s.strategy.offload_optimizer && row.kind == OpKind::adamw);  // on the host
    if (!beside) compute[row.rank] += row.duration;
  }
  CHECK(static_cast<int>(compute.size()) == s.strategy.pipeline_parallel);
  for (const auto& [rank, seconds] : compute) CHECK(r.step_time.value >= Approx(seconds.value).epsilon(1e-9));
  CHECK(r.step_time.value <= Approx(everything.value).epsilon(1e-9));
  CHECK(r.step_low <= r.step_time);
  CHECK(r.step_time <= r.step_high);
}

TEST_CASE("the timeline's slots are the schedule's, in its order, and lie inside the step") {
  const unsigned seed = GENERATE(range(0u, 40u));
  Scenario s = test::random_parallel_scenario(seed);
  const Plan plan = make_plan(s);
  const Seconds step = predict(plan, s.hardware).step_time;
  const auto micro_batches = static_cast<std::int32_t>(
      s.workload.global_batch_size / s.workload.micro_batch_size / s.strategy.data_parallel);
  const Schedule schedule = make_schedule(s.strategy.schedule, s.strategy.pipeline_parallel,
                                          s.strategy.virtual_pipeline, micro_batches);
  std::vector<std::vector<Slot>> slots(schedule.slots.size());
  Seconds before;
  std::int32_t stage = -1;
  const std::vector<TimelineSlot> timeline = step_detail(plan, s.hardware).slots;
  for (const TimelineSlot& slot : timeline) {
    if (slot.stage != stage) before = {};
    stage = slot.stage;
    CHECK(slot.start >= before);
    CHECK(slot.end >= slot.start);
    CHECK(slot.end <= step);
    before = slot.end;
    if (slot.phase == Phase::optimizer) continue;
    const Pass backward = slot.weights  ? Pass::backward_weight
                          : slot.inputs ? Pass::backward_input
                                        : Pass::backward;
    slots[static_cast<std::size_t>(stage)].push_back(
        {slot.phase == Phase::forward ? Pass::forward : backward, slot.micro_batch, slot.chunk});
  }
  Schedule expected = schedule;
  for (auto& of_stage : expected.slots)
    for (Slot& slot : of_stage) slot.with_next = false;
  CHECK(slots == expected.slots);
}

TEST_CASE("tokens a second and MFU are of all devices: perfect scaling leaves MFU as it is") {
  Scenario s = test::training(test::llama_8b(), 1024, 1, 1);
  Report one = predict(s);
  s.strategy.data_parallel = 4;
  s.workload.global_batch_size = 4;
  Report four = predict(s);
  four.step_time = one.step_time;
  CHECK(tokens_per_second(four) == Approx(4 * tokens_per_second(one)));
  CHECK(mfu(four, FlopsConvention::six_n) == Approx(mfu(one, FlopsConvention::six_n)));
}

}  // namespace
