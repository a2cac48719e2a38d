#include <algorithm>
#include <memory>
#include <set>
#include <tuple>

#include "sim/cost/calibration_preset.h"
#include "sim/cost/predict.h"
#include "sim/plan/legality.h"
#include "sim/planner/candidate_walk.h"
#include "sim/planner/explain.h"
#include "sim/planner/schedule_facts.h"
#include "sim/planner/search.h"
#include "sim/planner/search_json.h"
#include "sim/scenario/preset.h"
#include "sim/scenario/scenario_json.h"
#include "tests/support/catch.h"

using namespace sim;

namespace {

SearchSpace small_space() {
  Scenario s;
  s.model = load_model_preset("gpt2-124m");
  s.hardware = load_hardware_preset("h100-sxm");
  s.implementation = load_implementation_preset("ridgepoint");
  s.workload.seq_len = 1024;
  s.workload.global_batch_size = 8;
  SearchSpace space = every_strategy(s, {2, 4});
  space.virtual_pipeline = {1, 2};
  return space;
}
const Tariff kTariff{.usd_per_device_hour = 2.5, .watts_per_device = 900};

// All that does not depend on how long it took.
void require_same(const SearchResult& a, const SearchResult& b) {
  REQUIRE(a.looked_at == b.looked_at);
  REQUIRE(a.legal == b.legal);
  REQUIRE(a.evaluated == b.evaluated);
  REQUIRE(a.fitting == b.fitting);
  REQUIRE(a.refused == b.refused);
  REQUIRE(a.best == b.best);
  REQUIRE(a.front == b.front);
  REQUIRE(a.points == b.points);
  REQUIRE(a.smallest == b.smallest);
  REQUIRE(a.fastest == b.fastest);
}

bool beats(const Candidate& a, const Candidate& b) {
  bool better = false;
  for (const Objective objective : kAll<Objective>) {
    if (cost(a, objective) > cost(b, objective)) return false;
    better = better || cost(a, objective) < cost(b, objective);
  }
  return better;
}

}  // namespace

TEST_CASE(
    "each candidate of a space is counted once, and legal are those that validate() lets pass and no other "
    "says") {
  const SearchSpace space = small_space();
  const std::int64_t n = size(space);
  const std::optional<Calibration> calibration = load_calibration_preset("h100-sxm");
  const SearchResult r = search(space, {}, kTariff, &*calibration);
  std::int64_t refused = 0, legal = 0;
  for (const auto& [reason, count] : r.refused) refused += count;
  CHECK(r.looked_at == n);
  CHECK(r.fitting + refused == n);
  std::set<std::string> fields;
  for (std::int64_t i = 0; i < n; ++i) {
    const Scenario s = candidate(space, i);
    const std::vector<Problem> problems = validate(s);
    const std::string_view twice = said_twice(space, s.strategy);
    legal += problems.empty() && twice.empty();
    for (const Problem& p : problems) fields.insert(p.field);
    if (problems.empty() && !twice.empty()) fields.emplace(twice);
  }
  CHECK(r.legal == legal);
  CHECK(r.evaluated == legal);  // a small model: all of them fit
  for (const auto& [reason, count] : r.refused) CHECK(fields.contains(reason));
}

TEST_CASE(
    "a strategy that can be said in two ways is listed once: an expert's devices, the ranks of a shard") {
  Scenario s;
  s.model = load_model_preset("mixtral-8x7b");
  s.hardware = load_hardware_preset("h100-sxm");
  s.implementation = load_implementation_preset("ridgepoint");
  s.workload.seq_len = 4096;
  s.workload.global_batch_size = 8;
  const SearchSpace space = every_strategy(s, {8});
  REQUIRE(space.expert_tensor_parallel == std::vector{0, 1});
  REQUIRE(space.shard_group == std::vector{0, 8});
  const SearchResult r = search(space, {}, kTariff, nullptr);
  const std::vector<Candidate>& best = r.best[Objective::memory];
  REQUIRE(best.size() > 4);
  std::set<std::string> said;
  for (const Candidate& c : best) {
    Scenario one = candidate(space, c.index);
    Strategy& t = one.strategy;
    if (t.shard_group == t.data_parallel * t.context_parallel) t.shard_group = 0;
    if (t.expert_tensor_parallel == t.tensor_parallel) t.expert_tensor_parallel = 0;
    CHECK(said.insert(to_json(one)).second);
  }
}

TEST_CASE("a search's result depends neither on threads nor on ranges") {
  const SearchSpace space = small_space();
  SearchOptions options;
  options.most_kept = 7;
  options.most_points = 50;
  // Memory refuses some, time others.
  Constraints constraints;
  constraints.memory_reserved = gib(78.7);
  constraints.slowest_step = Seconds{0.02};
  const SearchResult whole = search(space, constraints, kTariff, nullptr, options);
  REQUIRE(whole.fitting > 0);
  REQUIRE(whole.refused.contains("memory"));
  REQUIRE(whole.refused.contains("slowest_step"));
  options.threads = 3;
  require_same(whole, search(space, constraints, kTariff, nullptr, options));
  const std::int64_t n = size(space);
  SearchResult parts;
  for (const auto& [begin, end] :
       {std::pair{n / 3, n}, std::pair{std::int64_t{0}, n / 7}, std::pair{n / 7, n / 3}}) {
    options.begin = begin;
    options.end = end;
    merge(parts, search(space, constraints, kTariff, nullptr, options), options);
  }
  CHECK(parts.begin == 0);
  CHECK(parts.end == n);
  require_same(whole, parts);
}

TEST_CASE("searches that share what they find of schedules find the same as alone") {
  SearchSpace other = small_space();
  other.base.workload.seq_len = 512;
  other.micro_batch_size = {1, 2};
  SearchOptions sharing;
  sharing.schedules = std::make_shared<Schedules>();
  for (const SearchSpace& space : {small_space(), other, small_space()})
    require_same(search(space, {}, kTariff, nullptr, sharing), search(space, {}, kTariff, nullptr));
}

TEST_CASE("ranges that end with a layout have whole numbers of its candidates") {
  const SearchSpace space = small_space();
  const std::int64_t layout = candidates_of_layout(space);
  REQUIRE(size(space) % layout == 0);
  const auto divided = [&](std::int64_t index) {
    const Strategy s = candidate(space, index).strategy;
    return std::make_tuple(s.tensor_parallel, s.context_parallel, s.expert_parallel, s.sequence_parallel);
  };
  for (std::int64_t first = 0; first < size(space); first += layout)
    CHECK(divided(first) == divided(first + layout - 1));
}

TEST_CASE("the best and the front are those of all candidates") {
  SearchSpace space = small_space();
  space.schedule = {"1f1b", "zb-h1"};
  SearchOptions options;
  options.most_kept = 5;
  options.most_points = static_cast<std::size_t>(size(space));  // all of them
  const SearchResult r = search(space, {}, kTariff, nullptr, options);
  REQUIRE(static_cast<std::int64_t>(r.points.size()) == r.legal);
  for (const Objective objective : kAll<Objective>) {
    REQUIRE(r.best[objective].size() == options.most_kept);
    std::vector<double> costs;
    for (const Candidate& c : r.points) costs.push_back(cost(c, objective));
    std::sort(costs.begin(), costs.end());
    for (std::size_t i = 0; i < options.most_kept; ++i)
      CHECK(cost(r.best[objective][i], objective) == costs[i]);
  }
  std::set<std::int64_t> front;
  for (const Candidate& c : r.front) front.insert(c.index);
  for (const Candidate& c : r.points) {
    const bool beaten =
        std::any_of(r.points.begin(), r.points.end(), [&](const Candidate& o) { return beats(o, c); });
    if (front.contains(c.index)) CHECK_FALSE(beaten);
    if (beaten || front.contains(c.index)) continue;
    // Then another is as good in all, but for the rounding of what follows from time.
    const bool equal = std::any_of(r.front.begin(), r.front.end(), [&](const Candidate& f) {
      return f.step.value == Approx(c.step.value).epsilon(1e-12) && f.memory <= c.memory &&
             f.devices == c.devices;
    });
    CHECK(equal);
  }
}

TEST_CASE("the search's candidates are those that estimate() estimates") {
  const SearchSpace space = small_space();
  SearchOptions options;
  options.most_points = 60;
  const SearchResult r = search(space, {}, kTariff, nullptr, options);
  for (const Candidate& c : r.points) {
    const Estimate e = estimate(candidate(space, c.index));
    CHECK(e.step == c.step);
    CHECK(e.memory == c.memory);
  }
}

TEST_CASE("a search times what is gathered further ahead as if nothing had been gathered less far") {
  SearchSpace space = small_space();
  Scenario& s = space.base;
  s.model = load_model_preset("llama-3.1-8b");
  // Its host launches what is gathered ahead before the first pass.
  s.implementation = load_implementation_preset("hf_fsdp");
  s.hardware.memory = gib(1000);
  s.workload.seq_len = 4096;
  space.devices = {256};
  space.global_batch_size = {1024};
  space.tensor_parallel = {2};
  space.context_parallel = space.virtual_pipeline = {1};
  space.pipeline_parallel = {4};
  space.schedule = {"1f1b", "dualpipe"};
  space.micro_batch_size = {2};
  space.offload_optimizer = {false};
  space.zero_stage = {3};
  space.prefetch = {1, 2, 3, 4, 6, 8};
  space.gradient_bucket = {0};
  SearchOptions options;
  options.most_points = static_cast<std::size_t>(size(space));
  const SearchResult r = search(space, {}, kTariff, nullptr, options);
  REQUIRE(r.points.size() > 50);
  for (const Candidate& c : r.points) {
    INFO(c.index);
    CHECK(estimate(candidate(space, c.index)).step == c.step);
  }
}

TEST_CASE("where nothing fits, the smallest and the constraints that refuse are told") {
  Constraints constraints;
  constraints.memory_reserved = gib(79.99);
  const SearchResult r = search(small_space(), constraints, kTariff, nullptr);
  CHECK(r.fitting == 0);
  CHECK(r.refused.at("memory") == r.legal);
  REQUIRE(r.smallest);
  CHECK(r.smallest->memory > Bytes{0});
  CHECK(r.smallest->step > Seconds{});
}

TEST_CASE("constraints that nothing can keep to are refused, and so is a space without values") {
  Constraints constraints;
  constraints.memory_share = 1.5;
  REQUIRE_THROWS_WITH(search(small_space(), constraints, kTariff, nullptr), Catch::Contains("memory_share"));
  SearchSpace space = small_space();
  space.schedule.clear();
  CHECK(size(space) == 0);
  REQUIRE_THROWS_WITH(search(space, {}, kTariff, nullptr), Catch::Contains("search.schedule"));
}

TEST_CASE("a search that is stopped says how far it came") {
  std::stop_source stop;
  stop.request_stop();
  SearchOptions options;
  options.stop = stop.get_token();
  const SearchResult r = search(small_space(), {}, kTariff, nullptr, options);
  CHECK(r.looked_at == 0);
}

TEST_CASE("what two strategies spend their steps on adds up to the steps") {
  const SearchSpace space = small_space();
  const SearchResult r = search(space, {}, kTariff, nullptr);
  const auto& best = r.best[Objective::time];
  const Explanation e =
      explain({candidate(space, best.front().index), candidate(space, best.back().index)}, nullptr);
  for (std::size_t i : {0, 1}) {
    Seconds sum;
    for (const SpendingRow& row : e.rows) sum += row.seconds[i];
    CHECK(sum.value == Approx(e.step[i].value).epsilon(1e-9));
  }
  CHECK(e.step[0] == predict(candidate(space, best.front().index)).step_time);
  CHECK(e.sentence.find("faster") != std::string::npos);
}

TEST_CASE("a step of several nodes is explained with what its ranks wait for the slowest of them") {
  Scenario scenario = candidate(small_space(), 0);
  scenario.strategy = {};
  scenario.strategy.data_parallel = 64;
  scenario.workload.global_batch_size = 64 * scenario.workload.micro_batch_size;
  const Report report = predict(scenario);
  REQUIRE(report.waiting_for_slowest.value > 0);
  const Explanation e = explain({scenario}, nullptr);
  Seconds sum, waiting;
  for (const SpendingRow& row : e.rows) {
    sum += row.seconds[0];
    if (row.part == Spending::slowest) waiting = row.seconds[0];
  }
  CHECK(e.step[0] == report.step_time);
  CHECK(sum.value == Approx(report.step_time.value).epsilon(1e-9));
  CHECK(waiting == report.waiting_for_slowest);
}

TEST_CASE("a count of a search that no integer holds is refused, not converted") {
  SearchResult result;
  result.refused["memory"] = 12;
  std::string text = to_json(result);
  const std::size_t before = text.find("\"memory\":12");
  REQUIRE(before != std::string::npos);
  const std::size_t at = before + std::string_view("\"memory\":").size();
  for (const char* count : {"1e300", "1.5", "9223372036854775808", "-9223372036854775809"})
    CHECK_THROWS_WITH(search_result_from_json(std::string(text).replace(at, 2, count), "journal"),
                      contains("journal is no result of a search: a whole number"));
  CHECK(search_result_from_json(text, "journal").refused == result.refused);
}
