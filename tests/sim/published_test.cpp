// presets/published/: predictions of what others measured stay within fixed budgets.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/validate/ranking.h"
#include "sim/validate/table_validation.h"
#include "source_folder.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace {

using nlohmann::json;

const std::filesystem::path kPresets = std::filesystem::path(RIDGEPOINT_SOURCE_DIR) / "presets";

std::string read(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

json published(const std::string& name) {
  return json::parse(read(kPresets / "published" / (name + ".json")));
}

sim::CsvTable published_table(const std::string& name) {
  return sim::csv_from_text(read(kPresets / "published" / (name + ".csv")), name + ".csv");
}

std::size_t column_of(const sim::CsvTable& table, const std::string& name) {
  const auto found = std::find(table.header.begin(), table.header.end(), name);
  REQUIRE(found != table.header.end());
  return static_cast<std::size_t>(found - table.header.begin());
}

// Says how far off the source is now, beside its budget.
void check_within(const json& budget, const sim::ErrorSummary& now) {
  const auto percent = [&](const char* key) { return budget[key].get<double>(); };
  std::printf(
      "%s on %s: median %.1f %% of %.0f %%, 90th percentile %.1f %% of %.0f %%, in the band %.0f %% of %.0f "
      "%%\n",
      now.source.c_str(), now.gpu.c_str(), 100 * now.median, percent("median_percent"), 100 * now.p90,
      percent("p90_percent"), 100 * now.inside_band, percent("inside_percent"));
  INFO(budget["source"] << " on " << budget["gpu"] << ": " << budget["reason"]);
  CHECK(static_cast<double>(now.predicted) >= 0.99 * static_cast<double>(now.rows));
  CHECK(100 * now.median <= budget["median_percent"]);
  CHECK(100 * now.p90 <= budget["p90_percent"]);
  CHECK(100 * now.inside_band >= budget["inside_percent"]);
}

// Presets as they would be had the source not been seen, until the end of the test.
class PresetsWithout {
 public:
  explicit PresetsWithout(const json& source) {
    std::filesystem::copy(
        kPresets, folder_.path(),
        std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
    for (const json& change : source["changes"]) {
      const std::string name = change["preset"];
      json preset = json::parse(read(folder_.path() / name));
      std::string path(1, '/');
      path += change["field"].get<std::string>();
      std::replace(path.begin(), path.end(), '.', '/');
      preset.at(json::json_pointer(path)) = change["value"];
      folder_.write(name, preset.dump());
    }
    ::setenv("RIDGEPOINT_PRESETS", folder_.path().c_str(), 1);
  }
  ~PresetsWithout() { ::unsetenv("RIDGEPOINT_PRESETS"); }

 private:
  TemporaryFolder folder_;
};

bool is_of(const json& source, const std::string& name) {
  return std::any_of(source["names"].begin(), source["names"].end(),
                     [&](const json& prefix) { return name.starts_with(prefix.get<std::string>()); });
}

}  // namespace

TEST_CASE("errors of every published source are within its budget") {
  const json all = published("budgets");
  const std::string name = GENERATE(std::string("training"), "training_runs", "memory_of_steps", "lora");
  const sim::CsvTable table = published_table(name);
  const sim::Validation validation = sim::validate_table(table);
  for (const sim::ErrorSummary& now : sim::summarize(table, validation)) {
    if (now.source.empty() || now.compared == 0) continue;
    INFO(name << ": " << now.source << " on " << now.gpu);
    const auto budget = std::find_if(all["budgets"].begin(), all["budgets"].end(), [&](const json& b) {
      return b["table"] == name && b["source"] == now.source && b["gpu"] == now.gpu;
    });
    REQUIRE(budget != all["budgets"].end());
    check_within(*budget, now);
  }
  if (name != "training") return;
  const sim::RankingSummary ranking = sim::summarize(sim::rank(table, validation));
  CHECK(ranking.tau >= all["ranking"]["kendall_tau"]);
  CHECK(100 * ranking.lost_mean <= all["ranking"]["lost_by_first_choice_mean_percent"]);
}

TEST_CASE("sources that constants were read off are within their budgets without those constants, too") {
  const json all = published("budgets"), without = published("without_source");
  std::size_t judged = 0;
  for (const json& source : without["sources"]) {
    sim::CsvTable table = published_table("training");
    const std::size_t name = column_of(table, "source");
    std::erase_if(table.rows, [&](const std::vector<std::string>& row) { return !is_of(source, row[name]); });
    if (source.contains("columns"))
      for (const json& column : source["columns"])
        for (std::vector<std::string>& row : table.rows) row[column_of(table, column)].clear();
    const PresetsWithout presets(source);
    for (const sim::ErrorSummary& now : sim::summarize(table, sim::validate_table(table)))
      for (const json& budget : all["budgets"]) {
        if (!budget.contains("left_out") || budget["source"] != now.source || budget["gpu"] != now.gpu)
          continue;
        json left_out = budget["left_out"];
        for (const char* key : {"source", "gpu", "reason"}) left_out[key] = budget[key];
        check_within(left_out, now);
        ++judged;
      }
  }
  const auto count = std::count_if(all["budgets"].begin(), all["budgets"].end(),
                                   [](const json& b) { return b.contains("left_out"); });
  CHECK(judged == static_cast<std::size_t>(count));
}

TEST_CASE("at least 95 % of published training steps are predicted") {
  const sim::CsvTable table = published_table("training");
  const sim::ErrorSummary all = sim::summarize(table, sim::validate_table(table)).front();
  CHECK(static_cast<double>(all.predicted) >= 0.95 * static_cast<double>(all.rows));
}

TEST_CASE("predictions do not depend on what was measured") {
  sim::CsvTable table = published_table("training");
  table.rows.resize(20);
  const auto before = sim::validate_table(table);
  for (auto& row : table.rows)
    for (const char* column : {"step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "hfu"})
      row[column_of(table, column)].clear();
  const auto after = sim::validate_table(table);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    REQUIRE(before.rows[i].predictions.size() == after.rows[i].predictions.size());
    for (std::size_t k = 0; k < before.rows[i].predictions.size(); ++k)
      CHECK(before.rows[i].predictions[k].value == after.rows[i].predictions[k].value);
  }
}
