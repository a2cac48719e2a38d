// Traffic through the scheduler, against queueing theory and against its own laws.
#include <cmath>
#include <numeric>

#include "sim/serving/simulation.h"
#include "tests/support/catch.h"

using sim::CostBreakdown;
using sim::CostKind;
using sim::Iteration;
using sim::Seconds;
using sim::ServedRequest;
using sim::Simulation;

namespace {

// A step takes a base, and a time for each token that it reads or decodes.
CostBreakdown simple_price(const Iteration& iteration) {
  double tokens = iteration.decode_sequences;
  for (const auto& prompt : iteration.prompts) tokens += prompt.sequences * prompt.tokens;
  CostBreakdown cost;
  cost.add(CostKind::products, Seconds{5e-3 + 20e-6 * tokens}, 0.1);
  return cost;
}

double mean(const Simulation& run, Seconds (sim::RequestTimes::*time)() const) {
  double sum = 0;
  for (const auto& request : run.requests) sum += (request.*time)().value;
  return sum / static_cast<double>(run.requests.size());
}

constexpr sim::SchedulerLimits kLimits{
    .chunks_prompts = true, .max_sequences = 64, .max_tokens = 512, .block_tokens = 16, .blocks = 2000};

}  // namespace

TEST_CASE("Little's law: requests in the system are their rate times their mean latency, within 1 %") {
  const double rate = GENERATE(2.0, 8.0, 16.0);
  const ServedRequest request{.prompt = 200, .output = 60};
  const sim::Traffic traffic{.arrivals = sim::poisson_arrivals(rate, Seconds{1500}, request, 1)};
  const Simulation run = simulate(traffic, kLimits, simple_price);
  const double arrivals_per_second = static_cast<double>(run.requests.size()) / run.duration.value;
  CHECK(run.mean_in_system ==
        Approx(arrivals_per_second * mean(run, &sim::RequestTimes::latency)).epsilon(0.01));
  // Counted apart: what was seen running and waiting, over the steps.
  CHECK(run.output_tokens == static_cast<std::int64_t>(run.requests.size()) * request.output);
}

TEST_CASE("one request at a time of a fixed length is the queue M/D/1") {
  // Pollaczek and Khinchine: the mean wait is u S / (2 (1 - u)) at utilization u and service time S.
  const double utilization = GENERATE(0.3, 0.6, 0.8);
  sim::SchedulerLimits limits = kLimits;
  limits.max_sequences = 1;
  const Seconds service{0.05};
  const auto price = [&](const Iteration&) {
    CostBreakdown cost;
    cost.add(CostKind::products, service, 0);
    return cost;
  };
  const sim::Traffic traffic{.arrivals = sim::poisson_arrivals(utilization / service.value, Seconds{20'000},
                                                               {.prompt = 64, .output = 1}, 5)};
  const Simulation run = simulate(traffic, limits, price);
  const double wait = mean(run, &sim::RequestTimes::latency) - service.value;
  // The wait's standard deviation is near its mean and it is correlated over 1 / (1 - u)^2 requests: with
  // more than 1e5 of them, 5 % is above three standard errors.
  CHECK(wait == Approx(utilization * service.value / (2 * (1 - utilization))).epsilon(0.05));
}

TEST_CASE("clients that wait for their answers are never more in the system than there are clients") {
  sim::Traffic traffic{.arrivals = {}, .most_at_a_time = 7};
  traffic.arrivals.assign(200, {{}, {.prompt = 90, .output = 30}});
  const Simulation run = simulate(traffic, kLimits, simple_price);
  CHECK(run.mean_in_system <= 7);
  for (const auto& point : run.occupancy) CHECK(point.running + point.waiting <= 7);
  for (const auto& request : run.requests) {
    CHECK(request.first_token > request.arrived);
    CHECK(request.finished > request.first_token);
  }
}

TEST_CASE("more traffic never makes the first token come sooner, nor goodput more than what arrives") {
  double before = 0;
  for (const double rate : {1.0, 4.0, 10.0, 20.0}) {
    const sim::Traffic traffic{
        .arrivals = sim::poisson_arrivals(rate, Seconds{600}, {.prompt = 300, .output = 100}, 9)};
    const Simulation run = simulate(traffic, kLimits, simple_price);
    const double ttft = mean(run, &sim::RequestTimes::ttft);
    CHECK(ttft >= before);
    before = ttft;
    CHECK(goodput(run, Seconds{1}, Seconds{0.05}) <=
          static_cast<double>(run.requests.size()) / run.duration.value);
  }
}

TEST_CASE("a cache that is too small makes room by preemption, and all requests still end") {
  sim::SchedulerLimits limits = kLimits;
  limits.blocks = 60;
  sim::Traffic traffic{.arrivals = {}, .most_at_a_time = 0};
  traffic.arrivals.assign(50, {{}, {.prompt = 100, .output = 200}});
  const Simulation small = simulate(traffic, limits, simple_price);
  CHECK(small.preemptions > 0);
  CHECK(small.output_tokens == 50 * 200);
  const Simulation large = simulate(traffic, kLimits, simple_price);
  CHECK(large.preemptions == 0);
  CHECK(small.duration > large.duration);
}

TEST_CASE("a static batch begins and ends together") {
  sim::SchedulerLimits limits = kLimits;
  limits.batching = sim::Batching::static_batch;
  limits.max_sequences = 8;
  sim::Traffic traffic;
  for (int i = 0; i < 24; ++i) traffic.arrivals.push_back({{}, {.prompt = 50, .output = 10 + i % 8}});
  const Simulation run = simulate(traffic, limits, simple_price);
  for (std::size_t i = 0; i + 8 < 24; ++i)
    CHECK(run.requests[i].finished <= run.requests[i / 8 * 8 + 8].first_token);
}
