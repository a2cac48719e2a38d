// ridgepoint measure: series of runs here, in every format.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/app/program.h"
#include "tests/support/catch.h"

using nlohmann::json;
using program::Folder;
using program::Result;
using program::run;

namespace {

// Two lengths of a tiny model, one run that cannot be, and a generation.
constexpr const char* kSeries = R"x({"title": "t", "source": "s", "series": [
  {"name": "lengths", "scenario": "train-tiny-llama-here", "vary": {"workload.seq_len": [16, 32]},
   "claim": {"memory": 1, "says": "in proportion", "source": "s"}},
  {"name": "impossible", "scenario": "train-tiny-llama-here", "vary": {"model.num_key_value_heads": [3]}},
  {"name": "tokens", "scenario": {"model": "tiny-llama", "hardware": "this-machine", "implementation": "ridgepoint",
   "workload": {"task": "generate", "dtype": "fp32", "prompt_length": 4, "max_new_tokens": 4}}}]})x";

}  // namespace

TEST_CASE("measure runs each scenario beside its prediction, whose memory is equal to the byte") {
  const Folder folder;
  const std::string file = folder.write("series.json", kSeries);
  const Result result =
      run({"measure", file, "--seconds", "0.01", "--format", "json", "--out", folder.path("runs")});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  const json document = json::parse(result.out);
  CHECK(document.at("ran") == 3);
  CHECK(document.at("memory_equal") == 3);
  CHECK(document.at("training_steps").at("count") == 2);
  CHECK(document.at("tokens").at("count") == 1);
  const json& lengths = document.at("series").at(0);
  for (const json& row : lengths.at("runs")) {
    CHECK(row.at("predicted_seconds") > 0);
    CHECK(row.at("measured_seconds") > 0);
    CHECK(row.at("predicted_memory_bytes") == row.at("measured_memory_bytes"));
  }
  CHECK(lengths.at("growth").at("memory_predicted") == lengths.at("growth").at("memory_measured"));
  CHECK(document.at("series").at(1).at("runs").at(0).at("why_not").get<std::string>().find(
            "num_key_value_heads") != std::string::npos);
  // The reports are there for the desktop and for compare.
  CHECK(run({"compare", folder.path("runs/001.predicted.json"), folder.path("runs/001.measured.json")})
            .exit_code == 0);
}

TEST_CASE("measure's text says what it cannot run, and its CSV is a table that validate reads") {
  const Folder folder;
  const std::string file = folder.write("series.json", kSeries);
  const Result text = run({"measure", file, "--seconds", "0.01"});
  CHECK(text.exit_code == 0);
  CHECK(text.out.find("grows as a power of workload.seq_len") != std::string::npos);
  CHECK(text.out.find("1 did not run") != std::string::npos);
  const Result csv = run({"measure", file, "--seconds", "0.01", "--format", "csv"});
  CHECK(csv.exit_code == 0);
  const auto lines_with = [&](const std::string& what) {
    std::size_t count = 0;
    for (std::size_t at = csv.out.find("\n" + what); at != std::string::npos;
         at = csv.out.find("\n" + what, at + 1))
      ++count;
    return count;
  };
  CHECK(lines_with("training steps,") == 3);  // one is refused
  CHECK(lines_with("tokens,") == 1);
  CHECK(lines_with("operations,") > 10);
  const Result validated = run({"validate", folder.write("runs.csv", csv.out)});
  CAPTURE(validated.out, validated.err);
  CHECK(validated.exit_code == 0);
  CHECK(validated.out.find("training steps") != std::string::npos);
  CHECK(validated.err.find("num_key_value_heads") != std::string::npos);
}

TEST_CASE("measure lists the presets of series, and names the nearest to an unknown one") {
  const Result list = run({"measure"});
  CHECK(list.exit_code == 0);
  CHECK(list.out.find("complexity") != std::string::npos);
  const Result unknown = run({"measure", "complexty"});
  CHECK(unknown.exit_code == 2);
  CHECK(unknown.err.find("complexity") != std::string::npos);
  CHECK(unknown.err.find("a slash or ends in .json") != std::string::npos);
}

TEST_CASE("measure takes a name for a preset's beside a folder of that name, and a path for a file's") {
  const Folder folder;
  std::filesystem::create_directory(folder.path("complexity"));
  const std::vector<std::string> there{"env", "--chdir=" + folder.path("")};
  // Read before it is refused for its seconds.
  const Result preset = run({"measure", "complexity", "--seconds", "0"}, there);
  CHECK(preset.exit_code == 2);
  CHECK(preset.err.find("--seconds is above 0") != std::string::npos);
  const Result path = run({"measure", "./complexity"}, there);
  CHECK(path.exit_code != 0);
  CHECK(path.err.find("./complexity") != std::string::npos);
}
