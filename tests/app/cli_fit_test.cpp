// What does not fit, what goes beyond what a model knows, and what a million tokens cost, as users meet it.
#include <nlohmann/json.hpp>

#include "sim/economics/rates.h"
#include "tests/app/program.h"
#include "tests/support/catch.h"

using nlohmann::json;
using program::Folder;
using program::Result;
using program::run;

namespace {

Result predict(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "predict");
  arguments.insert(arguments.end(), {"--format", "json"});
  return run(arguments);
}

json metrics_of(const Result& result) {
  CAPTURE(result.err);
  return json::parse(result.out).at("metrics");
}

}  // namespace

// 70B in 16 bits are 138 GB.
TEST_CASE("a model that does not fit is predicted, said and told by the exit code, whoever serves it") {
  const std::string software =
      GENERATE("ridgepoint", "gpt_fast", "vllm_0.14", "tensorrt_llm_1.0", "sglang_0.4");
  const Result result = predict({"--task", "generate", "--model", "llama-2-70b", "--hardware",
                                 "a100-sxm-80gb", "--implementation", software});
  CAPTURE(software, result.err);
  CHECK(result.exit_code == 3);
  CHECK_THAT(result.err, contains("fit"));
  CHECK(metrics_of(result).at("fits") == false);
}

TEST_CASE("a batch fits an engine up to the requests that it says fit, and not one more") {
  const std::vector<std::string> shape{"--model",          "llama-3.1-8b", "--implementation", "vllm_0.14",
                                       "--prompt-length",  "8k",           "--hardware",       "h100-sxm",
                                       "--max-new-tokens", "128"};
  const auto with_batch = [&](std::int64_t batch) {
    std::vector<std::string> arguments = shape;
    arguments.insert(arguments.end(), {"--batch-size", std::to_string(batch)});
    return predict(arguments);
  };
  const Result one = with_batch(1);
  REQUIRE(one.exit_code == 0);
  const auto most = static_cast<std::int64_t>(metrics_of(one).at("requests_that_fit").get<double>());
  REQUIRE(most > 1);
  CHECK(with_batch(most).exit_code == 0);
  CHECK(metrics_of(with_batch(most)).at("fits") == true);
  const Result beyond = with_batch(most + 1);
  CHECK(beyond.exit_code == 3);
  CHECK(metrics_of(beyond).at("fits") == false);
  CHECK_THAT(beyond.err, contains("has room for " + std::to_string(most)));
}

TEST_CASE("sequences beyond the trained positions are predicted with a remark in every form") {
  const std::string software = GENERATE("ridgepoint", "vllm_0.14");
  const std::vector<std::string> beyond{"--model", "llama-3.1-8b",     "--prompt-length",
                                        "200000",  "--implementation", software};
  const Result as_json = predict(beyond);
  REQUIRE(as_json.exit_code == 0);
  const json remarks = json::parse(as_json.out).at("remarks");
  REQUIRE(remarks.size() == 1);
  CHECK(remarks.front().at("field") == "workload.prompt_length");
  CHECK_THAT(remarks.front().at("message").get<std::string>(), contains("131,072"));
  std::vector<std::string> as_text{"predict"};
  as_text.insert(as_text.end(), beyond.begin(), beyond.end());
  CHECK_THAT(run(as_text).out, contains("Remark: workload.prompt_length"));
  CHECK(json::parse(predict({"--model", "llama-3.1-8b", "--prompt-length", "1k"}).out).at("remarks").empty());
}

// Dollars, joules and grams are a device's for each second that it takes for the tokens.
TEST_CASE("what a million tokens cost is the time that they take, at a device's price, power and grid") {
  const auto of = [](std::initializer_list<std::string> further) {
    std::vector<std::string> arguments{"--model",
                                       "llama-3.1-8b",
                                       "--implementation",
                                       "vllm_0.14",
                                       "--prompt-length",
                                       "512",
                                       "--tp",
                                       "2",
                                       "--max-new-tokens",
                                       "64",
                                       "--usd-per-hour",
                                       "3"};
    arguments.insert(arguments.end(), further);
    return metrics_of(predict(arguments));
  };
  const sim::Site site = sim::load_economic_rates().sites.front();
  for (const json& metrics : {of({}), of({"--requests-per-second", "2", "--minutes", "1"})}) {
    const double seconds = 2 * 1e6 / metrics.at("output_tokens_per_second").get<double>();  // of devices
    CHECK(metrics.at("usd_per_million_tokens").get<double>() == Approx(seconds / 3600 * 3).epsilon(1e-6));
    const double kwh = metrics.at("kwh_per_million_tokens").get<double>();
    // The GPU's rated 700 W and its share of the node, as the site draws them.
    CHECK(kwh == Approx(seconds * (700 + site.host_w_per_device) * site.pue / 3.6e6).epsilon(1e-6));
    CHECK(metrics.at("kg_co2e_per_million_tokens").get<double>() ==
          Approx(kwh * site.kg_co2e_per_kwh).epsilon(1e-6));
  }
}
