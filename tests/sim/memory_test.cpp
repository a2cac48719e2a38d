#include "sim/plan/memory.h"

#include <algorithm>
#include <chrono>
#include <string>

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
        if (operand.buffer != kNoBuffer) {
          const Instance& x = memory.find(plan, a, operand);
          const std::pair place{x.offset.value, x.offset.value + x.bytes.value};
          REQUIRE(std::find(live.begin(), live.end(), place) != live.end());
          REQUIRE(x.bytes >= plan.buffers[x.buffer].bytes(a.variables));
        }
    }
  }
}

}  // namespace
