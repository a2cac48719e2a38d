// What software adds to a plan: laws that hold whatever its figures are.
#include <algorithm>
#include <map>
#include <string>
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
  const sim::Calibration& device = sim::calibrated_device("h100-sxm");
  return sim::predict_step(sim::make_plan(s), s.hardware, &device).seconds.value;
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

namespace {

// How many stalls longer a step takes on a network that stalls.
double stalls_of_step(int stages, std::int64_t micro_batches, int devices = 32) {
  sim::Scenario s = step("nanotron_2025");
  s.model = sim::load_model_preset("llama-style-1b");
  s.strategy.pipeline_parallel = stages;
  s.strategy.data_parallel = devices / stages;
  s.workload.global_batch_size = micro_batches * s.strategy.data_parallel;
  s.hardware.device_spread = 0;    // who waits for the slowest waits for its stalls, too
  constexpr double kStall = 1000;  // beside which nothing else counts
  s.implementation.pipeline.stall = Seconds{kStall};
  const double without = seconds(s);
  s.implementation.pipeline.stalls = true;
  return (seconds(s) - without) / kStall;
}

}  // namespace

TEST_CASE("a stall holds both ends of a transfer at once: once a hop, and each transfer of a stage in turn") {
  // With one micro-batch every stage waits for the one before, forward and back.
  for (const int stages : {2, 4, 8}) CHECK(stalls_of_step(stages, 1) == Approx(2 * (stages - 1)).margin(0.1));
  // Each further micro-batch passes an end by two transfers, a stage between two others by four.
  const auto further = [](int stages) { return stalls_of_step(stages, 17) - stalls_of_step(stages, 16); };
  CHECK(further(2) == Approx(2).margin(0.1));
  CHECK(further(4) == Approx(4).margin(0.1));
}

TEST_CASE("inside a node no transfer stalls, and no preset stalls by itself") {
  CHECK(stalls_of_step(2, 4, 8) == Approx(0).margin(1e-9));
  for (const std::string& name : sim::preset_names(sim::PresetKind::implementation)) {
    INFO(name);
    CHECK_FALSE(sim::load_implementation_preset(name).pipeline.stalls);
  }
}

namespace {

// On 32 devices in nodes of eight, host time that one more layer adds to one more micro-batch.
double delays_of_layer(int tensor, bool stalls) {
  sim::Scenario s = step("nanotron_2025");
  s.strategy.tensor_parallel = tensor;
  s.strategy.data_parallel = 32 / tensor;
  s.strategy.sequence_parallel = true;
  s.hardware.device_spread = 0;
  s.implementation.host.collective_rank = Seconds{1000};  // beside which nothing else counts
  s.implementation.pipeline.stalls = stalls;
  const auto of = [&](int layers, int micro_batches) {
    s.model.num_hidden_layers = layers;
    s.workload.global_batch_size = micro_batches * s.strategy.data_parallel;
    return seconds(s);
  };
  return of(3, 3) - of(2, 3) - of(3, 2) + of(2, 2);
}

}  // namespace

TEST_CASE("on nodes whose network stalls collectives of tensor parallelism wait for each other rank") {
  // A layer has four collectives in its forward pass, as many in its backward pass, and gathers two inputs
  // again.
  for (const int tensor : {8, 16}) {
    CHECK(delays_of_layer(tensor, true) == Approx(10 * (tensor - 1) * 1000).epsilon(1e-3));
    CHECK(delays_of_layer(tensor, false) < 1);
  }
}

TEST_CASE("inputs that are kept as they were gathered are neither moved nor launched again") {
  sim::Scenario s = step("nanotron_2025");
  s.strategy.tensor_parallel = 8;
  s.strategy.data_parallel = 1;
  s.strategy.sequence_parallel = true;
  const auto moved = [&] {
    double bytes = 0;
    for (const sim::Row& row : sim::predict(sim::make_plan(s), s.hardware).rows)
      if (row.id.find("all_gather.backward") != std::string::npos)
        bytes += static_cast<double>(row.network.value);
    return bytes;
  };
  const double again = moved(), slow = seconds(s);
  s.implementation.tensor_parallel.gathers_again = false;
  // Two gradients and two inputs of each layer, one of the head.
  const double layers = static_cast<double>(s.model.num_hidden_layers);
  CHECK(moved() / again == Approx((2 * layers) / (4 * layers + 1)).epsilon(0.05));
  CHECK(seconds(s) < slow);
}

TEST_CASE("of updated parameters each rank's part of each tensor is copied, and nothing else grows with it") {
  sim::Scenario s = step("nanotron_2025");
  s.hardware.device_spread = 0;
  const auto of_ranks = [&](int ranks, double copy) {
    s.strategy.data_parallel = ranks;
    s.strategy.zero_stage = 1;
    s.workload.global_batch_size = ranks;
    s.implementation.data_parallel.gather_part = Seconds{copy};
    return seconds(s);
  };
  // A layer has four matrices, those of one input joined, and two norms; then embedding, which is tied, and
  // the last norm.
  const double tensors = 6 * 16 + 2;
  CHECK(of_ranks(8, 1) - of_ranks(8, 0) == Approx(8 * tensors).epsilon(1e-3));
  CHECK(of_ranks(32, 1) - of_ranks(32, 0) == Approx(32 * tensors).epsilon(1e-3));
}

TEST_CASE("where a stack's libraries are slower its products and attention are, and nothing else") {
  sim::Scenario s = step("nanotron_2025");
  const auto rows = [&](double slower) {
    s.implementation.kernels.slower = slower;
    return sim::predict(sim::make_plan(s), s.hardware).rows;
  };
  const std::vector<sim::Row> as_timed = rows(1), slow = rows(2);
  for (std::size_t i = 0; i < slow.size(); ++i) {
    INFO(slow[i].id);
    const bool product = slow[i].kind == sim::OpKind::matmul || slow[i].kind == sim::OpKind::attention_flash;
    const bool norm = slow[i].kind == sim::OpKind::rmsnorm || slow[i].kind == sim::OpKind::all_reduce;
    const double ratio = slow[i].duration.value / as_timed[i].duration.value;
    if (product) CHECK(ratio > 1.7);  // clocks give way less
    if (norm) CHECK(ratio == Approx(1));
  }
}

TEST_CASE("a profile's factors of times make operations of their kinds as much longer, and nothing else") {
  // FlashAttention in Triton: Dao 2023 (arXiv 2307.08691), section 4.1, 1.3 to 1.5 times and about twice.
  const auto factors = sim::load_implementation_preset("llm_foundry_2024").kernels.times;
  CHECK(factors == std::map<std::string, double>{{"attention_flash", 1.4}, {"attention_flash_backward", 2}});
  sim::Scenario s = step("ideal");
  s.implementation.kernels.slower = 1;  // kernels as they were timed
  s.hardware.sustained_clock = 1;       // clocks follow how busy a kernel keeps the chip
  const auto rows = [&] { return sim::predict(sim::make_plan(s), s.hardware).rows; };
  const std::vector<sim::Row> as_timed = rows();
  s.implementation.kernels.times = factors;
  const std::vector<sim::Row> slower = rows();
  REQUIRE(slower.size() == as_timed.size());
  for (std::size_t i = 0; i < slower.size(); ++i) {
    const double factor = slower[i].id == "layer.attention.flash.forward"    ? 1.4
                          : slower[i].id == "layer.attention.flash.backward" ? 2
                                                                             : 1;
    INFO(slower[i].id);
    CHECK(slower[i].duration.value == Approx(factor * as_timed[i].duration.value).epsilon(0.02));
  }
}

TEST_CASE("implementations read back as they were written, profiles and all") {
  for (const std::string& name : sim::preset_names(sim::PresetKind::implementation)) {
    sim::Scenario s = step("ridgepoint");
    s.implementation = sim::load_implementation_preset(name);
    CHECK(sim::scenario_from_json(sim::to_json(s), "scenario.json") == s);
  }
}
