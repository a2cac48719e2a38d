#include "sim/plan/schedule.h"

#include <algorithm>
#include <random>
#include <string>
#include <tuple>

#include "tests/sim/check_schedule.h"
#include "tests/sim/in_flight.h"
#include "tests/sim/schedule_run.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

struct Case {
  std::string name;
  std::int32_t stages, chunks, micro_batches;
};

Case random_case(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const auto& names = kScheduleNames;
  Case c{std::string(names[seed % names.size()]), pick(2, 9), 1, pick(1, 40)};
  if (traits_of_schedule(c.name).chunks == Chunks::several) {
    c.chunks = pick(2, 4);
    if (traits_of_schedule(c.name).in_groups) c.micro_batches = c.stages * pick(1, 6);
  }
  if (placement_of(c.name) == Placement::v) c.chunks = 2;
  if (c.name == "dualpipe") c.stages += c.stages % 2;
  if (c.name.starts_with("dualpipe")) c.micro_batches = 2 * (c.stages + pick(0, 12));
  return c;
}

Schedule make(const Case& c) {
  return make_schedule(c.name, c.stages, c.chunks, c.micro_batches);
}

std::vector<PassTimes> equal_stages(std::int32_t stages, double forward, double input, double weight) {
  return std::vector<PassTimes>(static_cast<std::size_t>(stages), {{forward}, {input}, {weight}});
}

TEST_CASE("every schedule runs every pass once and deadlocks nowhere") {
  const unsigned seed = GENERATE(range(0u, 200u));
  const Case c = random_case(seed);
  CAPTURE(c.name, c.stages, c.chunks, c.micro_batches);
  CHECK(check(make(c)) == std::vector<std::string>{});
}

TEST_CASE("the checker finds a pass that is missing, one too many, and one that waits for ever") {
  Schedule s = make_schedule("1f1b", 3, 1, 5);
  REQUIRE(check(s).empty());
  SECTION("missing") {
    s.slots[1].pop_back();
    CHECK(check(s).front().find("0 backward of inputs") != std::string::npos);
  }
  SECTION("one too many") {
    s.slots[1].push_back(s.slots[1].back());
    CHECK(check(s).front().find("2 backward of inputs") != std::string::npos);
  }
  SECTION("backward before forward") {
    std::swap(s.slots[2].front(), s.slots[2][1]);
    CHECK(check(s).front().find("waits for what cannot come before it") != std::string::npos);
  }
  SECTION("a chunk that does not exist") {
    s.slots[0][0].chunk = 1;
    CHECK(check(s).front().find("does not exist") != std::string::npos);
  }
}

Seconds longest_bubble(const ScheduleTimes& t) {
  return *std::max_element(t.bubble.begin(), t.bubble.end());
}

TEST_CASE("bubbles of equal stages are the closed forms of the papers") {
  const auto [stages, micro_batches] = GENERATE(std::pair{4, 8}, std::pair{8, 32}, std::pair{6, 12});
  const auto [forward, input, weight] =
      GENERATE(std::tuple{1.0, 1.0, 1.0}, std::tuple{1.0, 1.25, 0.75}, std::tuple{2.0, 3.0, 2.0});
  int compared = 0;
  for (const std::string_view name : kScheduleNames)
    for (const std::int32_t chunks : {1, 2, 4}) {
      if (!schedule_problems(name, stages, chunks, micro_batches).empty()) continue;
      const PassTimes whole{{forward}, {input}, {weight}};
      const auto expected = closed_form_bubble(name, stages, chunks, micro_batches, whole);
      if (!expected) continue;
      ++compared;
      const double c = chunks;
      const ScheduleTimes t = run(make_schedule(name, stages, chunks, micro_batches),
                                  equal_stages(stages, forward / c, input / c, weight / c), {});
      CAPTURE(name, stages, chunks, micro_batches, forward, input, weight);
      CHECK(longest_bubble(t).value == Approx(expected->value).margin(1e-9));
    }
  CHECK(compared >= 7);
}

TEST_CASE("what DualPipe's table says is never exceeded where the parts take unequally long") {
  for (const auto& [p, m] : {std::pair{4, 8}, std::pair{8, 20}})
    for (const auto& [f, b, w] : {std::tuple{1.0, 1.25, 0.75}, std::tuple{2.0, 3.0, 2.0}}) {
      const ScheduleTimes t = run(make_schedule("dualpipe", p, 1, m), equal_stages(p, f, b, w), {});
      CHECK(longest_bubble(t).value <= (p / 2 - 1) * (f + 2 * b - w) + 1e-9);
    }
}

TEST_CASE("stages hold as many micro-batches as the papers say") {
  for (const auto& [p, m] : {std::pair{4, 8}, std::pair{8, 32}, std::pair{8, 4}})
    for (std::int32_t s = 0; s < p; ++s) {
      CHECK(tests::most_in_flight(make_schedule("gpipe", p, 1, m), s) == m);
      CHECK(tests::most_in_flight(make_schedule("1f1b", p, 1, m), s) == std::min(m, p - s));
      CHECK(tests::most_in_flight(make_schedule("zb-h1", p, 1, m), s) <= std::min(m, p));
    }
  int compared = 0;
  for (const std::string_view name : kScheduleNames)
    for (const auto& [p, v, m] : {std::tuple{4, 1, 8}, std::tuple{8, 1, 32}, std::tuple{8, 2, 16},
                                  std::tuple{8, 4, 32}, std::tuple{4, 2, 12}, std::tuple{8, 1, 4}}) {
      if (!schedule_problems(name, p, v, m).empty()) continue;
      const auto expected = tests::closed_form_in_flight(name, p, v, m);
      if (!expected) continue;
      ++compared;
      const Schedule schedule = make_schedule(name, p, v, m);
      std::int64_t most = 0;
      for (std::int32_t s = 0; s < p; ++s) most = std::max(most, tests::most_in_flight(schedule, s));
      CAPTURE(name, p, v, m);
      CHECK(most == *expected);
    }
  CHECK(compared >= 20);
}

TEST_CASE("a piece lies where a schedule says, on the way there and back") {
  for (const std::string_view name : kScheduleNames) {
    const std::int32_t p = 6,
                       v = traits_of_schedule(name).chunks >= Chunks::several && name != kPlainSchedule ? 2
                                                                                                        : 1,
                       m = 12;
    const Schedule s = make_schedule(name, p, v, m);
    std::vector<int> held(static_cast<std::size_t>(s.pieces()));
    for (std::int32_t stage = 0; stage < p; ++stage)
      for (std::int32_t chunk = 0; chunk < s.chunks; ++chunk) {
        const std::int32_t piece = s.piece(stage, chunk);
        ++held.at(static_cast<std::size_t>(piece));
        CHECK(s.place_of(piece, chunk).stage == stage);
        CHECK(s.place_of(piece, chunk).chunk == chunk);
      }
    CHECK(held == std::vector<int>(held.size(), name == "dualpipe" ? 2 : 1));
  }
}

TEST_CASE(
    "in plain 1f1b a transfer is paid by every micro-batch: F + B + 2c(p-1)/p each in the steady state") {
  const std::int32_t p = 8;
  const auto duration = [&](std::int32_t m) {
    return run(make_schedule("1f1b", p, 1, m), equal_stages(p, 1, 1, 1), {0.1}).duration.value;
  };
  CHECK((duration(2048) - duration(1024)) / 1024 == Approx(3 + 2 * 0.1 * (p - 1) / p));
}

TEST_CASE("with one slow stage that stage is never idle in between, and the others wait for it") {
  std::vector<PassTimes> times = equal_stages(4, 1, 1, 1);
  times[2] = {{2}, {2}, {2}};
  const std::int32_t m = 16;
  const ScheduleTimes t = run(make_schedule("1f1b", 4, 1, m), times, {});
  CHECK(t.duration.value >= 6 * m);
  CHECK(t.idle[2].value == Approx(t.duration.value - 6 * m));
  CHECK(t.idle[2] < t.idle[1]);
  for (const Seconds idle : t.idle) CHECK(idle.value >= 0);
}

TEST_CASE("slots begin after what they need, and a stage does one thing at a time") {
  const unsigned seed = GENERATE(range(0u, 40u));
  const Case c = random_case(seed);
  const Schedule s = make(c);
  std::mt19937 random(seed + 1000);
  std::uniform_real_distribution<double> any(0.1, 2);
  std::vector<PassTimes> times;
  for (std::int32_t i = 0; i < c.stages; ++i) times.push_back({{any(random)}, {any(random)}, {any(random)}});
  const ScheduleTimes t = run(s, times, {0.05});
  for (std::int32_t stage = 0; stage < c.stages; ++stage) {
    const auto row = static_cast<std::size_t>(stage);
    for (std::size_t i = 1; i < s.slots[row].size(); ++i) CHECK(t.start[row][i - 1] < t.start[row][i]);
    CHECK(t.bubble[row] >= Seconds{-1e-12});
    CHECK(t.bubble[row] <= t.idle[row]);
  }
  if (c.name == "dualpipe") return;
  // The first forward pass crosses all stages before the last stage can begin it.
  double crossing = 0;
  for (std::int32_t i = 0; i + 1 < c.stages; ++i)
    crossing += times[static_cast<std::size_t>(i)].forward.value + 0.05;
  CHECK(t.start.back().front().value >= Approx(crossing));
}

TEST_CASE("layers are divided evenly, and the remainder goes to the middle") {
  std::int32_t next = 0;
  for (std::int32_t piece = 0; piece < 16; ++piece) {  // Llama 3.1 405B
    const LayerRange r = layers_of(piece, 16, 126);
    CHECK(r.first == next);
    CHECK(r.last - r.first == (piece == 0 || piece == 15 ? 7 : 8));
    next = r.last;
  }
  CHECK(next == 126);
}

TEST_CASE("a schedule that cannot be is refused with the field") {
  const auto field = [](const char* name, int stages, int chunks, int micro_batches) {
    const auto problems = schedule_problems(name, stages, chunks, micro_batches);
    return problems.empty() ? std::string() : problems.front().field;
  };
  CHECK(field("1f1b", 4, 1, 7).empty());
  CHECK(field("1f1b", 4, 2, 8).empty());
  CHECK(field("waltz", 4, 1, 8) == "schedule");
  CHECK(field("gpipe", 1, 1, 8) == "schedule");
  CHECK(field("interleaved", 4, 1, 8) == "schedule");
  CHECK(field("interleaved", 4, 2, 7) == "virtual_pipeline");
  CHECK(field("gpipe", 4, 2, 8) == "virtual_pipeline");
  CHECK(field("zb-v", 4, 2, 3).empty());
  CHECK(field("zb-v", 4, 1, 8) == "virtual_pipeline");
  CHECK(field("zb-h2", 4, 2, 8) == "virtual_pipeline");
  CHECK(field("dualpipe", 4, 1, 8).empty());
  CHECK(field("dualpipe", 3, 1, 8) == "schedule");   // no middle
  CHECK(field("dualpipe", 4, 1, 9) == "schedule");   // no half
  CHECK(field("dualpipev", 4, 2, 7) == "schedule");  // too few
  CHECK_THROWS_AS(make_schedule("waltz", 4, 1, 8), std::invalid_argument);
}

}  // namespace
