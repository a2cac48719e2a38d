// Ranks on GPUs, as processes that the program starts: the backend is the GPU's own sources with threads
// emulated on the CPU, NCCL a stand-in over files (tests/support/fake_nccl.cpp).
#include "programs.h"

#ifdef RIDGEPOINT_EMULATED_CUDA
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/app/program.h"
#include "tests/support/catch.h"

using nlohmann::json;
using program::Folder;
using program::Result;

namespace {

using Arguments = std::vector<std::string>;

// The environment of programs that are started while it lives.
class Environment {
 public:
  Environment(const Folder& folder, const std::string& nccl, int gpus) {
    set("RIDGEPOINT_CUDA_BACKEND", RIDGEPOINT_EMULATED_CUDA);
    set("RIDGEPOINT_NVML", RIDGEPOINT_FAKE_NVML);
    set("RIDGEPOINT_NCCL", nccl);
    set("RIDGEPOINT_EMULATED_GPUS", std::to_string(gpus));
    set("XDG_CACHE_HOME", folder.path("cache"));
  }
  ~Environment() {
    for (const auto& [name, before] : before_)
      before ? setenv(name.c_str(), before->c_str(), 1) : unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  void set(const std::string& name, const std::string& value) {
    const char* const before = std::getenv(name.c_str());
    before_.emplace_back(name, before != nullptr ? std::optional<std::string>(before) : std::nullopt);
    setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

Result train(const Arguments& more, const std::string& batch = "4", const std::string& steps = "2") {
  Arguments arguments{"train",         "--device", "cuda",    "--model", "tiny-llama",     "--seq-len", "16",
                      "--micro-batch", "1",        "--steps", steps,     "--global-batch", batch};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return program::run(arguments);
}

json report_of(const Result& result) {
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  return json::parse(result.out).at("report");
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE(
    "Ranks that have a GPU each train by NCCL as one GPU does, and those that share one by way of the "
    "host") {
  const Folder folder;
  const Arguments common{"--dtype", "fp32", "--format", "json"};
  const auto with = [&](Arguments more) {
    more.insert(more.end(), common.begin(), common.end());
    return more;
  };
  const json one = [&] {
    const Environment environment(folder, RIDGEPOINT_FAKE_NCCL, 1);
    return report_of(train(common));
  }();
  const int gpus = GENERATE(1, 4);
  const Environment environment(folder, RIDGEPOINT_FAKE_NCCL, gpus);
  const std::vector<Arguments> by_nccl{{"--dp", "3"},
                                       {"--dp", "2", "--zero", "1", "--cuda-graphs"},
                                       {"--dp", "4", "--zero", "3"},
                                       {"--dp", "2", "--pp", "2", "--zero", "2"},
                                       {"--tp", "2", "--sequence-parallel"},
                                       {"--cp", "2", "--pp", "2", "--cp-comm", "all_to_all"}};
  const std::vector<Arguments> shared{{"--dp", "2", "--zero", "3"},
                                      {"--pp", "2"},
                                      {"--tp", "2", "--dp", "2"},
                                      {"--cp", "2", "--cp-comm", "all_to_all"}};
  for (const Arguments& degrees : gpus == 1 ? shared : by_nccl) {
    CAPTURE(gpus, degrees);
    const bool thirds = degrees[1] == "3";
    const json several = report_of(train(with(degrees), thirds ? "3" : "4"));
    const json alone = thirds ? report_of(train(common, "3")) : one;
    REQUIRE(several.at("steps").size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
      const auto of = [&](const json& report, const char* what) {
        return report["steps"][i][what].get<double>();
      };
      CHECK(of(several, "loss") == Approx(of(alone, "loss")).epsilon(1e-5));
      CHECK(of(several, "grad_norm") == Approx(of(alone, "grad_norm")).epsilon(1e-5));
    }
  }
}

TEST_CASE("Optimizers of whole tensors train on GPUs that divide data or layers as on one") {
  const Folder folder;
  const std::string optimizer = GENERATE("adafactor", "adamw_8bit");
  const Environment environment(folder, RIDGEPOINT_FAKE_NCCL, 2);
  const auto steps_of = [&](Arguments more) {
    more.insert(more.end(), {"--dtype", "fp32", "--optimizer", optimizer, "--format", "json"});
    return report_of(train(more, "2")).at("steps");
  };
  const json one = steps_of({});
  for (const Arguments& degrees : {Arguments{"--dp", "2"}, Arguments{"--pp", "2"}}) {
    CAPTURE(optimizer, degrees);
    const json several = steps_of(degrees);
    for (std::size_t i = 0; i < 2; ++i)
      for (const char* const what : {"loss", "grad_norm"})
        CHECK(several[i][what].get<double>() == Approx(one[i][what].get<double>()).epsilon(1e-5));
  }
}

TEST_CASE("Steps of ranks that exchange by NCCL are replayed, exchanges with them") {
  const Folder folder;
  const Environment environment(folder, RIDGEPOINT_FAKE_NCCL, 2);
  const Arguments common{"--dtype", "bf16", "--dp", "2", "--zero", "2", "--format", "json"};
  Arguments graphs = common;
  graphs.push_back("--cuda-graphs");
  const json eager = report_of(train(common, "2", "5")), replayed = report_of(train(graphs, "2", "5"));
  for (std::size_t i = 0; i < 5; ++i)
    CHECK(replayed["steps"][i]["loss"].get<double>() == eager["steps"][i]["loss"].get<double>());
}

TEST_CASE("What NCCL lacks is one sentence: no file, another library, an old version") {
  const Folder folder;
  Environment environment(folder, "/nowhere/libnccl.so.2", 2);
  const auto refused = [](const Result& result, const std::string& why) {
    CAPTURE(result.err);
    CHECK(result.exit_code == 5);
    CHECK_THAT(result.err, contains(why));
  };
  refused(train({"--dp", "2"}),
          "NCCL, by which ranks that have a GPU each exchange, does not load: /nowhere");
  CHECK_THAT(program::run({"doctor"}).out, contains("PyPI has it as nvidia-nccl-cu12"));
  environment.set("RIDGEPOINT_NCCL", RIDGEPOINT_FAKE_NVML);
  refused(train({"--dp", "2"}), "is no NCCL 2 that can be used here: it has no function ncclGetVersion");
  environment.set("RIDGEPOINT_NCCL", RIDGEPOINT_FAKE_NCCL);
  environment.set("FAKE_NCCL_VERSION", "20804");
  refused(train({"--dp", "2"}), "is NCCL 2.8.4; here NCCL 2 from 2.10.0 on is used");
  environment.set("RIDGEPOINT_NCCL", "none");
  CHECK(train({"--dp", "2"}).exit_code == 0);
}

TEST_CASE("Strategies that GPUs have no kernels for are refused by their field") {
  const Folder folder;
  const Environment environment(folder, RIDGEPOINT_FAKE_NCCL, 2);
  const Result result = train({"--cp", "2", "--cp-comm", "ring"});
  CHECK(result.exit_code == 5);
  CHECK_THAT(result.err,
             contains("has no kernels for divided sequences, but for strategy.context_parallel_comm "
                      "all_to_all; strategy.context_parallel is 2"));
}

TEST_CASE("A rank on a GPU that is killed amid NCCL's exchanges is named, and all others end") {
  const Folder folder;
  const Environment environment(folder, RIDGEPOINT_FAKE_NCCL, 2);
  const std::string checkpoint = folder.path("run");
  program::Running running(
      {"train",    "--device",           "cuda", "--model", "tiny-llama", "--seq-len", "16", "--micro-batch",
       "1",        "--global-batch",     "4",    "--steps", "100000",     "--dp",      "2",  "--checkpoint",
       checkpoint, "--checkpoint-every", "1",    "--stream"});
  REQUIRE(running.wait_for("\"event\":\"checkpoint\""));
  pid_t rank_1 = 0;
  std::error_code ignored;
  for (const auto& process : std::filesystem::directory_iterator("/proc", ignored))
    if (text_of(process.path() / "cmdline").find(checkpoint) != std::string::npos &&
        text_of(process.path() / "environ").find(std::string("RIDGEPOINT_RANK=1") + '\0') !=
            std::string::npos)
      rank_1 = static_cast<pid_t>(std::atoi(process.path().filename().c_str()));
  REQUIRE(rank_1 > 0);
  REQUIRE(kill(rank_1, SIGKILL) == 0);
  const Result result = running.finish();
  CHECK(result.exit_code == 6);
  CHECK_THAT(result.err, contains("rank 1 was killed by signal 9"));
}

#endif
