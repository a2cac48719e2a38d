// ridgepoint predict for inference engines, as its users meet it.
#include <nlohmann/json.hpp>

#include "tests/app/program.h"
#include "tests/support/catch.h"

using program::Result;
using program::run;

namespace {

nlohmann::json metrics_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--format", "json"});
  const Result result = run(arguments);
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  return nlohmann::json::parse(result.out)["metrics"];
}

const std::vector<std::string> kServed{"predict",   "--model",         "llama-3.1-8b", "--implementation",
                                       "vllm_0.14", "--prompt-length", "512",          "--max-new-tokens",
                                       "64"};

std::vector<std::string> served(std::initializer_list<std::string> further) {
  std::vector<std::string> arguments = kServed;
  arguments.insert(arguments.end(), further);
  return arguments;
}

}  // namespace

TEST_CASE("a batch on an inference engine: first token, later tokens, memory") {
  const auto one = metrics_of(served({}));
  const auto many = metrics_of(served({"--batch-size", "64"}));
  CHECK(many["tpot_ms"] > one["tpot_ms"]);
  CHECK(many["output_tokens_per_second"] > one["output_tokens_per_second"]);
  CHECK(one["tpot_low_ms"] < one["tpot_ms"]);
  CHECK(one["kv_bytes_per_token_and_device"] == 131072);
  const auto narrow = metrics_of(served({"--weights-dtype", "fp8", "--kv-dtype", "fp8"}));
  CHECK(narrow["tpot_ms"] < one["tpot_ms"]);
  CHECK(narrow["kv_bytes_per_token_and_device"] == 65536);
}

TEST_CASE("traffic on an inference engine: percentiles, goodput, occupancy") {
  const auto light = metrics_of(served({"--requests-per-second", "2", "--minutes", "2"}));
  const auto heavy =
      metrics_of(served({"--requests-per-second", "30", "--minutes", "2", "--most-ttft-ms", "200"}));
  CHECK(light["ttft_p50_ms"] <= light["ttft_p99_ms"]);
  CHECK(heavy["tpot_p50_ms"] > light["tpot_p50_ms"]);
  CHECK(heavy["goodput_requests_per_second"] <= heavy["requests_per_second"]);
  const auto saturated = metrics_of(served({"--saturated"}));
  CHECK(saturated["output_tokens_per_second"] > heavy["output_tokens_per_second"]);
}

TEST_CASE("what an inference engine cannot do is said with its flag") {
  struct Case {
    std::vector<std::string> arguments;
    int exit_code;
    std::string message;
  };
  const Case c =
      GENERATE(Case{{"predict", "--model", "llama-3.1-8b", "--requests-per-second", "2"},
                    2,
                    "traffic is served by an inference engine"},
               Case{served({"--requests-per-second", "0"}), 2, "--requests-per-second must be above 0"},
               Case{served({"--concurrency", "0"}), 2, "--concurrency must be 1 or more"},
               Case{served({"--weights-dtype", "wide"}), 2, "--weights-dtype takes fp8"},
               Case{served({"--hardware", "a100-sxm-80gb", "--weights-dtype", "fp8"}), 3, "weights_dtype"},
               Case{{"predict", "--model", "llama-3.1-405b", "--implementation", "vllm_0.14",
                     "--prompt-length", "512", "--saturated"},
                    3,
                    "does not fit beside the weights"});
  const Result result = run(c.arguments);
  CHECK(result.exit_code == c.exit_code);
  CHECK_THAT(result.err, contains(c.message));
}
