#include "sim/report/events.h"

#include <random>
#include <string>

#include "sim/scenario/preset.h"
#include "tests/sim/random_report.h"
#include "tests/support/catch.h"

using sim::Event;
using sim::Report;

namespace {

Report fold(const std::vector<Event>& events) {
  Report report;
  for (const Event& event : events) sim::apply(report, event);
  return report;
}

}  // namespace

TEST_CASE("folding a report's events gives the report") {
  std::mt19937_64 random(6);
  for (int i = 0; i < 200; ++i) {
    const Report report = random_report(random);
    REQUIRE(sim::to_json(fold(sim::events_of(report))) == sim::to_json(report));
  }
}

TEST_CASE("an event is one line and reads back as the same line") {
  std::mt19937_64 random(7);
  for (int i = 0; i < 50; ++i) {
    std::vector<Event> events = sim::events_of(random_report(random));
    events.push_back(sim::ProgressEvent{"calibrating", 3, 12, {4.1}});
    events.push_back(sim::CheckpointEvent{50, "run/checkpoint"});
    const sim::TimelineSlot slot{.stage = 1,
                                 .phase = sim::Phase::backward,
                                 .weights = true,
                                 .micro_batch = 3,
                                 .chunk = 1,
                                 .start = {0.25},
                                 .end = {0.5},
                                 .recompute = {0.125}};
    events.push_back(sim::RankTimelineEvent{7, 3, 8, {slot, {}}});
    std::get<sim::EndEvent>(events.emplace_back(sim::EndEvent{})).slowdown = {1.25, 0.75, 0.0625};
    events.push_back(sim::ErrorEvent{"disk full", 6});
    for (const Event& event : events) {
      const std::string line = sim::to_ndjson(event);
      REQUIRE(line.find('\n') == std::string::npos);
      const Event again = sim::event_from_ndjson(line);
      REQUIRE(again.index() == event.index());
      REQUIRE(sim::to_ndjson(again) == line);
    }
  }
}

TEST_CASE("a step's line has the fields that a training log is read for") {
  const std::string line = sim::to_ndjson(sim::StepResult{1, 4.25, 1.5, {0.5}, 1024});
  CHECK(
      line ==
      R"({"event":"step","step":1,"loss":4.25,"grad_norm":1.5,"seconds":0.5,"tokens":1024,"tokens_per_s":2048.0})");
}

TEST_CASE("a row that is sent again replaces itself and no other") {
  sim::Row row;
  row.id = "layer.attention.qkv.forward";
  row.phase = sim::Phase::forward;
  sim::Row of_other_rank = row, of_other_phase = row, refined = row;
  of_other_rank.rank = 1;
  of_other_phase.phase = sim::Phase::recompute;
  refined.duration = {2};
  const Report report = fold({row, of_other_rank, of_other_phase, refined});
  REQUIRE(report.rows.size() == 3);
  CHECK(report.rows[0].duration.value == 2);
  CHECK(report.rows[1].duration.value == 0);
  CHECK(report.rows[2].duration.value == 0);
}

TEST_CASE("an end that says how fast the machine was while it ran takes the place of what was found before") {
  std::mt19937_64 random(9);
  Report report = random_report(random);
  const sim::Slowdown before{2, 2, 0.1}, meanwhile{1.25, 0.75, 0.0625};
  report.source.slowdown = before;
  sim::EndEvent end;
  sim::apply(report, end);
  CHECK(report.source.slowdown == before);
  end.slowdown = meanwhile;
  sim::apply(report, end);
  CHECK(report.source.slowdown == meanwhile);
}

TEST_CASE("a stream begins anew with begin and bears how it ended") {
  std::mt19937_64 random(8);
  Report report = random_report(random);
  sim::apply(report, sim::BeginEvent{});
  CHECK(report.rows.empty());
  CHECK(report.steps.empty());
  sim::apply(report, sim::ErrorEvent{"out of memory", 6});
  CHECK(report.message == "out of memory");
}

TEST_CASE("a line that is no event is refused") {
  CHECK_THROWS_WITH(sim::event_from_ndjson(R"({"event":"dance"})"), contains("dance") && contains("begin"));
  CHECK_THROWS_WITH(sim::event_from_ndjson(R"({"event":"error","message":"","exit_code":1,"extra":0})"),
                    contains("extra"));
  CHECK_THROWS_WITH(sim::event_from_ndjson(R"({"event":"step","step":1})"), contains("loss"));
  CHECK_THROWS_AS(sim::event_from_ndjson("loss 4.1"), sim::PresetError);
  CHECK_THROWS_AS(sim::event_from_ndjson(""), sim::PresetError);
}
