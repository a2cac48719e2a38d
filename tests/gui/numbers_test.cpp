// Numbers on screen: what they are of stands beside them, and those that belong together agree.
#include <algorithm>

#include "app/gui/panels/economics.h"
#include "sim/cost/predict.h"
#include "sim/format.h"
#include "sim/report/metrics.h"
#include "tests/gui/null_desktop.h"
#include "tests/support/catch.h"
#include "tests/support/changed_fields.h"

using namespace app::gui;

namespace {

sim::Scenario eight_gpus() {
  sim::Scenario s = sim::load_scenario_preset("train-llama-3.1-8b-h100");
  s.strategy = {};
  s.strategy.data_parallel = s.strategy.tensor_parallel = s.strategy.pipeline_parallel = 2;
  s.workload.seq_len = 8192;
  s.workload.micro_batch_size = 1;
  s.workload.global_batch_size = 16;
  return s;
}

Prediction predicted(const sim::Scenario& s) {
  return make_prediction(s, nullptr, [] { return false; });
}

}  // namespace

TEST_CASE("the FLOPs beside a step's tokens are of the whole step, those of one device are called that") {
  const sim::Scenario s = eight_gpus();
  const sim::Flops step = sim::executed_flops(sim::predict(s));
  tests::NullDesktop desktop(s);
  const std::string overview = desktop.words();
  CHECK_THAT(overview, contains("131,072 tokens a step"));
  CHECK_THAT(overview, contains(sim::format(step) + " a step"));
  desktop.shell().view().selection.quantity = Quantity::parameters;
  const std::string explained = desktop.words();
  CHECK_THAT(explained, contains("FLOPs a step, all 8 devices " + sim::format(step)));
  CHECK_THAT(explained, contains("FLOPs a step, one device " + sim::format(sim::Flops{step.value / 8})));
}

TEST_CASE("an advice changes the field that it names and no other") {
  sim::Scenario train = eight_gpus(), generate = tests::small_scenario();
  generate.workload.task = sim::Task::generate;
  sim::Scenario largest = train;  // whose micro-batch cannot be doubled
  largest.workload.micro_batch_size = 8;
  for (const sim::Scenario& s : {train, largest, generate, tests::small_scenario()}) {
    const Prediction prediction = predicted(s);
    CHECK(prediction.alternatives.size() >= 2);
    for (const Alternative& other : prediction.alternatives) {
      INFO(other.label);
      CHECK(test::changed_fields(s, other.scenario) == std::set<std::string>{other.field});
    }
  }
  const auto advises = [](const sim::Scenario& s, const std::string& label) {
    const Prediction p = predicted(s);
    return std::any_of(p.alternatives.begin(), p.alternatives.end(),
                       [&](const Alternative& other) { return other.label == label; });
  };
  CHECK(advises(train, "micro-batch 2"));
  CHECK(advises(largest, "micro-batch 4"));
}

TEST_CASE("a published model that one device cannot hold is named with the devices that it is priced on") {
  tests::NullDesktop desktop(sim::load_scenario_preset("train-llama-3.1-8b-h100"), {1920, 1200});
  desktop.shell().commands().invoke("maximise.economics");
  desktop.settle_studies();
  const EconomicsStudy& study = *desktop.state<EconomicsState>().study.result();
  const std::string words = desktop.words();
  CHECK_THAT(words, contains("on one h100-sxm or as named"));
  int several = 0;
  for (const PublishedThroughput& t : study.throughput) {
    const sim::PublishedModel& model = study.published[t.model];
    if (t.bf16.devices == 1 || !(t.bf16.tokens_per_second > 0)) continue;
    if (!model.quality(sim::QualityMeasure::commonsense)) continue;
    INFO(model.name);
    CHECK_THAT(words, contains(model.name + ", " + sim::format_count(t.bf16.devices) + " devices"));
    ++several;
  }
  CHECK(several > 0);
}
