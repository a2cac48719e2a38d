// Laws of continuous batching: nobody is lost, nobody starves, memory is not used twice.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "sim/serving/scheduler.h"
#include "tests/sim/random_scenario.h"
#include "tests/support/catch.h"

using sim::Batching;
using sim::BlockPool;
using sim::RequestIndex;
using sim::Scheduler;
using sim::SchedulerLimits;
using sim::ServedRequest;

namespace {

SchedulerLimits random_limits(std::mt19937_64& random) {
  SchedulerLimits limits;
  limits.batching = draw(random, 0, 1) ? Batching::mixed : Batching::prefill_first;
  limits.chunks_prompts = draw(random, 0, 1);
  limits.reserves_output = draw(random, 0, 1);
  limits.max_sequences = draw(random, 1, 12);
  limits.max_tokens = draw(random, 60, 200);
  limits.block_tokens = draw(random, 1, 9);
  limits.blocks = 120 / limits.block_tokens + draw(random, 1, 40);
  return limits;
}

ServedRequest random_request(std::mt19937_64& random) {
  return {.prompt = draw(random, 1, 60), .output = draw(random, 1, 50)};
}

// Every block in use is one sequence's.
void require_blocks_counted(const Scheduler& scheduler, RequestIndex requests) {
  std::set<sim::BlockIndex> used;
  for (RequestIndex r = 0; r < requests; ++r)
    for (const sim::BlockIndex block : scheduler.blocks_of(r)) REQUIRE(used.insert(block).second);
  REQUIRE(scheduler.used_blocks() == std::ssize(used));
}

}  // namespace

TEST_CASE("every request gets all its tokens, whatever the limits, and no step passes them") {
  std::mt19937_64 random(GENERATE(range(0, 60)));
  const SchedulerLimits limits = random_limits(random);
  Scheduler scheduler(limits);
  std::map<RequestIndex, std::int64_t> tokens;
  std::vector<ServedRequest> requests;
  std::size_t ended = 0;
  for (int step_number = 0; step_number < 20'000; ++step_number) {
    if (requests.size() < 40 && draw(random, 0, 2) == 0) {
      requests.push_back(random_request(random));
      scheduler.submit(requests.back());
    }
    const Scheduler::Step& step = scheduler.next();
    if (step.empty()) {
      if (requests.size() == 40) break;
      continue;
    }
    std::int64_t in_step = static_cast<std::int64_t>(step.decodes.size());
    for (const RequestIndex r : step.decodes) ++tokens[r];
    for (const auto& part : step.prompts) {
      in_step += part.tokens;
      REQUIRE(part.tokens > 0);
      if (part.ends) ++tokens[part.request];
    }
    REQUIRE(in_step <= std::max(limits.max_tokens, std::int64_t{110}));
    REQUIRE(scheduler.running() <= limits.max_sequences);
    require_blocks_counted(scheduler, static_cast<RequestIndex>(requests.size()));
    for (const RequestIndex r : scheduler.complete()) {
      ++ended;
      REQUIRE(tokens[r] == requests[static_cast<std::size_t>(r)].output);
    }
  }
  REQUIRE(requests.size() == 40);
  CHECK(ended == requests.size());
  CHECK(scheduler.idle());
  CHECK(scheduler.used_blocks() == 0);
}

TEST_CASE("requests begin in the order in which they came: none starves") {
  std::mt19937_64 random(3);
  Scheduler scheduler({.max_sequences = 4, .max_tokens = 64, .block_tokens = 4, .blocks = 60});
  for (int i = 0; i < 100; ++i)
    scheduler.submit({.prompt = draw(random, 1, 60), .output = draw(random, 1, 40)});
  RequestIndex latest = -1;
  std::set<RequestIndex> begun;
  while (!scheduler.idle()) {
    for (const auto& part : scheduler.next().prompts)
      if (begun.insert(part.request).second) {
        CHECK(part.request == latest + 1);
        latest = part.request;
      }
    scheduler.complete();
  }
  CHECK(begun.size() == 100);
}

TEST_CASE("steps taken at once are the steps taken one by one") {
  std::mt19937_64 random(GENERATE(range(0, 20)));
  const SchedulerLimits limits = random_limits(random);
  Scheduler one_by_one(limits), at_once(limits);
  for (int i = 0; i < 30; ++i) {
    const ServedRequest request = random_request(random);
    one_by_one.submit(request);
    at_once.submit(request);
  }
  std::vector<RequestIndex> order_one, order_once;
  std::int64_t steps_one = 0, steps_once = 0;
  while (!one_by_one.next().empty()) {
    for (const RequestIndex r : one_by_one.complete()) order_one.push_back(r);
    ++steps_one;
  }
  while (!at_once.next().empty()) {
    const std::int64_t times = at_once.steps_alike();
    for (const RequestIndex r : at_once.complete(times)) order_once.push_back(r);
    steps_once += times;
  }
  CHECK(order_one == order_once);
  CHECK(steps_one == steps_once);
}

TEST_CASE("no more blocks are given out than there are, and none is taken back that nobody uses") {
  BlockPool pool(2);
  const auto a = *pool.allocate(), b = *pool.allocate();
  CHECK(a != b);
  CHECK_FALSE(pool.allocate());
  pool.release(b);
  CHECK(pool.free_blocks() == 1);
  CHECK_THROWS_WITH(pool.release(b), "a block of the KV cache is released that nobody uses");
}

TEST_CASE("blocks that nobody has used yet take no memory of the simulation's own, however many there are") {
  constexpr std::int64_t kBlocks = std::int64_t{1} << 40;  // a byte for each would be a tebibyte
  BlockPool pool(kBlocks);
  CHECK(pool.allocate() == 0);
  CHECK(pool.allocate() == 1);
  CHECK(pool.free_blocks() == kBlocks - 2);
  pool.release(0);
  CHECK(pool.allocate() == 0);  // what was used before goes first
  CHECK(pool.allocate() == 2);
}

TEST_CASE("a request that can never run is refused when it comes") {
  Scheduler scheduler({.max_sequences = 2, .max_tokens = 32, .block_tokens = 16, .blocks = 4});
  CHECK_THROWS_WITH(scheduler.submit({.prompt = 60, .output = 10}),
                    "a request of 70 tokens is larger than the KV cache, 64 tokens");
  CHECK_THROWS_WITH(scheduler.submit({.prompt = 40, .output = 10}),
                    "a prompt of 40 tokens is longer than a step, 32");
  CHECK_THROWS_WITH(scheduler.submit({.prompt = 0, .output = 10}), "prompt must be above 0");
}

TEST_CASE("blocks as long as a sequence are a contiguous cache") {
  // Each sequence has one block of its whole length, so as many run as there are blocks, and no block is
  // shared or left over.
  Scheduler scheduler(
      {.reserves_output = false, .max_sequences = 64, .max_tokens = 4096, .block_tokens = 96, .blocks = 5});
  for (int i = 0; i < 12; ++i) scheduler.submit({.prompt = 64, .output = 32});
  std::int64_t most = 0;
  while (!scheduler.next().empty()) {
    most = std::max(most, scheduler.running());
    CHECK(scheduler.used_blocks() == scheduler.running());
    scheduler.complete();
  }
  CHECK(most == 5);
  CHECK(scheduler.preemptions() == 0);
}
