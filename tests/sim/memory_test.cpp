#include "sim/plan/memory.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "tests/sim/kept_for_backward.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

double in_gib(Bytes b) {
  return static_cast<double>(b.value) / kGiB;
}

Bytes sum_of(const Plan& plan, BufferClass c) {
  Bytes sum;
  const MemoryPlan memory = plan_memory(plan);
  for (const Instance& i : memory.instances)
    if (plan.buffers[i.buffer].buffer_class == c) sum += i.bytes;
  return sum;
}

// Kept activations of all layers; norms' statistics, which the published laws leave out, apart.
struct Kept {
  Bytes tensors, statistics;
};
Kept kept_activations(const Scenario& s) {
  const Plan plan = make_plan(s);
  Kept kept;
  for (std::int32_t l = 0; l < s.model.num_hidden_layers; ++l)
    for (const LiveBuffer& b : kept_for_backward(plan, l)) {
      const std::string& name = plan.buffers[b.buffer].name;
      const bool statistic = name.ends_with(".mean") || name.ends_with(".rstd");
      (statistic ? kept.statistics : kept.tensors) += b.bytes;
    }
  return kept;
}

TEST_CASE("training states of Llama-3.1 8B are the playbook's: 14.957, 14.957 and 59.828 GiB") {
  Scenario s = test::training(test::llama_8b(), 128);
  s.implementation.master_weights = false;
  const Plan plan = make_plan(s);
  CHECK(in_gib(sum_of(plan, BufferClass::parameter)) == Approx(14.957).epsilon(1e-4));
  CHECK(in_gib(sum_of(plan, BufferClass::gradient)) == Approx(14.957).epsilon(1e-4));
  CHECK(in_gib(sum_of(plan, BufferClass::optimizer)) == Approx(59.828).epsilon(1e-4));
}

TEST_CASE("training states are 16 bytes a parameter, in fp32 and in mixed precision") {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    const Plan plan = make_plan(test::training(test::gpt2_124m(), 64, 1, 1, dtype));
    const std::int64_t gradient_norm = 3 * 8;
    const Bytes states = sum_of(plan, BufferClass::parameter) + sum_of(plan, BufferClass::gradient) +
                         sum_of(plan, BufferClass::optimizer);
    CHECK(states.value - gradient_norm == 16 * 124'439'808LL);
  }
}

TEST_CASE("kept activations of a GPT layer with selective recompute are 34 s b h (Korthikanti et al. 2022)") {
  // Figures of the Ultra-Scale Playbook's context-parallel chart.
  for (const auto& [seq_len, expected] :
       {std::pair{1024, 4.25}, {4096, 17.0}, {16384, 68.0}, {65536, 272.0}, {131072, 544.0}}) {
    Scenario s = test::training(test::gpt(4096, 32, 32, 128256, 131072), seq_len);
    s.implementation = test::megatron_2022();
    s.strategy.recompute = Recompute::selective;
    const Kept kept = kept_activations(s);
    CHECK(in_gib(kept.tensors) == expected);
    CHECK(kept.statistics.value == 16LL * 32 * seq_len);
  }
}

TEST_CASE("kept activations of a GPT layer without recompute are s b h (34 + 5 a s / h)") {
  for (const auto& [seq_len, expected] :
       {std::pair{1024, 3.5625}, {2048, 12.125}, {4096, 44.25}, {8192, 168.5}}) {
    Scenario s = test::training(test::gpt(2048, 16, 32, 50304, 8192), seq_len);
    s.implementation = test::megatron_2022();
    CHECK(in_gib(kept_activations(s).tensors) == expected);
  }
}

TEST_CASE(
    "kept activations of a Llama layer are 8h + 4ad + 4gd + 4a + 6f bytes a token, and 8 of statistics") {
  const std::int64_t tokens = 512;
  const Kept kept = kept_activations(test::training(test::llama_8b(), tokens));
  CHECK(kept.tensors.value == 139'392 * tokens * 32);
  CHECK(kept.statistics.value == 8 * tokens * 32);
}

TEST_CASE("full recompute keeps 2 s b h a layer") {
  Scenario s = test::training(test::llama_8b(), 512, 2, 2);
  s.strategy.recompute = Recompute::full;
  const Kept kept = kept_activations(s);
  CHECK(kept.tensors.value == 2LL * 512 * 2 * 4096 * 32);
  CHECK(kept.statistics.value == 0);
}

TEST_CASE("instances that live at the same time do not overlap") {
  const unsigned seed = GENERATE(range(0u, 60u));
  const Plan plan = make_plan(test::random_scenario(seed));
  const MemoryPlan memory = plan_memory(plan);
  const std::vector<OpTime> times = action_times(plan);
  const Program& program = plan.programs.front();
  std::vector<std::pair<std::int64_t, std::int64_t>> live;
  for (std::size_t i = 0; i < program.actions.size(); ++i) {
    const Action& a = program.actions[i];
    const Block& block = plan.blocks[a.block];
    for (std::size_t o = 0; o < block.operations.size(); ++o) {
      // Whatever lives now, by its own account, and what this action's scratch occupies now.
      live.clear();
      const OpTime now = memory.micro_batches.fold(times[i] + static_cast<OpTime>(o));
      for (const Instance& x : memory.instances) {
        const Buffer& b = plan.buffers[x.buffer];
        bool alive = x.first <= now && now <= x.last;
        if (b.buffer_class == BufferClass::scratch)
          alive = b.name.starts_with(block.name + ".") && x.first <= static_cast<OpTime>(o) &&
                  static_cast<OpTime>(o) <= x.last;
        if (alive) live.emplace_back(x.offset.value, x.offset.value + x.bytes.value);
      }
      std::sort(live.begin(), live.end());
      for (std::size_t k = 1; k < live.size(); ++k) REQUIRE(live[k - 1].second <= live[k].first);
      REQUIRE(live.back().second <= memory.arena.value);
      for (const Operand& operand : block.operations[o].operands)
        if (operand.buffer != kNoBuffer && !plan.buffers[plan.storage(operand.buffer)].on_host) {
          const Instance& x = memory.find(plan, a, operand);
          const std::pair place{x.offset.value, x.offset.value + x.bytes.value};
          REQUIRE(std::find(live.begin(), live.end(), place) != live.end());
          REQUIRE(x.bytes >= plan.buffers[x.buffer].bytes(a.variables));
        }
    }
  }
}

TEST_CASE("the peak is what an independent count over all operations finds") {
  const unsigned seed = GENERATE(range(0u, 60u));
  const Plan plan = make_plan(test::random_scenario(seed));
  const Program& program = plan.programs.front();
  // Every buffer's every use, micro-batches apart; scratch for each action.
  using Key = std::tuple<BufferId, int, int, std::size_t>;
  std::map<Key, std::pair<OpTime, OpTime>> lives;
  std::map<BufferId, Bytes> largest;
  OpTime now = 0;
  for (std::size_t i = 0; i < program.actions.size(); ++i) {
    const Action& a = program.actions[i];
    for (const Operation& op : plan.blocks[a.block].operations) {
      std::vector<Operand> all = op.operands;
      all.insert(all.end(), op.beside.begin(), op.beside.end());
      for (const Operand& o : all) {
        if (o.buffer == kNoBuffer || plan.buffers[o.buffer].on_host) continue;
        const BufferId buffer = plan.storage(o.buffer);
        const Buffer& b = plan.buffers[buffer];
        const Key key{buffer, b.per_layer ? a.layer + o.layer_offset : 0,
                      b.per_micro_batch ? a.micro_batch : 0, b.buffer_class == BufferClass::scratch ? i : 0};
        const auto [it, added] = lives.try_emplace(key, now, now);
        it->second.second = now;
        largest[buffer] = std::max(largest[buffer], b.bytes(a.variables));
      }
      ++now;
    }
  }
  std::vector<std::int64_t> change(static_cast<std::size_t>(now) + 1);
  for (const auto& [key, life] : lives) {
    const BufferId buffer = std::get<0>(key);
    const bool always = plan.buffers[buffer].lifetime == Lifetime::plan;
    const std::int64_t bytes = aligned(largest[buffer]).value;
    change[always ? 0 : life.first] += bytes;
    change[always ? now : life.second + 1] -= bytes;
  }
  std::int64_t live = 0, peak = 0;
  for (const std::int64_t c : change) peak = std::max(peak, live += c);
  const MemoryPlan memory = plan_memory(plan);
  CHECK(memory.live_peak.value == peak);
  CHECK(memory.arena >= memory.live_peak);
  CHECK(memory.duration == now);
}

TEST_CASE("packing wastes nothing on real plans, and at most a tenth of the live peak on odd ones") {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    for (const Model& model : {test::gpt2_124m(), test::llama_8b(), test::llama_405b()}) {
      Scenario s = test::training(model, 1024, 2, 8);
      s.strategy.recompute = recompute;
      const MemoryPlan memory = plan_memory(make_plan(s));
      CHECK(memory.arena == memory.live_peak);
    }
  for (unsigned seed = 0; seed < 300; ++seed) {
    const MemoryPlan memory = plan_memory(make_plan(test::random_scenario(seed)));
    CAPTURE(seed);
    CHECK(10 * memory.arena.value <= 11 * memory.live_peak.value);
  }
}

TEST_CASE("more micro-batches in a row need no more activations than one") {
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    const auto peak = [&](std::int64_t micro_batches) {
      Scenario s = test::training(test::gpt2_124m(), 256, 2, 2 * micro_batches);
      s.strategy.recompute = recompute;
      const MemoryPlan memory = plan_memory(make_plan(s));
      // Losses and inputs of each micro-batch are kept for who runs the step: 3 arrays of 512 values of 4
      // bytes.
      return memory.arena - Bytes{3 * 512 * 4} * micro_batches;
    };
    CHECK(peak(1) == peak(2));
    CHECK(peak(1) == peak(7));
  }
}

TEST_CASE("the KV cache takes 2 L g d bytes a token and element") {
  const Scenario s = test::generation(test::llama_8b(), 1000, 24, true, 3);
  const Plan plan = make_plan(s);
  CHECK(sum_of(plan, BufferClass::kv_cache).value == 2LL * 32 * 8 * 128 * 2 * 3 * 1024);
  CHECK(sum_of(make_plan(test::generation(test::llama_8b(), 1000, 24, false)), BufferClass::kv_cache).value ==
        0);
}

TEST_CASE("a KV cache of blocks has whole ones: what the last has too many is paid for") {
  const Model window = [] {
    Model m = test::llama_8b();
    m.sliding_window = 100;
    m.sliding_window_pattern = 2;  // every second layer sees all tokens
    return m;
  }();
  for (const std::int64_t block : {1, 16, 100, 1024, 4096}) {
    CAPTURE(block);
    const auto blocks = [&](std::int64_t tokens) { return (tokens + block - 1) / block * block; };
    Scenario s = test::generation(test::llama_8b(), 1000, 7, true, 3);
    s.workload.kv_block = block;
    const std::int64_t token_of_layer = 2LL * 8 * 128 * 2;
    CHECK(sum_of(make_plan(s), BufferClass::kv_cache).value == 32 * token_of_layer * 3 * blocks(1007));
    s.workload.kv_dtype = DType::fp8;
    CHECK(sum_of(make_plan(s), BufferClass::kv_cache).value == 32 * token_of_layer / 2 * 3 * blocks(1007));
    // A table of all layers alike: an int32 a block.
    const Plan plan = make_plan(s);
    const Buffer& table = plan.buffers[static_cast<std::size_t>(plan.find(buffer_names::block_table))];
    CHECK(table.bytes({.batch = 3}).value == 4 * 3 * blocks(1007) / block);
    s = test::generation(window, 1000, 7, true, 3);
    s.workload.kv_block = block;
    CHECK(sum_of(make_plan(s), BufferClass::kv_cache).value ==
          16 * token_of_layer * 3 * (blocks(1007) + blocks(100)));
  }
}

// Both have their peak in the head's backward pass: logits, and the final norm's output or its gradient.
TEST_CASE("a head in n chunks lowers the peak by all logits but the n-th part") {
  for (const bool tied : {false, true})
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      Scenario s = test::training(test::gpt2_124m(), 512, 4, 8);
      s.model.num_hidden_layers = 2;  // that the logits are what is largest
      s.model.tie_word_embeddings = tied;
      s.strategy.recompute = recompute;
      const std::int64_t rows = 4 * 512, logit = 4;  // bytes
      const auto peak = [&](int chunks) {
        s.implementation.head_chunks = chunks;
        return plan_memory(make_plan(s)).live_peak;
      };
      const Bytes whole = peak(1);
      for (const int chunks : {2, 4, 8}) {
        CAPTURE(tied, static_cast<int>(recompute), chunks);
        const std::int64_t saved = logit * s.model.vocab_size * (rows - rows / chunks);
        CHECK((whole - peak(chunks)).value == saved);
      }
    }
}

TEST_CASE("the timeline rises through forward, falls through backward, and repeats for each micro-batch") {
  const Plan plan = make_plan(test::training(test::gpt2_124m(), 256, 2, 6));
  const MemoryPlan memory = plan_memory(plan);
  const Repetition& r = memory.micro_batches;
  REQUIRE(r.count == 3);
  const auto activations = static_cast<std::size_t>(BufferClass::activation);
  std::vector<MemoryByClass> all;  // at each operation
  for (const MemoryPoint& p : memory_timeline(plan, memory)) {
    if (!all.empty()) all.resize(static_cast<std::size_t>(p.time), all.back());
    all.push_back(p.bytes);
  }
  all.resize(static_cast<std::size_t>(memory.duration), all.back());
  const auto round = all.begin() + r.begin;
  CHECK(std::equal(round, round + r.period, round + r.period));
  CHECK(std::equal(round, round + r.period, round + 2 * r.period));
  const auto fewer = [&](const MemoryByClass& a, const MemoryByClass& b) {
    return a[activations] < b[activations];
  };
  const auto top = std::max_element(round, round + r.period, fewer);
  CHECK(std::is_sorted(round, top, fewer));
  // Each layer leaves less than the one before it.
  const std::vector<OpTime> times = action_times(plan);
  Bytes before = (*top)[activations];
  for (std::size_t i = 0; i < plan.programs[0].actions.size() && times[i] < r.begin + r.period; ++i) {
    const Action& a = plan.programs[0].actions[i];
    if (a.phase != Phase::backward || plan.blocks[a.block].name != "layer.backward") continue;
    const Bytes after = all[static_cast<std::size_t>(times[i + 1])][activations];
    CHECK(after < before);
    before = after;
  }
}

}  // namespace
