// Series of scenarios: presets/series, and what a file of them may say.
#include "sim/scenario/scenario_series.h"

#include <cmath>

#include "sim/cost/predict.h"
#include "sim/plan/legality.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"
#include "tests/support/catch.h"

namespace {

std::string one_series(const std::string& fields) {
  return R"({"title": "t", "source": "s", "series": [{"name": "n", "scenario": "train-llama-3.1-8b-h100")" +
         fields + "}]}";
}

std::string message_of(const std::string& json) {
  try {
    sim::series_from_json(json, "a.json");
  } catch (const sim::PresetError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a series has every combination of what it varies, the last field fastest") {
  const sim::SeriesSet set = sim::series_from_json(one_series(R"(, "set": {"workload.seq_len": 256},
        "vary": {"model.num_hidden_layers": [2, 4], "workload.micro_batch_size, workload.global_batch_size": [1, 8, 16]})"),
                                                   "a.json");
  const sim::ScenarioSeries& series = set.series.front();
  REQUIRE(series.points.size() == 6);
  CHECK(series.points[1].at == "2, 8");
  CHECK(series.points[3].at == "4, 1");
  CHECK_FALSE(series.of_numbers);  // two fields have no growth with one
  for (const sim::SeriesPoint& point : series.points) {
    CHECK(point.scenario.workload.seq_len == 256);
    CHECK(point.scenario.workload.micro_batch_size == point.scenario.workload.global_batch_size);
  }
}

TEST_CASE("what is wrong with a series is named by its file and field") {
  CHECK(message_of(one_series(R"(, "vary": {"workload.seq_len": 8})")).find("must be a list of values") !=
        std::string::npos);
  CHECK(message_of(one_series(R"(, "vary": {"workload.no_such": [1]})")).find("no_such") !=
        std::string::npos);
  CHECK(message_of(one_series(R"(, "claim": {"says": "x", "source": "y"})")).find("must have one field") !=
        std::string::npos);
  CHECK(message_of(one_series(R"(, "surprise": 1)")).find("surprise") != std::string::npos);
  CHECK(message_of(R"({"title": "t", "source": "s", "series": []})").find("at least one") !=
        std::string::npos);
  CHECK(message_of(R"({"title": "t", "series": []})").find("source") != std::string::npos);
}

TEST_CASE("a power law's exponent is found, and none where x does not change") {
  std::vector<double> x, y;
  for (const double n : {1.0, 3.0, 8.0, 20.0}) {
    x.push_back(n);
    y.push_back(5 * std::pow(n, 1.5));
  }
  CHECK(sim::power_of_growth(x, y).value() == Approx(1.5));
  CHECK_FALSE(sim::power_of_growth({2, 2}, {1, 3}));
  CHECK_FALSE(sim::power_of_growth({2}, {1}));
}

TEST_CASE("every run of every preset of series is free of contradictions, and its memory grows as claimed or the reason is there") {
  for (const std::string& name : sim::preset_names(sim::PresetKind::series)) {
    for (const sim::ScenarioSeries& series : sim::load_series_preset(name).series) {
      CAPTURE(name, series.name);
      std::vector<double> x, memory;
      for (const sim::SeriesPoint& point : series.points) {
        CAPTURE(point.at);
        sim::Scenario scenario = point.scenario;
        scenario.hardware = sim::load_hardware_preset("h100-sxm");  // which has all types
        REQUIRE(sim::validate(scenario).empty());
        if (!series.claim || !series.claim->memory) continue;
        x.push_back(point.x);
        memory.push_back(static_cast<double>(sim::working_memory(sim::predict(scenario)).value));
      }
      if (!series.claim || !series.claim->memory) continue;
      const double grown = sim::power_of_growth(x, memory).value();
      if (std::abs(grown - *series.claim->memory) > 0.15) CHECK_FALSE(series.claim->why_apart.empty());
    }
  }
}
