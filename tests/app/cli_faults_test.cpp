// What goes wrong outside of the program: files with values that no model has, two runs in one folder, a
// terminal that goes away.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "source_folder.h"
#include "tests/app/program.h"
#include "tests/support/catch.h"

using program::Folder;
using program::Result;
using program::run;
using program::Running;

namespace {

constexpr int kBadFile = 4, kInterrupted = 130;

nlohmann::json config_of(const std::string& fixture) {
  std::ifstream in(std::filesystem::path(RIDGEPOINT_SOURCE_DIR) / "tests/parity/fixtures" / fixture /
                   "config.json");
  return nlohmann::json::parse(in);
}

std::vector<std::string> endless_training(const std::string& checkpoint) {
  return {"train",
          "--model",
          "tiny-llama",
          "--steps",
          "1000000",
          "--micro-batch",
          "1",
          "--seq-len",
          "32",
          "--device",
          "cpu",
          "--stream",
          "--checkpoint",
          checkpoint,
          "--checkpoint-every",
          "1"};
}

}  // namespace

TEST_CASE("a size that no model has is refused by the file and the key that it has there") {
  const Folder folder;
  const auto refusal = [&](const std::string& fixture, const std::string& key, const nlohmann::json& value) {
    nlohmann::json config = config_of(fixture);
    config[key] = value;
    const std::string file =
        folder.write((std::filesystem::path(fixture) / "config.json").string(), config.dump());
    const Result result = run({"predict", "--model", std::filesystem::path(file).parent_path().string()});
    CAPTURE(result.err);
    CHECK(result.exit_code == kBadFile);
    CHECK_THAT(result.err, contains(file + ": " + key + " must be from 1 to"));
  };
  refusal("llama-gqa-transformers5", "head_dim", 1'000'000'000);
  refusal("llama-gqa-transformers5", "vocab_size", std::int64_t{1} << 60);
  refusal("gpt2-transformers5", "n_positions", std::int64_t{1} << 60);
  refusal("gpt2-transformers5", "n_layer", 1'000'000'000);
}

TEST_CASE("a size that no model has is refused by the key of a GGUF file") {
  std::ifstream in(RIDGEPOINT_SOURCE_DIR "/tests/fuzz/found/gguf/context-length-0", std::ios::binary);
  const std::string gguf{std::istreambuf_iterator<char>(in), {}};
  const Folder folder;
  const std::string file = folder.write("model.gguf", gguf);
  const Result result = run({"predict", "--model", file});
  CAPTURE(result.err);
  CHECK(result.exit_code == kBadFile);
  CHECK_THAT(result.err, contains(file + ": llama.context_length must be at least 1, but is 0"));
}

TEST_CASE("a preset that a scenario's file names and nobody has is refused by that file") {
  const Folder folder;
  const std::string file =
      folder.write("scenario.json", R"({"model": "llama-2-7x", "hardware": "h100-sxm"})");
  const Result result = run({"predict", "--scenario", file});
  CAPTURE(result.err);
  CHECK(result.exit_code == kBadFile);
  CHECK_THAT(result.err, contains(file + ": field \"model\": there is no model preset \"llama-2-7x\""));
}

TEST_CASE("a second run on a checkpoint's folder is refused while the first goes on, with its process") {
  const Folder folder;
  const std::string checkpoint = folder.path("run");
  Running first(endless_training(checkpoint));
  REQUIRE(first.wait_for("\"event\":\"checkpoint\""));
  std::vector<std::string> resumed = endless_training(checkpoint);
  resumed.push_back("--resume");
  for (const auto& words : {endless_training(checkpoint), resumed}) {
    const Result second = run(words);
    CAPTURE(second.err);
    CHECK(second.exit_code == kBadFile);
    CHECK_THAT(second.err, contains(checkpoint + " is in use by another run (process "));
  }
  first.signal(SIGKILL);
  first.finish();
  Running third(resumed);  // a killed run holds nothing
  CHECK(third.wait_for("\"event\":\"checkpoint\""));
}

TEST_CASE("a terminal that goes away ends a run as an interrupt does: with what it has done") {
  const Folder folder;
  std::vector<std::string> words = endless_training(folder.path("run"));
  words.pop_back();
  words.emplace_back("0");
  Running training(words);
  REQUIRE(training.wait_for("\"event\":\"step\""));
  training.signal(SIGHUP);
  const Result result = training.finish();
  CHECK(result.exit_code == kInterrupted);
  CHECK(std::filesystem::exists(folder.path("run") + "/model.safetensors.index.json"));
}
