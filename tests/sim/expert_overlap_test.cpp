// Exchanges of experts' tokens: behind what they hide, and in which type they travel.
#include <string>

#include "sim/cost/predict.h"
#include "sim/plan/plan.h"
#include "sim/planner/estimate.h"
#include "sim/scenario/preset.h"
#include "tests/support/catch.h"

namespace {

sim::Scenario in_dualpipe() {
  sim::Scenario s;
  s.model = sim::load_model_preset("deepseek-v2-lite");
  s.hardware = sim::load_hardware_preset("h800-sxm");
  s.implementation = sim::load_implementation_preset("deepseek_2024");
  s.strategy.pipeline_parallel = 4;
  s.strategy.data_parallel = s.strategy.expert_parallel = 16;
  s.strategy.zero_stage = 1;
  s.strategy.schedule = "dualpipe";
  s.workload.task = sim::Task::train;
  s.workload.dtype = sim::DType::fp8;
  s.workload.seq_len = 4096;
  s.workload.global_batch_size = 16 * 16;
  return s;
}

struct Exchanges {
  double seconds = 0, bytes = 0;
};

Exchanges exchanges(const sim::Scenario& s, const std::string& id) {
  Exchanges sum;
  for (const sim::Row& row : sim::predict(sim::make_plan(s), s.hardware, nullptr).rows)
    if (row.id == id) {
      sum.seconds += row.duration.value;
      sum.bytes += static_cast<double>(row.network.value);
    }
  return sum;
}

const std::string kDispatch = "layer.experts.dispatch.all_to_all.forward",
                  kCombine = "layer.experts.combine.all_to_all.forward";

}  // namespace

TEST_CASE("exchanges of experts hide where a schedule pairs passes, and nowhere else") {
  sim::Scenario s = in_dualpipe(), alone = s;
  alone.implementation.expert_parallel.under = 0;
  CHECK(exchanges(s, kCombine).seconds < exchanges(alone, kCombine).seconds);
  CHECK(exchanges(s, kCombine).bytes == exchanges(alone, kCombine).bytes);
  s.strategy.schedule = alone.strategy.schedule = "1f1b";
  CHECK(exchanges(s, kCombine).seconds == exchanges(alone, kCombine).seconds);
}

TEST_CASE("what hides shows as much as the multiprocessors that exchanges keep") {
  sim::Scenario few = in_dualpipe();
  few.strategy.expert_parallel = 8;  // in a node: short enough to hide whole behind compute
  sim::Scenario many = few;
  few.implementation.expert_parallel.multiprocessors = 10;
  many.implementation.expert_parallel.multiprocessors = 40;
  CHECK(exchanges(few, kCombine).seconds < exchanges(many, kCombine).seconds);
}

TEST_CASE("tokens go to experts in fp8 with a scale for 128 elements, and come back as they are summed") {
  sim::Scenario s = in_dualpipe(), wide = s;
  wide.implementation.expert_parallel.dispatches_fp8 = false;
  CHECK(exchanges(s, kDispatch).bytes == Approx(exchanges(wide, kDispatch).bytes * (8 + 32.0 / 128) / 16));
  CHECK(exchanges(s, kCombine).bytes == exchanges(wide, kCombine).bytes);
  s.workload.dtype = wide.workload.dtype = sim::DType::bf16;
  CHECK(exchanges(s, kDispatch).bytes == exchanges(wide, kDispatch).bytes);
}

TEST_CASE("an estimate hides exchanges of experts as a prediction does") {
  sim::Scenario s = in_dualpipe();
  CHECK(sim::estimate(s).step.value ==
        Approx(sim::predict_step(sim::make_plan(s), s.hardware, nullptr).seconds.value).epsilon(0.02));
}
