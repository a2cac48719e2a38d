// Strategies drawn from sound and absurd values alike: each is refused with its field, or has a plan.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "sim/cost/predict.h"
#include "sim/plan/check.h"
#include "sim/plan/legality.h"
#include "sim/scenario/preset.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

constexpr int kHuge = std::numeric_limits<int>::max(), kLeast = std::numeric_limits<int>::min();

template <class T>
const T& one_of(std::mt19937& random, const std::vector<T>& values) {
  return values[random() % values.size()];
}

int any_degree(std::mt19937& random) {
  return one_of<int>(random, {1, 1, 1, 2, 2, 3, 4, 8, 16, 0, -1, 1024, 4096, kHuge, kLeast});
}

Strategy any_strategy(std::mt19937& random) {
  const auto coin = [&] { return random() % 2 == 0; };
  const auto rarely = [&](int value, int otherwise) { return random() % 4 == 0 ? value : otherwise; };
  Strategy s;
  s.data_parallel = any_degree(random);
  s.tensor_parallel = any_degree(random);
  s.pipeline_parallel = any_degree(random);
  s.context_parallel = rarely(any_degree(random), 1);
  s.expert_parallel = rarely(any_degree(random), 1);
  s.virtual_pipeline = one_of<int>(random, {1, 1, 2, 2, 3, 0, -5, kHuge});
  s.zero_stage = one_of<int>(random, {0, 0, 1, 2, 3, -1, 4, kHuge});
  s.shard_group = rarely(any_degree(random), 0);
  s.prefetch = one_of<int>(random, {1, 1, 0, 2, -1, kHuge});
  s.gradient_bucket =
      one_of<std::int64_t>(random, {0, 0, 1, 1 << 20, -1, std::numeric_limits<std::int64_t>::max()});
  s.sequence_parallel = coin();
  s.context_parallel_comm = static_cast<ContextParallelComm>(random() % 3);
  s.schedule = one_of<std::string>(random, {"1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v",
                                            "dualpipe", "dualpipev", "", "waltz"});
  s.rank_order = one_of<std::string>(random, {"tp-cp-ep-dp-pp", "tp-cp-ep-dp-pp", "pp-dp-cp-tp-ep", "", "-",
                                              "tp-tp-cp-dp-pp", "tp-cp-dp-pp"});
  s.recompute = static_cast<Recompute>(random() % 5);
  s.recompute_interval = one_of<int>(random, {1, 1, 1, 2, 7, 0, -1, kHuge});
  if (coin())
    s.recompute_operations =
        one_of<std::vector<std::string>>(random, {{"norm"}, {"norm", "activation"}, {"everything"}, {""}});
  s.offload_optimizer = coin();
  s.offload_activations = coin();
  return s;
}

bool names_a_field(const Problem& p) {
  const std::size_t dot = p.field.find('.');
  const std::string part = p.field.substr(0, dot);
  return dot != std::string::npos && !p.message.empty() &&
         (part == "strategy" || part == "workload" || part == "hardware" || part == "model" ||
          part == "implementation");
}

TEST_CASE("any strategy is refused with its field, or has a plan that can be executed and priced") {
  const unsigned seed = GENERATE(range(0u, 40u));
  std::mt19937 random(seed);
  int sound = 0;
  for (int i = 0; i < 250; ++i) {
    Scenario s = test::training(test::llama(64, 96, 8, 8, 8, 101), 64, 1,
                                one_of<std::int64_t>(random, {1, 8, 16, 48}));
    // Every second one is drawn near to what can be, so that many are sound.
    s.strategy = i % 2 == 0 ? any_strategy(random)
                            : test::random_parallel_scenario(static_cast<unsigned>(random() % 400)).strategy;
    if (i % 2 == 1) {
      const Strategy any = any_strategy(random);
      switch (random() % 6) {
        case 0:
          s.strategy.schedule = any.schedule;
          break;
        case 1:
          s.strategy.rank_order = any.rank_order;
          break;
        case 2:
          s.strategy.zero_stage = any.zero_stage;
          break;
        case 3:
          s.strategy.recompute = any.recompute;
          break;
        case 4:
          s.strategy.context_parallel_comm = any.context_parallel_comm;
          break;
        default:
          s.strategy.shard_group = any.shard_group;
          break;
      }
      s.strategy.expert_parallel = 1;
      s.strategy.expert_tensor_parallel = 0;
      s.workload.global_batch_size = 8 * s.strategy.data_parallel;
      s.workload.optimizer = static_cast<Optimizer>(random() % 5);
    }
    INFO(to_json(s));
    const std::vector<Problem> problems = validate(s);
    for (const Problem& p : problems) CHECK(names_a_field(p));
    if (!problems.empty()) continue;
    ++sound;
    const Plan plan = make_plan(s);
    CHECK(check(plan) == std::vector<std::string>{});
    CHECK(predict_step(plan, s.hardware).seconds.value > 0);
  }
  CHECK(sound > 0);
}

TEST_CASE("a scenario file with any value in any field of its strategy is read, or refused with the field") {
  using Json = nlohmann::ordered_json;
  std::mt19937 random(5);
  const Json sound = Json::parse(to_json(test::training(test::llama(64, 96, 4, 4, 4, 101), 64)));
  const std::vector<Json> values{
      nullptr,          true,  -1, 0, 1e300, 1LL << 62, "", "ring", Json::array(), Json::object(),
      Json::array({1}), "1f1b"};
  int refused = 0;
  for (const auto& [key, value] : sound["strategy"].items())
    for (const Json& other : values) {
      Json changed = sound;
      changed["strategy"][key] = other;
      try {
        validate(scenario_from_json(changed.dump(), "any.json"));
      } catch (const PresetError& e) {
        ++refused;
        const std::string stem = key.substr(0, key.rfind('_'));
        CHECK(std::string(e.what()).find(stem) != std::string::npos);
      }
    }
  CHECK(refused > 50);
}

}  // namespace
