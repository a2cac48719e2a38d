// Laws that prices of operations keep, whatever their kind: a slower chip is slower in what it is slower at.
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/cost/calibration_preset.h"
#include "sim/cost/priced_plan.h"
#include "sim/scenario/preset.h"
#include "tests/sim/random_strategies.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

using Visit = std::function<void(const Operation&, const PricedOperation&)>;

// Each operation of each block, with each set of variables that a program runs it with; at most the first
// two tokens of a generation.
void for_each_price(const Plan& plan, const Hardware& hardware, const Calibration* calibration,
                    const Visit& visit) {
  BlockPricer pricer(plan, hardware, calibration);
  std::set<std::tuple<BlockId, Phase, Variables>> met;
  for (const Program& program : plan.programs)
    for (const Action& a : program.actions) {
      if (a.peer >= 0 || !met.emplace(a.block, a.phase, a.variables).second || met.size() > 200) continue;
      const PricedBlock block = pricer.price(a.block, a.phase, a.variables);
      const auto& operations = plan.blocks[static_cast<std::size_t>(a.block)].operations;
      for (std::size_t i = 0; i < operations.size(); ++i) visit(operations[i], block.operations[i]);
    }
}

// The prices of all operations on one chip and on another, side by side: of compute, not of the network or
// the host.
struct Pair {
  OpKind kind;
  std::string id;
  PricedOperation before, after;
};
std::vector<Pair> price_both(const Scenario& s, const Hardware& a, const Calibration* of_a,
                             const Scenario& other, const Hardware& b, const Calibration* of_b) {
  std::vector<Pair> pairs;
  for_each_price(make_plan(s), a, of_a, [&](const Operation& op, const PricedOperation& p) {
    pairs.push_back({op.kind, op.id, p, {}});
  });
  std::size_t i = 0;
  for_each_price(make_plan(other), b, of_b,
                 [&](const Operation&, const PricedOperation& p) { pairs[i++].after = p; });
  std::erase_if(pairs, [](const Pair& p) {
    return is_collective(p.kind) || p.before.work.host.value > 0 || p.before.work.copied.value > 0;
  });
  return pairs;
}

// Scenarios that between them have every kind that plans are made of.
std::vector<Scenario> of_every_kind() {
  const Model scanned = load_model_preset("nemotron-3-nano-30b-a3b");
  const Model dense = load_model_preset("llama-3.1-8b"), experts = load_model_preset("mixtral-8x7b"),
              latent = load_model_preset("deepseek-v2-lite"), gpt2 = load_model_preset("gpt2-124m"),
              normed = load_model_preset("qwen3-8b"), squared = load_model_preset("nemotron-4-15b"),
              rectified = load_model_preset("opt-125m"), geglu = load_model_preset("gemma-2b");
  std::vector<Scenario> all;
  for (const Model& m : {dense, experts, latent, gpt2, normed, squared, rectified, geglu, scanned}) {
    all.push_back(test::training(m, 1024));
    all.push_back(test::generation(m, 512, 2));
  }
  for (const Optimizer o :
       {Optimizer::adamw_8bit, Optimizer::adafactor, Optimizer::sgd, Optimizer::lion, Optimizer::muon}) {
    all.push_back(test::training(gpt2, 1024));
    all.back().workload.optimizer = o;
  }
  all.push_back(test::training(dense, 1024));
  all.back().workload.lora_rank = 8;
  all.back().workload.frozen_weights = FrozenWeights::nf4;
  Scenario s = test::training(gpt2, 1024, 2, 4, DType::fp16);
  s.implementation = test::megatron_2022();
  all.push_back(s);
  s = test::training(dense, 4096, 1, 1, DType::fp8);
  s.strategy.tensor_parallel = 4;
  s.strategy.sequence_parallel = true;
  all.push_back(s);
  for (const auto comm :
       {ContextParallelComm::ring, ContextParallelComm::all_gather, ContextParallelComm::all_to_all}) {
    s = test::training(dense, 8192);
    s.strategy.context_parallel = 4;
    s.strategy.context_parallel_comm = comm;
    all.push_back(s);
  }
  for (const Scenario& each : all) {
    CAPTURE(each.model.name);
    REQUIRE(validate(each) == std::vector<Problem>{});
  }
  return all;
}

std::vector<Scenario> drawn_at_random() {
  std::vector<Scenario> all;
  for (unsigned seed = 0; seed < 40; ++seed) {
    all.push_back(test::random_scenario(seed));
    all.push_back(test::random_parallel_scenario(seed));
  }
  RandomStrategies strategies(7);
  for (int i = 0; i < 20; ++i) {
    all.push_back(strategies.next());
    all.back().workload.global_batch_size =
        all.back().workload.micro_batch_size * all.back().strategy.data_parallel;
    if (!validate(all.back()).empty()) all.pop_back();
  }
  return all;
}

constexpr double kNoLimit = 1e50;

// A chip of which only arithmetic, or only memory, takes time.
Hardware bound_by(Hardware h, bool arithmetic, double rate) {
  h.launch = {};
  if (arithmetic) h.memory_bandwidth.value = kNoLimit;
  if (!arithmetic) h.memory_bandwidth.value *= rate;
  for (auto& [dtype, peak] : h.peak) peak.value = arithmetic ? peak.value * rate : kNoLimit;
  return h;
}

Calibration without_launch(Calibration c) {
  c.launch = {};
  if (c.gpu) c.gpu->launch = {};
  return c;
}

void check_half_rate(const Scenario& s, const Hardware& chip, const Calibration* tables, bool arithmetic,
                     std::set<OpKind>& seen) {
  const std::vector<Pair> pairs =
      price_both(s, bound_by(chip, arithmetic, 1), tables, s, bound_by(chip, arithmetic, 0.5), tables);
  for (const Pair& p : pairs) {
    if (p.before.price.seconds.value < 1e-30) continue;  // nothing of this sort to do
    INFO(s.model.name << ", " << s.implementation.name << ", " << p.id << ", by "
                      << (tables ? "tables" : "datasheet"));
    REQUIRE(p.after.price.seconds / p.before.price.seconds == Approx(2).epsilon(1e-9));
    seen.insert(p.kind);
  }
}

TEST_CASE("at half the arithmetic rate all that is bound by arithmetic takes twice as long, of every kind") {
  const Hardware chip = load_hardware_preset("h100-sxm");
  const Calibration tables = without_launch(load_calibration_preset("h100-sxm").value());
  std::set<OpKind> seen;
  for (const Scenario& s : of_every_kind()) {
    check_half_rate(s, chip, nullptr, true, seen);
    check_half_rate(s, chip, &tables, true, seen);
  }
  for (const Scenario& s : drawn_at_random()) check_half_rate(s, chip, nullptr, true, seen);
  for (const KindInfo& kind : kKinds)
    if (kind.arithmetic.flops && !kind.collective) {
      INFO(name(kind.kind));
      CHECK(seen.contains(kind.kind));
    }
}

TEST_CASE("at half the bandwidth all that is bound by memory takes twice as long, of every kind") {
  const Hardware chip = load_hardware_preset("h100-sxm");
  const Calibration tables = without_launch(load_calibration_preset("h100-sxm").value());
  std::set<OpKind> seen;
  for (const Scenario& s : of_every_kind()) {
    check_half_rate(s, chip, nullptr, false, seen);
    check_half_rate(s, chip, &tables, false, seen);
  }
  for (const Scenario& s : drawn_at_random()) check_half_rate(s, chip, nullptr, false, seen);
  for (const KindInfo& kind : kKinds)
    if (!kind.collective && kind.family != Family::copies) {
      INFO(name(kind.kind));
      CHECK(seen.contains(kind.kind));
    }
}

TEST_CASE("the clock that lasts under load slows every kind that tensor cores carry, and no other") {
  Hardware burst = load_hardware_preset("h100-sxm");
  burst.sustained_clock = 1;
  Hardware lasting = burst;
  constexpr double kClock = 0.8;
  lasting.sustained_clock = kClock;
  const Calibration tables = load_calibration_preset("h100-sxm").value();
  std::set<OpKind> slowed;
  for (const Scenario& s : of_every_kind()) {
    if (s.workload.task != Task::train) continue;
    for (const Calibration* c : {static_cast<const Calibration*>(nullptr), &tables})
      for (const Pair& p : price_both(s, bound_by(burst, true, 1), c, s, bound_by(lasting, true, 1), c)) {
        if (p.before.work.flops.value <= 0 || p.before.price.seconds.value <= 0) continue;
        const double slower = p.after.price.seconds / p.before.price.seconds;
        INFO(s.model.name << ", " << p.id << ": " << slower);
        if (info(p.kind).arithmetic.tensor_cores) {
          CHECK(slower > 1);
          CHECK(slower <= 1 / kClock * (1 + 1e-12));
          slowed.insert(p.kind);
        } else {
          CHECK(slower == Approx(1).epsilon(1e-12));
        }
      }
  }
  for (const KindInfo& kind : kKinds)
    if (kind.arithmetic.tensor_cores && kind.curve != Curve::cached_attention &&
        kind.curve != Curve::latent_cached_attention) {  // these are of generation
      INFO(name(kind.kind));
      CHECK(slowed.contains(kind.kind));
    }
}

TEST_CASE(
    "kernels that a profile says are slower are so of every kind that tensor cores carry, and no other") {
  const Hardware chip = load_hardware_preset("h100-sxm");
  for (const Scenario& s : of_every_kind()) {
    Scenario slow = s;
    slow.implementation.kernels.slower = 1.25;
    for (const Pair& p : price_both(s, chip, nullptr, slow, chip, nullptr)) {
      if (p.before.price.seconds.value <= 0) continue;
      INFO(s.model.name << ", " << p.id);
      const double slower = info(p.kind).arithmetic.tensor_cores ? 1.25 : 1;
      const double ratio = p.after.price.seconds / p.before.price.seconds;
      // The longer it takes, the less the clock gives way.
      CHECK(ratio <= slower * (1 + 1e-9));
      CHECK(ratio >= std::max(1.0, slower * chip.sustained_clock) * (1 - 1e-9));
    }
  }
}

struct Attention {
  Flops flops, model_flops;
  Seconds seconds;
};
// One layer, both passes.
Attention attention_of(Scenario s, ContextParallelComm comm, int ranks, const Calibration* tables) {
  s.strategy.context_parallel = ranks;
  s.strategy.context_parallel_comm = comm;
  s.model.num_hidden_layers = 1;
  Attention sum;
  for_each_price(make_plan(s), s.hardware, tables, [&](const Operation& op, const PricedOperation& p) {
    if (!is_attention(op.kind)) return;
    sum.flops += p.work.flops;
    sum.model_flops += p.work.model_flops;
    sum.seconds += p.price.seconds;
  });
  return sum;
}

TEST_CASE("a rank's attention is as much work however the sequence is divided over context ranks") {
  for (const std::int64_t window : {0, 1024}) {
    Scenario s = test::training(load_model_preset("llama-3.1-8b"), 8192);
    s.model.sliding_window = window;
    for (const int ranks : {2, 4, 8}) {
      const Attention gathered = attention_of(s, ContextParallelComm::all_gather, ranks, nullptr);
      const Attention exchanged = attention_of(s, ContextParallelComm::all_to_all, ranks, nullptr);
      CHECK(gathered.flops.value == Approx(exchanged.flops.value).epsilon(1e-12));
      CHECK(gathered.model_flops.value == Approx(exchanged.model_flops.value).epsilon(1e-12));
      if (window > 0) continue;  // rings do not know windows
      const Attention ring = attention_of(s, ContextParallelComm::ring, ranks, nullptr);
      CHECK(ring.flops.value == Approx(exchanged.flops.value).epsilon(1e-12));
      CHECK(ring.model_flops.value == Approx(exchanged.model_flops.value).epsilon(1e-12));
    }
  }
}

// Gathered keys are as long as the sequence, so are exchanged heads': kernels of one length, within what a
// launch and the traffic of keys differ. A step of a ring is a kernel of a rank's own length, which reaches
// less of the peak the shorter it is: from 8192 tokens on as much as a longer one within 8 %.
TEST_CASE("a rank's attention costs the same however the sequence is divided over context ranks") {
  for (const std::string chip : {"h100-sxm", "a100-sxm-80gb", "b200-sxm"}) {
    const std::optional<Calibration> tables = load_calibration_preset(chip);
    REQUIRE(tables);
    for (const Calibration* c : {static_cast<const Calibration*>(nullptr), &*tables})
      for (const auto& [length, ranks] : {std::pair{16384, 2}, {32768, 4}, {65536, 8}, {131072, 4}}) {
        Scenario s = test::training(load_model_preset("llama-3.1-8b"), length);
        s.hardware = load_hardware_preset(chip);
        const auto seconds = [&](ContextParallelComm comm) {
          return attention_of(s, comm, ranks, c).seconds;
        };
        const Seconds exchanged = seconds(ContextParallelComm::all_to_all);
        INFO(chip << (c ? ", tables, " : ", datasheet, ") << length << " over " << ranks);
        CHECK(seconds(ContextParallelComm::all_gather) / exchanged == Approx(1).epsilon(0.01));
        CHECK(seconds(ContextParallelComm::ring) / exchanged >= 0.99);
        CHECK(seconds(ContextParallelComm::ring) / exchanged <= 1.08);
      }
  }
}

}  // namespace
