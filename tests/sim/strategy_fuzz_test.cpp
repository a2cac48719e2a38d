// Strategies drawn from sound and absurd values alike: each is refused with its field, or has a plan.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "sim/cost/predict.h"
#include "sim/plan/legality.h"
#include "sim/scenario/overrides.h"
#include "sim/scenario/preset.h"
#include "tests/sim/check_plan.h"
#include "tests/sim/random_fields.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

template <class T>
const T& one_of(std::mt19937_64& random, const std::vector<T>& values) {
  return values[random() % values.size()];
}

// Values of any fields of a strategy, those that it may have and others.
Strategy any_strategy(std::mt19937_64& random) {
  static const std::vector<std::string> numbers{"1",    "1",    "1",          "2",          "2",  "3",
                                                "4",    "8",    "16",         "0",          "-1", "-5",
                                                "1024", "4096", "2147483647", "-2147483648"};
  std::vector<Override> said;
  for (const AnyField& f : all_fields()) {
    if (f.part != "strategy" || random() % 2 == 0) continue;
    const bool absurd = random() % 8 == 0;
    std::string value = random_text(random, f);
    if (f.kind == AnyField::Kind::number && random() % 4 != 0) value = one_of(random, numbers);
    if (f.kind == AnyField::Kind::text && absurd) value = one_of<std::string>(random, {"waltz", "-", ""});
    if (f.kind == AnyField::Kind::words)
      value = one_of<std::string>(
          random, {"[]", R"(["norm"])", R"(["norm", "activation"])", R"(["everything"])", R"([""])"});
    if (f.kind == AnyField::Kind::text) value = nlohmann::json(value).dump();
    said.push_back({f.path() + (f.unit == FieldUnit::bytes ? "_bytes" : ""), value});
  }
  return with_overrides({}, said, "drawn").strategy;
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
  std::mt19937_64 random(seed);
  int sound = 0;
  for (int i = 0; i < 250; ++i) {
    Scenario s = test::training(test::llama(64, 96, 8, 8, 8, 101), 64, 1,
                                one_of<std::int64_t>(random, {1, 8, 16, 48}));
    // Every second one is drawn near to what can be, so that many are sound.
    s.strategy = i % 2 == 0 ? any_strategy(random)
                            : test::random_parallel_scenario(static_cast<unsigned>(random() % 400)).strategy;
    if (i % 2 == 1) {
      const Strategy any = any_strategy(random);
      // One field of any strategy.
      const auto fields = all_fields();
      const AnyField* field = &fields[random() % fields.size()];
      while (field->part != "strategy") field = &fields[random() % fields.size()];
      Scenario other;
      other.strategy = any;
      field->copy(other, s);
      s.strategy.expert_parallel = 1;
      s.strategy.expert_tensor_parallel = 0;
      s.workload.global_batch_size = std::int64_t{8} * s.strategy.data_parallel;
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
