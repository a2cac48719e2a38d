#include "sim/planner/serving_search.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "sim/cost/iteration_cost.h"
#include "sim/cost/static_batch.h"
#include "sim/plan/legality.h"
#include "sim/planner/search_parts.h"
#include "sim/planner/searched_fields.h"
#include "sim/serving/engine_limits.h"
#include "sim/serving/simulation.h"

namespace sim {
namespace {

constexpr double kSlowShare = 0.9;  // the share of requests that are as fast as is said

double d(std::int64_t n) {
  return static_cast<double>(n);
}

std::vector<std::int64_t> batches() {
  constexpr std::int64_t kMost = 4096;
  std::vector<std::int64_t> found{1};
  for (std::int64_t b = 2; b <= kMost; b *= 2) {
    found.push_back(b);
    if (b + b / 2 <= kMost) found.push_back(b + b / 2);
  }
  return found;
}

Scenario with_memory(Scenario s, const ServingConstraints& c) {
  s.hardware.memory = usable_memory(s.hardware, c);
  return s;
}

// The least memory of a device in which `tokens` tokens of cache fit: the inverse of engine_memory().
Bytes least_memory(const Scenario& s, const EngineMemory& memory, double tokens) {
  const ServingImplementation& serving = *s.implementation.serving;
  const double fixed = d(memory.weights.value) + d(serving.reserved.value);
  const double cache = tokens * memory.cache_of_token;
  const double least = serving.cache_share_of == CacheShareOf::total_memory
                           ? (fixed + cache) / serving.cache_share
                           : fixed + cache / serving.cache_share;
  return {std::llround(std::ceil(least))};
}

SchedulerLimits limits_of(const ServingChoice& choice) {
  SchedulerLimits limits = engine_limits(choice.scenario);
  if (choice.sequences > 0) limits.max_sequences = std::min(limits.max_sequences, choice.sequences);
  return limits;
}

// Simulates one replica, with its share of the requests.
Simulation simulated(const ServingChoice& choice, const ServingTraffic& all, const SchedulerLimits& limits,
                     const IterationCost& cost) {
  const Workload& w = choice.scenario.workload;
  const Traffic traffic{
      .arrivals = poisson_arrivals(all.requests_per_second / choice.replicas(), all.duration,
                                   {.prompt = w.prompt_length, .output = w.max_new_tokens}, all.seed)};
  return simulate(traffic, limits, [&](const Iteration& i) { return cost.iteration(i); });
}

// Requests a second in the middle of many that all come at once: how fast an engine is when it never waits.
double capacity(const Scenario& s, const EngineMemory& memory, const SchedulerLimits& limits,
                const IterationCost& cost) {
  const double length = d(s.workload.prompt_length + s.workload.max_new_tokens);
  const auto at_a_time =
      std::clamp<std::int64_t>(std::llround(memory.cache_tokens / length), 1, limits.max_sequences);
  constexpr std::int64_t kWaves = 4;
  Traffic traffic;
  traffic.arrivals.assign(static_cast<std::size_t>(kWaves * at_a_time),
                          {{}, {.prompt = s.workload.prompt_length, .output = s.workload.max_new_tokens}});
  const Simulation run = simulate(traffic, limits, [&](const Iteration& i) { return cost.iteration(i); });
  std::vector<Seconds> ends;
  for (const RequestTimes& r : run.requests) ends.push_back(r.finished);
  std::ranges::sort(ends);
  const std::size_t quarter = ends.size() / kWaves;
  const Seconds between = ends[3 * quarter - 1] - ends[quarter - 1];
  return between.value > 0 ? 2 * static_cast<double>(quarter) / between.value : 0;
}

// Engines that do not differ in anything that the price of an iteration depends on.
class Engines {
 public:
  explicit Engines(const Calibration* calibration) : calibration_(calibration) {}

  const IterationCost& cost(const Scenario& s) {
    auto& found = costs_[key(s, 1)];
    if (!found) found = std::make_unique<IterationCost>(s, calibration_);
    return *found;
  }
  const EngineMemory& memory(const Scenario& s) {
    const auto [at, added] = memories_.try_emplace(key(s, s.strategy.pipeline_parallel));
    if (added) at->second = engine_memory(s);
    return at->second;
  }
  // What validate() says of a scenario: nothing in it depends on the batch but the batch's own bounds.
  const std::string& refusal(const Scenario& s) {
    const auto [at, added] = refusals_.try_emplace(key(s, 1));
    if (!added) return at->second;
    Scenario one = s;
    one.strategy.pipeline_parallel = 1;  // plans of generation do not know pipelines; static_batch.h does
    const std::vector<Problem> problems = validate(one);
    if (!problems.empty()) at->second = problems[0].field;
    return at->second;
  }
  const double& capacity_of(const Scenario& s, const SchedulerLimits& limits) {
    const auto [at, added] = capacities_.try_emplace({key(s, 1), limits.max_sequences});
    if (added) at->second = capacity(s, memory(s), limits, cost(s));
    return at->second;
  }

 private:
  using Key = std::tuple<std::optional<DType>, std::optional<DType>, int, int, int>;
  static Key key(const Scenario& s, int stages) {
    return {s.workload.weights_dtype, s.workload.kv_dtype, s.strategy.tensor_parallel,
            s.strategy.expert_parallel, stages};
  }
  const Calibration* calibration_;
  std::map<Key, std::unique_ptr<IterationCost>> costs_;
  std::map<Key, EngineMemory> memories_;
  std::map<Key, std::string> refusals_;
  std::map<std::pair<Key, std::int64_t>, double> capacities_;
};

auto order_by(ServingObjective objective) {
  return [objective](const ServingCandidate& a, const ServingCandidate& b) {
    return std::make_tuple(cost(a, objective), a.tpot, a.ttft, a.index) <
           std::make_tuple(cost(b, objective), b.tpot, b.ttft, b.index);
  };
}

// Keeps the candidates that no other beats: with the time of a later token, tokens a second a device rise.
void cut_front(std::vector<ServingCandidate>& front) {
  std::ranges::sort(front, {}, [](const ServingCandidate& c) {
    return std::make_tuple(c.tpot.value, -c.tokens_per_second_per_device(), c.index);
  });
  std::vector<ServingCandidate> kept;
  for (const ServingCandidate& c : front)
    if (kept.empty() || c.tokens_per_second_per_device() > kept.back().tokens_per_second_per_device())
      kept.push_back(c);
  front = std::move(kept);
}

bool smaller(const ServingCandidate& a, const ServingCandidate& b) {
  return std::tie(a.memory, a.index) < std::tie(b.memory, b.index);
}

std::string_view broken(const ServingCandidate& c, const ServingConstraints& limits) {
  if (limits.most_ttft && c.ttft > *limits.most_ttft) return "most_ttft";
  if (limits.most_tpot && c.tpot > *limits.most_tpot) return "most_tpot";
  return broken_rate(c, limits);
}

class ServingSearch {
 public:
  ServingSearch(const ServingSpace& space, const std::optional<ServingTraffic>& traffic,
                const ServingConstraints& constraints, const Tariff& tariff, const Calibration* calibration,
                const ServingOptions& options)
      : space_(space),
        traffic_(traffic),
        constraints_(constraints),
        tariff_(tariff),
        options_(options),
        engines_(calibration) {}

  ServingResult run() {
    const std::int64_t begin = std::clamp<std::int64_t>(options_.begin, 0, size(space_));
    const std::int64_t end =
        std::clamp<std::int64_t>(options_.end.value_or(size(space_)), begin, size(space_));
    for (std::int64_t i = begin; i < end && !options_.stop.stop_requested(); ++i) {
      ++result_.looked_at;
      if (const std::string reason = consider(i); !reason.empty()) ++result_.refused[reason];
      if (options_.on_progress) options_.on_progress(i + 1 - begin, end - begin);
    }
    tidy();
    return std::move(result_);
  }

 private:
  // Returns which constraint the candidate breaks; empty: it keeps to all of them.
  std::string consider(std::int64_t index) {
    ServingChoice choice = candidate(space_, index);
    choice.scenario = with_memory(std::move(choice.scenario), constraints_);
    const Scenario& s = choice.scenario;
    const ServingImplementation& serving = *s.implementation.serving;
    if (choice.devices % choice.devices_of_engine() != 0) return "devices";
    if (s.strategy.pipeline_parallel > s.model.num_hidden_layers) return "strategy.pipeline_parallel";
    if (traffic_ && s.strategy.pipeline_parallel > 1) return "strategy.pipeline_parallel";
    if (const std::string& reason = engines_.refusal(s); !reason.empty()) return reason;
    const bool batches = serving.batching != Batching::static_batch && !serving.benchmark_limits;
    if (batches && s.workload.batch_size > serving.max_sequences)
      return "implementation.serving.max_sequences";
    ++result_.legal;

    const EngineMemory& memory = engines_.memory(s);
    const double length = d(s.workload.prompt_length + s.workload.max_new_tokens);
    const double tokens = (traffic_ ? 1 : d(s.workload.batch_size)) * length;
    ServingCandidate c;
    c.index = index;
    c.devices = choice.devices;
    c.memory = least_memory(s, memory, tokens);
    if (!result_.smallest || smaller(c, *result_.smallest)) result_.smallest = c;
    if (tokens > memory.cache_tokens) return "memory";
    if (traffic_) {
      if (const std::string reason = under_traffic(choice, c); !reason.empty()) return reason;
    } else {
      as_batch(choice, c);
    }
    ++result_.evaluated;
    if (c.tokens_per_second > 0) set_costs(c, tariff_);
    if (const std::string_view constraint = broken(c, constraints_); !constraint.empty())
      return std::string(constraint);
    ++result_.fitting;
    keep(c);
    return {};
  }

  void as_batch(const ServingChoice& choice, ServingCandidate& c) {
    const Scenario& s = choice.scenario;
    const StaticBatchTimes times = static_batch_times(engines_.cost(s), s);
    c.ttft = times.first_token.total();
    c.tpot = times.later_token.total();
    c.tokens_per_second = d(s.workload.batch_size) * d(s.workload.max_new_tokens) /
                          times.total.total().value * choice.replicas();
  }

  std::string under_traffic(const ServingChoice& choice, ServingCandidate& c) {
    const Scenario& s = choice.scenario;
    SchedulerLimits limits;
    try {
      limits = limits_of(choice);
    } catch (const std::invalid_argument&) {  // blocks of the cache do not hold one request
      return "memory";
    }
    const IterationCost& cost = engines_.cost(s);
    if (traffic_->requests_per_second / choice.replicas() > engines_.capacity_of(s, limits))
      return "requests_per_second";
    const Simulation run = simulated(choice, *traffic_, limits, cost);
    std::vector<Seconds> ttft, tpot;
    for (const RequestTimes& r : run.requests) {
      ttft.push_back(r.ttft());
      tpot.push_back(r.tpot());
    }
    c.ttft = percentile(std::move(ttft), kSlowShare);
    c.tpot = percentile(std::move(tpot), kSlowShare);
    // All requests that come are answered. What ends in the simulated time differs with its seed.
    c.tokens_per_second = traffic_->requests_per_second * d(s.workload.max_new_tokens);
    return {};
  }

  void keep(const ServingCandidate& c) {
    for (const ServingObjective o : kAll<ServingObjective>) {
      auto& best = result_.best[o];
      best.push_back(c);
      if (best.size() > 2 * options_.most_kept) cut_to(best, options_.most_kept, order_by(o));
    }
    result_.front.push_back(c);
    constexpr std::size_t kMany = 4096;
    if (result_.front.size() > kMany) cut_front(result_.front);
  }

  void tidy() {
    for (const ServingObjective o : kAll<ServingObjective>)
      cut_to(result_.best[o], options_.most_kept, order_by(o));
    cut_front(result_.front);
  }

  const ServingSpace& space_;
  const std::optional<ServingTraffic>& traffic_;
  const ServingConstraints& constraints_;
  const Tariff& tariff_;
  const ServingOptions& options_;
  Engines engines_;
  ServingResult result_;
};

}  // namespace

double cost(const ServingCandidate& c, ServingObjective objective) {
  switch (objective) {
    case ServingObjective::throughput:
      return 1 / c.tokens_per_second_per_device();
    case ServingObjective::latency:
      return c.tpot.value;
    case ServingObjective::money:
      return c.usd_per_million_tokens;
    case ServingObjective::energy:
      return c.kwh_per_million_tokens;
  }
  return 0;
}

int ServingChoice::devices_of_engine() const {
  const Strategy& s = scenario.strategy;
  return s.tensor_parallel * s.expert_parallel * s.pipeline_parallel;
}

int ServingChoice::replicas() const {
  return devices / (scenario.strategy.tensor_parallel * scenario.strategy.pipeline_parallel);
}

ServingSpace every_serving(const Scenario& base, const std::vector<int>& devices,
                           const std::optional<ServingTraffic>& traffic) {
  ServingSpace space;
  space.base = base;
  space.devices = devices;
  space.weights_dtype = {base.workload.weights_dtype};
  space.kv_dtype = {base.workload.kv_dtype};
  const std::int64_t node = std::max(1, base.hardware.devices_per_node);
  space.tensor_parallel = divisors(devices, std::min<std::int64_t>(node, base.model.num_attention_heads));
  space.expert_parallel = {1};
  if (base.model.has_experts()) space.expert_parallel = divisors(devices, base.model.moe.num_experts);
  space.pipeline_parallel = {1};
  if (!traffic) space.pipeline_parallel = divisors(devices, base.model.num_hidden_layers);
  space.batch_size = traffic ? std::vector<std::int64_t>{0} : batches();
  return space;
}

std::int64_t size(const ServingSpace& space) {
  std::vector<std::size_t> counts;
  for_each_serving_field(space, [&](auto, const auto& values) { counts.push_back(values.size()); });
  return product(counts);
}

ServingChoice candidate(const ServingSpace& space, std::int64_t index) {
  require_candidate(space, index);
  // The last field changes fastest.
  const auto next = [&index](const auto& values) {
    const auto n = static_cast<std::int64_t>(values.size());
    const auto value = values[static_cast<std::size_t>(index % n)];
    index /= n;
    return value;
  };
  ServingChoice choice{.scenario = space.base};
  Strategy& s = choice.scenario.strategy;
  Workload& w = choice.scenario.workload;
  choice.sequences = next(space.batch_size);
  w.batch_size = std::max<std::int64_t>(1, choice.sequences);
  s.pipeline_parallel = next(space.pipeline_parallel);
  s.expert_parallel = s.data_parallel = next(space.expert_parallel);
  s.tensor_parallel = next(space.tensor_parallel);
  w.kv_dtype = next(space.kv_dtype);
  w.weights_dtype = next(space.weights_dtype);
  choice.devices = next(space.devices);
  return choice;
}

std::vector<Problem> problems(const ServingSpace& space) {
  std::vector<Problem> found;
  if (space.base.workload.task != Task::generate)
    found.push_back({"workload.task", "must be generate: serving is searched"});
  if (!space.base.implementation.serving)
    found.push_back({"implementation", "must be an inference engine: \"" + space.base.implementation.name +
                                           "\" has no serving profile"});
  for_each_serving_field(space, [&](auto field, const auto& values) {
    if (values.empty())
      found.push_back(
          {"search." + std::string(name_of_searched(field)), "must have a value to try at least"});
  });
  return found;
}

std::vector<Problem> problems(const ServingConstraints& c) {
  std::vector<Problem> found = problems_of_limits(c);
  require_positive("most_ttft", !c.most_ttft || c.most_ttft->value > 0, found);
  require_positive("most_tpot", !c.most_tpot || c.most_tpot->value > 0, found);
  return found;
}

ServingResult search(const ServingSpace& space, const std::optional<ServingTraffic>& traffic,
                     const ServingConstraints& constraints, const Tariff& tariff,
                     const Calibration* calibration, const ServingOptions& options) {
  throw_first(problems(space));
  throw_first(problems(constraints));
  if (traffic && !(traffic->requests_per_second > 0 && traffic->duration.value > 0))
    throw std::invalid_argument("requests_per_second: rate and duration of traffic must be above 0");
  return ServingSearch(space, traffic, constraints, tariff, calibration, options).run();
}

void merge(ServingResult& into, const ServingResult& other, std::size_t most_kept) {
  add_found(into, other);
  for (const ServingObjective o : kAll<ServingObjective>) cut_to(into.best[o], most_kept, order_by(o));
  cut_front(into.front);
  if (other.smallest && (!into.smallest || smaller(*other.smallest, *into.smallest)))
    into.smallest = other.smallest;
}

ServingSpending spending(const ServingSpace& space, const std::optional<ServingTraffic>& traffic,
                         const ServingConstraints& constraints, std::int64_t index,
                         const Calibration* calibration) {
  ServingChoice choice = candidate(space, index);
  choice.scenario = with_memory(std::move(choice.scenario), constraints);
  Scenario s = choice.scenario;
  const IterationCost cost(s, calibration);
  if (traffic) {
    const Simulation run = simulated(choice, *traffic, limits_of(choice), cost);
    s.workload.batch_size = std::max<std::int64_t>(1, std::llround(run.mean_in_system));
  }
  const StaticBatchTimes times = static_batch_times(cost, s);
  return {s.workload.batch_size, times.first_token, times.later_token};
}

}  // namespace sim
