// ridgepoint validate, as its users meet it.
#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>

#include "sim/csv.h"
#include "source_folder.h"
#include "tests/app/program.h"
#include "tests/support/catch.h"

using program::Folder;
using program::Result;
using program::run;

namespace {

const std::string kTable =
    "gpu,framework,dtype,m,n,k,latency_ms\n"
    "A100-SXM4-80GB,SGLang 0.5.10,bfloat16,4096,4096,4096,0.55\n"
    "A100-SXM4-80GB,SGLang 0.5.10,bfloat16,8192,8192,8192,\n";

std::string content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("validate writes the table with its predictions, and its errors to stdout") {
  const Folder folder;
  const std::string out = folder.path("out.csv");
  const Result result =
      run({"validate", folder.write("products.csv", kTable), "--out", out, "--format", "json"});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  const auto json = nlohmann::json::parse(result.out);
  CHECK(json["summaries"][0]["rows"] == 2);
  CHECK(json["summaries"][0]["predicted"] == 2);
  CHECK(json["summaries"][0]["compared"] == 1);
  CHECK(json["summaries"][1]["gpu"] == "a100-sxm-80gb");
  const std::string written = content(out);
  CHECK(written.rfind("gpu,framework,dtype,m,n,k,latency_ms,predicted_latency_ms,predicted_latency_ms_low,"
                      "predicted_latency_ms_high,why_not\n",
                      0) == 0);
  CHECK(std::count(written.begin(), written.end(), '\n') == 3);
}

TEST_CASE("validate shows its errors as text and as Markdown") {
  const Folder folder;
  const std::string table = folder.write("products.csv", kTable);
  const Result text = run({"validate", table}), markdown = run({"validate", table, "--format", "md"});
  CHECK(text.exit_code == 0);
  CHECK_THAT(text.out, contains("median") && contains("SGLang 0.5.10") && contains("a100-sxm-80gb"));
  CHECK(markdown.exit_code == 0);
  CHECK_THAT(markdown.out, contains("|") && contains("SGLang 0.5.10"));
}

TEST_CASE("validate names each group's first choice and best, and sums them up by number of GPUs") {
  // The published steps of one model on two numbers of GPUs.
  const std::string name = "training.csv";
  const sim::CsvTable published =
      sim::csv_from_text(content(std::string(RIDGEPOINT_SOURCE_DIR) + "/presets/published/" + name), name);
  const auto column = [&](const std::string& header) {
    return static_cast<std::size_t>(std::find(published.header.begin(), published.header.end(), header) -
                                    published.header.begin());
  };
  const std::size_t model = column("model_name"), gpus = column("num_gpus");
  sim::CsvTable table{published.header, {}};
  std::map<std::string, std::set<std::string>> ids;
  for (const auto& row : published.rows)
    if (row[model] == "Llama-style 80B" && (row[gpus] == "32" || row[gpus] == "128")) {
      table.rows.push_back(row);
      ids[row[gpus]].insert(row[column("id")]);
    }
  REQUIRE(ids.size() == 2);
  const Folder folder;
  const std::string file = folder.write("sweep.csv", to_text(table));
  const auto ranking = nlohmann::json::parse(run({"validate", file, "--format", "json"}).out)["ranking"];
  REQUIRE(ranking["by_group"].size() == 2);
  double lost = 0;
  for (const auto& group : ranking["by_group"]) {
    CHECK(group["model"] == "Llama-style 80B");
    const auto& of_group = ids.at(std::to_string(group["gpus"].get<int>()));
    CHECK(of_group.count(group["first_choice"]) == 1);
    CHECK(of_group.count(group["best"]) == 1);
    CHECK((group["first_choice"] == group["best"]) == (group["lost_by_first_choice_percent"] == 0));
    lost += group["lost_by_first_choice_percent"].get<double>();
  }
  CHECK(ranking["groups"] == 2);
  CHECK(ranking["lost_by_first_choice_mean_percent"].get<double>() == Approx(lost / 2));
  REQUIRE(ranking["by_gpus"].size() == 2);
  CHECK(ranking["by_gpus"][0]["gpus"] == 32);
  CHECK(ranking["by_gpus"][1]["gpus"] == 128);
  for (const char* format : {"text", "md"})
    CHECK_THAT(run({"validate", file, "--format", format}).out,
               contains("our first choice") && contains("lost, mean") && contains("128"));
  CHECK_THAT(run({"validate", file, "--format", "csv"}).out, !contains("lost"));
}

TEST_CASE("validate refuses what is no table in a sentence, and leaves no file behind") {
  const Folder folder;
  const std::string out = folder.path("out.csv");
  for (const auto& [name, text, word] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"empty.csv", "", "empty"},
           {"ragged.csv", "m,n\n1\n", "line 2"},
           {"open.csv", "m,n\n1,\"2\n", "never closed"}}) {
    const Result result = run({"validate", folder.write(name, text), "--out", out});
    CAPTURE(name, result.err);
    CHECK(result.exit_code == 4);
    CHECK(result.out.empty());
    CHECK_THAT(result.err, contains(name) && contains(word));
    CHECK_FALSE(std::ifstream(out).good());
  }
  CHECK(run({"validate", folder.path("missing.csv")}).exit_code == 4);
}

TEST_CASE("validate says so where it cannot predict a table, and keeps its rows") {
  const Folder folder;
  const std::string out = folder.path("out.csv");
  const Result result = run({"validate", folder.write("colours.csv", "colour\nred\n"), "--out", out});
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.err, contains("no prediction is made"));
  CHECK_THAT(content(out), contains("colour,why_not\nred,"));
}
