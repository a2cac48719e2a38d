// What software adds to a plan: laws that hold whatever its figures are.
#include <vector>

#include "sim/cost/execution.h"
#include "sim/cost/predict.h"
#include "sim/plan/schedule.h"
#include "sim/scenario/preset.h"
#include "sim/validate/calibrated_device.h"
#include "tests/support/catch.h"

using sim::ActionTime;
using sim::Seconds;
using sim::us;

namespace {

// One stream of actions without operations: execute() asks for nothing else.
sim::Plan chain(std::size_t actions) {
  sim::Plan plan;
  plan.blocks.push_back({"block", {}});
  sim::Program program;
  program.actions.resize(actions);
  plan.programs.push_back(program);
  return plan;
}

ActionTime kernel(Seconds device, Seconds host) {
  return {device, {.launches = host, .ahead = host + device}, {}};
}

sim::Scenario step(const std::string& implementation) {
  sim::Scenario s;
  s.model = sim::load_model_preset("llama-3.2-1b");
  s.hardware = sim::load_hardware_preset("h100-sxm");
  s.implementation = sim::load_implementation_preset(implementation);
  s.strategy.data_parallel = 8;
  s.workload.seq_len = 2048;
  s.workload.global_batch_size = 32;
  return s;
}

double seconds(const sim::Scenario& s) {
  const sim::CalibratedDevice& device = sim::calibrated_device("h100-sxm");
  return sim::predict_step(sim::make_plan(s), s.hardware, &device.calibration).seconds.value;
}

}  // namespace

TEST_CASE("the slower of host and device sets the pace of a stream of kernels") {
  const sim::Plan plan = chain(100);
  const auto duration = [&](Seconds device, Seconds host) {
    return sim::execute(plan, {std::vector<ActionTime>(100, kernel(device, host))}).duration.value;
  };
  // The first launch, then the device; or the launches, then the last kernel.
  CHECK(duration(us(10), us(4)) == Approx(4e-6 + 100 * 10e-6));
  CHECK(duration(us(4), us(10)) == Approx(100 * 10e-6 + 4e-6));
  CHECK(duration(us(10), us(0)) == Approx(100 * 10e-6));
}

TEST_CASE("a host that waits for the device cannot run ahead of it") {
  const sim::Plan plan = chain(2);
  std::vector<ActionTime> times(2, kernel(us(100), us(10)));
  const double ahead = sim::execute(plan, {times}).duration.value;
  times[1].work.waits = true;
  const double waiting = sim::execute(plan, {times}).duration.value;
  CHECK(ahead == Approx(10e-6 + 200e-6));
  CHECK(waiting == Approx(ahead + 10e-6));  // the second launch is exposed
}

TEST_CASE("compute beside a collective takes longer by the slowdown, and only while it runs") {
  sim::Plan plan = chain(2);
  plan.programs[0].actions[0].stream = sim::kCollectiveStream;
  const std::vector<ActionTime> times{{us(119), {}, {}}, {us(200), {}, {}}};
  const auto duration = [&](double slowdown) {
    return sim::execute(plan, {times}, false, {slowdown}).duration.value;
  };
  CHECK(duration(1) == Approx(200e-6));
  CHECK(duration(1.19) == Approx(119e-6 + 100e-6));
}

TEST_CASE("layers are dealt out with the head counted as nanotron does") {
  // 16 layers and a head of 4: shares of 5; each piece ends with the layer that exceeds its share.
  std::vector<int> layers;
  for (std::int32_t p = 0; p < 4; ++p) {
    const sim::LayerRange r = sim::layers_of(p, 4, 16, 4.0);
    layers.push_back(r.last - r.first);
  }
  CHECK(layers == std::vector<int>{6, 5, 5, 0});
  CHECK(sim::layers_of(0, 2, 16, 4.0).last == 11);
}

TEST_CASE("software that does more takes longer") {
  sim::Scenario s = step("torchtitan_2024_compile");
  const double compiled = seconds(s);
  s.implementation = sim::load_implementation_preset("torchtitan_2024_eager");
  CHECK(seconds(s) > compiled);

  s = step("nanotron_2025");
  const double as_it_is = seconds(s);
  auto& i = s.implementation;
  SECTION("less traffic") {
    i.kernels.traffic.clear();
    CHECK(seconds(s) < as_it_is);
  }
  SECTION("a cheaper loss") {
    i.kernels.loss_bytes_per_logit = 8;
    CHECK(seconds(s) < as_it_is);
  }
  SECTION("products that accumulate") {
    i.kernels.accumulation_bytes_per_parameter = 0;
    CHECK(seconds(s) < as_it_is);
  }
  SECTION("a quicker host, where the device is not busy") {
    s.model.num_hidden_layers = 64;
    s.model.hidden_size = 256;
    s.model.intermediate_size = 512;
    const double slow = seconds(s);
    i.host.launch = us(5);
    CHECK(seconds(s) < slow);
  }
}

TEST_CASE("reductions beside backward take no longer than after it") {
  sim::Scenario s = step("llmc");
  const double beside = seconds(s);
  s.implementation.data_parallel.overlaps_reduction = false;
  CHECK(seconds(s) >= beside);
}

TEST_CASE("implementations read back as they were written, profiles and all") {
  for (const std::string& name : sim::preset_names(sim::PresetKind::implementation)) {
    sim::Scenario s = step("ridgepoint");
    s.implementation = sim::load_implementation_preset(name);
    CHECK(sim::scenario_from_json(sim::to_json(s), "scenario.json") == s);
  }
}
