// What a review of the desktop found wrong and no other test of this folder holds.
#include <regex>
#include <string>

#include "app/gui/panels/inference.h"
#include "sim/cost/predict.h"
#include "sim/report/metrics.h"
#include "sim/report/step_parts.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"

using namespace app::gui;
using tests::NullDesktop;

namespace {

// The share behind these words, "43 %"; -1 where nothing says it.
double share_behind(const std::string& words, const std::string& what) {
  std::smatch found;
  const std::regex pattern(what + " ([0-9,.]+) %");
  return std::regex_search(words, found, pattern) ? std::stod(found[1]) : -1;
}

sim::Scenario on_four_stages() {
  sim::Scenario s = tests::small_scenario();
  s.strategy.pipeline_parallel = 4;
  s.workload.global_batch_size = 4 * s.workload.micro_batch_size;
  return s;
}

}  // namespace

TEST_CASE("a pipeline that waits is bound by its bubble, not by the network, and each panel says one share") {
  NullDesktop desktop(on_four_stages());
  desktop.settle();
  desktop.shell().view().maximised = "overview";
  const std::string overview = desktop.words();
  CHECK(overview.find("Bound by the pipeline") != std::string::npos);
  CHECK(overview.find("Bound by the network") == std::string::npos);
  desktop.shell().view().maximised = "pipeline";
  desktop.settle();
  const double of_pipeline = share_behind(desktop.words(), "Bubble");
  CHECK(of_pipeline > 25);
  CHECK(share_behind(overview, "bubble") == of_pipeline);
}

TEST_CASE("Inference of a run without a KV cache shows no share above 100 % and no count below 0") {
  sim::Scenario s = tests::small_scenario();
  s.model = sim::load_model_preset("llama-3.1-8b");
  s.workload.task = sim::Task::generate;
  s.workload.dtype = sim::DType::bf16;
  s.workload.batch_size = 16;
  s.workload.kv_cache = false;
  NullDesktop desktop(s);
  desktop.shell().view().maximised = "inference";
  desktop.settle_studies();
  const std::string words = desktop.words();
  CHECK(words.find("-9,223") == std::string::npos);
  CHECK(words.find("Cache of a token 0 B") == std::string::npos);
  int shares = 0;
  const std::regex share("([0-9,.]+) % of the (peak|bandwidth)");
  for (std::sregex_iterator at(words.begin(), words.end(), share), end; at != end; ++at, ++shares)
    CHECK(std::stod((*at)[1]) <= 100);
  CHECK(shares > 0);
}

TEST_CASE("at twice the type tiles keep the units of their numbers") {
  Settings settings;
  settings.scale = 2;
  const ImVec2 size = GENERATE(ImVec2(1920, 1080), ImVec2(2560, 1440));
  NullDesktop desktop(tests::small_scenario(), size, settings);
  desktop.settle();
  desktop.shell().view().maximised = "overview";
  const std::string words = desktop.words();
  CHECK(words.find("tokens/s") != std::string::npos);
  CHECK(words.find("GiB") != std::string::npos);
  CHECK(words.find("ms") != std::string::npos);
}

TEST_CASE(
    "MFU passes HFU by no convention that counts what is executed, and where it does Explain says why") {
  NullDesktop desktop;
  desktop.settle();
  desktop.shell().view().selection.quantity = Quantity::utilization;
  desktop.shell().view().maximised = "explain";
  const sim::Report report = sim::predict(tests::small_scenario());
  int passes = 0;
  for (int c = 0; c < sim::kFlopsConventions; ++c) {
    const auto convention = static_cast<sim::FlopsConvention>(c);
    CAPTURE(sim::name(convention));
    desktop.shell().view().convention = convention;
    desktop.frames(2);
    const bool more = sim::mfu(report, convention) > sim::hfu(report);
    if (convention == sim::FlopsConvention::six_n || convention == sim::FlopsConvention::six_n_causal)
      CHECK_FALSE(more);
    CHECK(desktop.says("executed FLOPs do not") == more);
    passes += more;
  }
  CHECK(passes > 0);
}

TEST_CASE(
    "Inference prices the scenario's own software where it serves, and names another where it does not") {
  sim::Scenario s = tests::small_scenario();
  s.model = sim::load_model_preset("llama-3.1-8b");
  s.workload.task = sim::Task::generate;
  s.implementation = sim::load_implementation_preset("vllm_0.14");
  CHECK(engine_of(s, "") == "vllm_0.14");
  CHECK(engine_of(s, "sglang") == "vllm_0.14");
  s.implementation = sim::load_implementation_preset("ridgepoint");
  const std::string usual = engine_of(s, "");
  CHECK(usual != "ridgepoint");
  NullDesktop desktop(s);
  desktop.shell().view().maximised = "inference";
  desktop.settle_studies();
  CHECK(desktop.says(usual));
}
