// ridgepoint train with adapters beside frozen weights in fewer bits.
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/app/program.h"
#include "tests/support/catch.h"

using nlohmann::json;
using program::Folder;
using program::Result;
using program::run;

namespace {

constexpr int kNoDevice = 5;

using Arguments = std::vector<std::string>;

Arguments with(Arguments arguments, const Arguments& further) {
  arguments.insert(arguments.end(), further.begin(), further.end());
  return arguments;
}

const Arguments kTrain{"train", "--model",         "tiny-llama", "--lora-rank",   "4",        "--micro-batch",
                       "1",     "--seq-len",       "32",         "--lr-schedule", "constant", "--device",
                       "cpu",   "--frozen-weights"};

constexpr const char* kSeries = R"x({"title": "t", "source": "s", "series": [
  {"name": "frozen", "scenario": {"model": "tiny-llama", "hardware": "this-machine", "implementation": "ridgepoint",
   "workload": {"task": "train", "dtype": "fp32", "seq_len": 32, "lora_rank": 4}},
   "vary": {"workload.frozen_weights": ["int8", "nf4", "nf4_double"]}}]})x";

}  // namespace

TEST_CASE("Steps beside frozen weights in fewer bits take the predicted memory, to the byte") {
  const Folder folder;
  const Result result =
      run({"measure", folder.write("series.json", kSeries), "--seconds", "0.01", "--format", "json"});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const json document = json::parse(result.out);
  CHECK(document.at("ran") == 3);
  CHECK(document.at("memory_equal") == 3);
}

TEST_CASE(
    "A run beside frozen weights in fewer bits that is killed goes on with the losses of one that is not") {
  for (const std::string stored : {"int8", "nf4", "nf4_double"}) {
    CAPTURE(stored);
    const Folder folder;
    const std::string checkpoint = folder.path("run");
    const Arguments kept = with(kTrain, {stored, "--checkpoint", checkpoint, "--checkpoint-every", "1"});
    program::Running running(with(kept, {"--steps", "1000000", "--stream"}));
    REQUIRE(running.wait_for("\"event\":\"checkpoint\""));
    running.signal(SIGKILL);
    running.finish();
    std::ifstream index(checkpoint + "/model.safetensors.index.json");
    const auto done = json::parse(index).at("metadata").at("step").get<std::size_t>();
    const Arguments steps{"--steps", std::to_string(done + 3), "--format", "json"};
    const Result resumed = run(with(with(kept, {"--resume"}), steps)),
                 whole = run(with(with(kTrain, {stored}), steps));
    INFO(resumed.err);
    REQUIRE(resumed.exit_code == 0);
    REQUIRE(whole.exit_code == 0);
    const json further = json::parse(resumed.out).at("report").at("steps"),
               all = json::parse(whole.out).at("report").at("steps");
    REQUIRE(further.size() == 3);
    REQUIRE(all.size() == done + 3);
    for (std::size_t i = 0; i < 3; ++i) CHECK(further[i].at("loss") == all[done + i].at("loss"));
  }
}

TEST_CASE("Tensor-parallel ranks beside frozen weights in fewer bits are refused by one sentence") {
  const Result result = run(with(kTrain, {"nf4", "--tp", "2", "--steps", "1"}));
  CHECK(result.exit_code == kNoDevice);
  CHECK_THAT(result.err, contains("strategy.tensor_parallel is 2, it must be 1"));
}
