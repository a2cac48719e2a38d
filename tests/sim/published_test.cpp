// presets/published/: predictions of what others measured stay as good as they are.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "sim/validate/ranking.h"
#include "sim/validate/table_validation.h"
#include "tests/support/catch.h"

namespace {

const std::string kFolder = std::string(RIDGEPOINT_SOURCE_DIR) + "/presets/published/";

std::string read(const std::string& name) {
  std::ifstream in(kFolder + name, std::ios::binary);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Rounding of another compiler's mathematics: a tenth of a percent point.
constexpr double kSlackPercent = 0.1;

std::string text_or_empty(const nlohmann::json& value) {
  return value.is_null() ? std::string() : value.get<std::string>();
}

}  // namespace

TEST_CASE("no error of a published source is larger than presets/published says") {
  const std::string name = GENERATE(std::string("training"), "training_runs", "memory_of_steps");
  const sim::CsvTable table = sim::csv_from_text(read(name + ".csv"), name + ".csv");
  const sim::Validation validation = sim::validate_table(table);
  const auto stored = nlohmann::json::parse(read(name + "_errors.json"));
  const auto summaries = sim::summarize(table, validation);
  REQUIRE(stored["summaries"].size() == summaries.size());
  for (const auto& before : stored["summaries"]) {
    const std::string source = text_or_empty(before["source"]), gpu = text_or_empty(before["gpu"]);
    const auto now = std::find_if(summaries.begin(), summaries.end(), [&](const sim::ErrorSummary& s) {
      return s.source == source && s.gpu == gpu;
    });
    INFO(source << " on " << gpu);
    REQUIRE(now != summaries.end());
    CHECK(now->predicted >= before["predicted"].get<std::size_t>());
    if (now->compared == 0) continue;
    CHECK(100 * now->median <= before["median_absolute_error_percent"].get<double>() + kSlackPercent);
    CHECK(100 * now->mean <= before["mean_absolute_error_percent"].get<double>() + kSlackPercent);
    CHECK(100 * now->p90 <= before["p90_absolute_error_percent"].get<double>() + kSlackPercent);
  }
  if (!stored.contains("ranking")) return;
  const sim::RankingSummary ranking = sim::summarize(sim::rank(table, validation));
  CHECK(ranking.tau >= stored["ranking"]["kendall_tau"].get<double>() - kSlackPercent / 100);
  CHECK(100 * ranking.lost_mean <=
        stored["ranking"]["lost_by_first_choice_mean_percent"].get<double>() + kSlackPercent);
}

TEST_CASE("at least 95 % of published training steps are predicted") {
  const sim::CsvTable table = sim::csv_from_text(read("training.csv"), "training.csv");
  const sim::ErrorSummary all = sim::summarize(table, sim::validate_table(table)).front();
  CHECK(static_cast<double>(all.predicted) >= 0.95 * static_cast<double>(all.rows));
}

TEST_CASE("predictions do not depend on what was measured") {
  sim::CsvTable table = sim::csv_from_text(read("training.csv"), "training.csv");
  table.rows.resize(20);
  const auto before = sim::validate_table(table);
  for (auto& row : table.rows)
    for (const char* column : {"step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "hfu"}) {
      const auto at = std::find(table.header.begin(), table.header.end(), column) - table.header.begin();
      row[static_cast<std::size_t>(at)].clear();
    }
  const auto after = sim::validate_table(table);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    REQUIRE(before.rows[i].predictions.size() == after.rows[i].predictions.size());
    for (std::size_t k = 0; k < before.rows[i].predictions.size(); ++k)
      CHECK(before.rows[i].predictions[k].value == after.rows[i].predictions[k].value);
  }
}
