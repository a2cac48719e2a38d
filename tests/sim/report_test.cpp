#include "sim/report/report.h"

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "sim/plan/legality.h"
#include "sim/scenario/preset.h"
#include "tests/sim/random_report.h"
#include "tests/support/catch.h"

using sim::Report;

TEST_CASE("a report's JSON reads back as the same JSON, bit for bit") {
  std::mt19937_64 random(2);
  for (int i = 0; i < 200; ++i) {
    const Report report = random_report(random);
    const std::string json = sim::to_json(report);
    const Report again = sim::report_from_json(json, "report.json");
    REQUIRE(sim::to_json(again) == json);
    REQUIRE(again.source.scenario == report.source.scenario);
    REQUIRE(again.step_time == report.step_time);
    REQUIRE(again.rows.size() == report.rows.size());
    for (std::size_t r = 0; r < report.rows.size(); ++r) {
      CHECK(again.rows[r].duration == report.rows[r].duration);
      CHECK(again.rows[r].kind == report.rows[r].kind);
      CHECK(again.rows[r].memory == report.rows[r].memory);
    }
  }
}

TEST_CASE("a loss that is no number survives a report") {
  std::mt19937_64 random(3);
  Report report = random_report(random);
  report.steps = {
      {1, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), {0.1}, 64}};
  const std::string json = sim::to_json(report, -1);
  const Report again = sim::report_from_json(json, "report.json");
  CHECK(std::isnan(again.steps.at(0).loss));
  CHECK_FALSE(std::isfinite(again.steps.at(0).grad_norm));
  CHECK(sim::to_json(again, -1) == json);
}

TEST_CASE("half a character in a token's text does not spoil the report") {
  std::mt19937_64 random(4);
  Report report = random_report(random);
  report.tokens = {{0, 5, "\xE2\x82", {0.1}}};
  CHECK(sim::report_from_json(sim::to_json(report), "report.json").tokens.at(0).text == "\xEF\xBF\xBD");
}

TEST_CASE("a report that is not one is refused by file and field") {
  std::mt19937_64 random(5);
  Report report = random_report(random);
  report.rows.resize(1);
  const std::string json = sim::to_json(report, -1);
  const auto with = [&json](const std::string& from, const std::string& to) {
    std::string changed = json;
    const std::size_t at = changed.find(from);
    REQUIRE(at != std::string::npos);
    return changed.replace(at, from.size(), to);
  };
  const auto read = [](const std::string& text) { return sim::report_from_json(text, "out/report.json"); };
  CHECK_THROWS_WITH(read(with("\"schema_version\":1", "\"schema_version\":7")),
                    contains("out/report.json") && contains("schema_version"));
  CHECK_THROWS_WITH(read(with("\"step_seconds\"", "\"step\"")),
                    contains("step_seconds") && contains("missing"));
  CHECK_THROWS_WITH(read(with("\"rows\":[{\"id\"", "\"rows\":[{\"name\"")), contains("rows[0].id"));
  CHECK_THROWS_WITH(read(with("\"rows\":[{", "\"rows\":[{\"joules\":1,")), contains("rows[0].joules"));
  CHECK_THROWS_WITH(read(json.substr(0, json.size() / 2)), contains("not valid JSON"));
  CHECK_THROWS_AS(read(""), sim::PresetError);
  CHECK_THROWS_AS(read("[]"), sim::PresetError);
}

TEST_CASE("a report of sizes that no run has is refused by its field, so that its metrics can be computed") {
  sim::Scenario sound = sim::load_scenario_preset("train-llama-3.1-8b-h100");
  REQUIRE(sim::problems_of_numbers(sound).empty());
  struct Case {
    std::string field;
    std::function<void(sim::Scenario&)> make;
  };
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const Case& c :
       {Case{"model.attention_chunk_size", [](sim::Scenario& s) { s.model.attention_chunk_size = kMost; }},
        {"model.hidden_size", [](sim::Scenario& s) { s.model.hidden_size = kMost; }},
        {"model.num_hidden_layers", [](sim::Scenario& s) { s.model.num_hidden_layers = kMost; }},
        {"model.n_groups", [](sim::Scenario& s) { s.model.state_space.n_groups = kMost; }},
        {"model.v_head_dim", [](sim::Scenario& s) { s.model.latent.v_head_dim = kMost; }},
        {"model.hidden_size",
         [](sim::Scenario& s) {
           s.model.hidden_size = s.model.intermediate_size = sim::kLargestWidth;
           s.model.num_hidden_layers = sim::kMostLayers;
         }},
        {"workload.seq_len", [](sim::Scenario& s) { s.workload.seq_len = kMost; }},
        {"strategy.tensor_parallel", [](sim::Scenario& s) { s.strategy.tensor_parallel = -1; }},
        {"strategy.data_parallel", [](sim::Scenario& s) {
           s.strategy.data_parallel = s.strategy.tensor_parallel = s.strategy.pipeline_parallel = 1 << 21;
         }}}) {
    Report report;
    report.source.scenario = sound;
    c.make(report.source.scenario);
    CAPTURE(c.field);
    CHECK_THROWS_WITH(sim::report_from_json(sim::to_json(report), "out/report.json"),
                      contains("out/report.json: field \"source.scenario." + c.field + "\" "));
  }
  // A run that no plan would be made for today has numbers all the same.
  Report report;
  report.source.scenario = sound;
  report.source.scenario.workload.global_batch_size = 7;
  report.source.scenario.workload.micro_batch_size = 2;
  REQUIRE_FALSE(sim::validate(report.source.scenario).empty());
  CHECK_NOTHROW(sim::report_from_json(sim::to_json(report), "out/report.json"));
}

TEST_CASE("every enumerator's name reads back, and no two are the same word") {
  const auto check = [](auto last) {
    for (int i = 0; i <= static_cast<int>(last); ++i) {
      const auto value = static_cast<decltype(last)>(i);
      CAPTURE(name(value));
      CHECK(sim::from_name<decltype(last)>(name(value)) == value);
    }
    CHECK_FALSE(sim::from_name<decltype(last)>("unknown").has_value());
    CHECK_FALSE(sim::from_name<decltype(last)>("").has_value());
  };
  check(sim::OpKind::receive);
  check(sim::BufferClass::input);
  check(sim::Phase::decode);
  check(sim::DType::fp64);
  check(sim::ReportKind::recorded);
  check(sim::Provenance::datasheet);
  check(sim::Bound::network);
  check(sim::Task::generate);
  check(sim::Recompute::full);
  check(sim::AttentionKind::standard);
  check(sim::Norm::rmsnorm);
  check(sim::Activation::swiglu);
  check(sim::Position::rope);
  check(sim::RopeScaling::Kind::llama3);
}

TEST_CASE("a report with any byte changed or cut off reads or is refused, and nothing else happens") {
  std::mt19937_64 random(19);
  Report report = random_report(random);
  report.rows.resize(2);
  const std::string json = sim::to_json(report, -1);
  for (int i = 0; i < 3000; ++i) {
    std::string changed = json;
    for (std::int64_t n = draw(random, 1, 3); n > 0; --n)
      changed[static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(json.size()) - 1))] =
          static_cast<char>(draw(random, 1, 255));
    if (draw(random, 0, 3) == 0)
      changed.resize(static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(json.size()))));
    try {
      sim::to_json(sim::report_from_json(changed, "report.json"));
    } catch (const sim::PresetError& error) {
      REQUIRE(std::string(error.what()).find("report.json") == 0);
    }
  }
  CHECK_THROWS_AS(sim::report_from_json(std::string(200'000, '['), "report.json"), sim::PresetError);
  CHECK_THROWS_AS(sim::report_from_json("{\"schema_version\": 1e999}", "report.json"), sim::PresetError);
  CHECK_THROWS_AS(sim::report_from_json(
                      "{\"schema_version\": " + std::string(200'000, '[') + std::string(200'000, ']') + "}",
                      "report.json"),
                  sim::PresetError);
}
