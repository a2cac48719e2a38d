// An engine's prices keep the laws that prices of kernels keep: on a chip that is half as fast in what binds
// them they take twice as long, whatever the engine, the model and the step. So do scans of state-space
// layers that generate.
#include <set>
#include <tuple>

#include "sim/cost/calibration_preset.h"
#include "sim/cost/engine_price.h"
#include "sim/cost/priced_plan.h"
#include "sim/plan/legality.h"
#include "sim/scenario/preset.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

constexpr double kNoLimit = 1e50;

// A chip of which only arithmetic, or only memory, takes time.
Hardware bound_by(Hardware h, bool arithmetic, double rate) {
  h.launch = {};
  if (arithmetic) h.memory_bandwidth.value = kNoLimit;
  if (!arithmetic) h.memory_bandwidth.value *= rate;
  for (auto& [dtype, peak] : h.peak) peak.value = arithmetic ? peak.value * rate : kNoLimit;
  return h;
}

// The engine without what takes the same time on every chip.
Implementation without_fixed_times(Implementation i) {
  i.serving->gap = i.serving->kernel_time = i.serving->decode_attention_latency = {};
  i.serving->sorts_vocabulary = false;
  return i;
}

struct Priced {
  OpKind kind;
  std::string id;
  Seconds seconds;
};
std::vector<Priced> prices(const Scenario& s, const Hardware& hardware, const Calibration* tables) {
  const Plan plan = make_plan(s);
  BlockPricer pricer(plan, hardware, tables);
  std::vector<Priced> all;
  std::set<std::tuple<BlockId, Phase, Variables>> met;
  for (const Program& program : plan.programs)
    for (const Action& a : program.actions) {
      if (!met.emplace(a.block, a.phase, a.variables).second) continue;
      const PricedBlock block = pricer.price(a.block, a.phase, a.variables);
      const auto& operations = plan.blocks[static_cast<std::size_t>(a.block)].operations;
      for (std::size_t i = 0; i < operations.size(); ++i)
        if (!is_collective(operations[i].kind))
          all.push_back({operations[i].kind, operations[i].id, block.operations[i].price.seconds});
    }
  return all;
}

std::vector<Scenario> served() {
  std::vector<Scenario> all;
  for (const std::string engine : {"vllm_0.14", "gpt_fast", "tensorrt_llm_1.0", "fastertransformer",
                                   "llama_cpp", "sglang_0.4", "megatron_inference_2021"})
    for (const std::string model : {"llama-3.1-8b", "mixtral-8x7b", "deepseek-v2-lite"})
      for (const std::optional<DType> weights : {std::optional<DType>{}, std::optional(DType::int4)}) {
        Scenario s = test::generation(load_model_preset(model), 700, 3, true, 4);
        s.implementation = without_fixed_times(load_implementation_preset(engine));
        s.workload.weights_dtype = weights;
        s.workload.weights_group = weights ? 128 : 0;
        all.push_back(s);
      }
  // State-space layers, which no engine here serves.
  all.push_back(test::generation(load_model_preset("nemotron-h-8b"), 700, 3, true, 4));
  all.push_back(test::generation(load_model_preset("nemotron-3-nano-30b-a3b"), 700, 3, true, 4));
  for (const Scenario& s : all) {
    CAPTURE(s.model.name, s.implementation.name);
    REQUIRE(validate(s) == std::vector<Problem>{});
  }
  return all;
}

void check_half_rate(bool arithmetic, std::set<CostKind>& seen) {
  const Hardware chip = load_hardware_preset("h100-sxm");
  Calibration tables = load_calibration_preset("h100-sxm").value();
  tables.launch = tables.gpu->launch = {};
  for (const Scenario& s : served())
    for (const Calibration* c : {static_cast<const Calibration*>(nullptr), &std::as_const(tables)}) {
      const std::vector<Priced> whole = prices(s, bound_by(chip, arithmetic, 1), c),
                                half = prices(s, bound_by(chip, arithmetic, 0.5), c);
      REQUIRE(whole.size() == half.size());
      for (std::size_t i = 0; i < whole.size(); ++i) {
        if (whole[i].seconds.value < 1e-30) continue;  // nothing of this sort to do
        INFO(s.implementation.name << ", " << s.model.name << ", " << whole[i].id << ", by "
                                   << (c ? "tables" : "datasheet"));
        REQUIRE(half[i].seconds / whole[i].seconds == Approx(2).epsilon(1e-9));
        seen.insert(cost_kind(whole[i].kind));
      }
    }
}

TEST_CASE("an engine's rows that arithmetic binds take twice as long at half the arithmetic rate") {
  std::set<CostKind> seen;
  check_half_rate(true, seen);
  CHECK(seen.contains(CostKind::products));
  CHECK(seen.contains(CostKind::attention));
}

TEST_CASE("an engine's rows that memory binds take twice as long at half the bandwidth") {
  std::set<CostKind> seen;
  check_half_rate(false, seen);
  for (const CostKind kind : {CostKind::products, CostKind::attention, CostKind::small_kernels})
    CHECK(seen.contains(kind));
}

}  // namespace
