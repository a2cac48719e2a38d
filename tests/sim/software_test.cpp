// What software adds to a plan: laws that hold whatever its figures are.
#include <algorithm>
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

namespace {

// How many stalls longer a step takes where stalls are the rule from so many ranks on.
double stalls_of_step(int stages, int tensor, std::int64_t micro_batches, int devices = 32,
                      int from_ranks = 32) {
  sim::Scenario s = step("nanotron_2025");
  s.model = sim::load_model_preset("llama-style-1b");
  s.strategy.pipeline_parallel = stages;
  s.strategy.tensor_parallel = tensor;
  s.strategy.data_parallel = devices / stages / tensor;
  s.workload.global_batch_size = micro_batches * s.strategy.data_parallel;
  s.hardware.device_spread = 0;  // who waits for the slowest waits for its stalls, too
  s.implementation.pipeline.stalls_from_ranks = from_ranks;
  s.implementation.pipeline.stall = {};
  const double without = seconds(s);
  constexpr double kStall = 1000;  // beside which nothing else counts
  s.implementation.pipeline.stall = Seconds{kStall};
  return (seconds(s) - without) / kStall;
}

}  // namespace

TEST_CASE("a stall holds both ends of a transfer at once: once a hop, and each transfer of a stage in turn") {
  // Of one micro-batch every stage waits for the one before, forward and back.
  for (const int stages : {2, 4, 8})
    CHECK(stalls_of_step(stages, 1, 1) == Approx(2 * (stages - 1)).margin(0.1));
  // Each further micro-batch passes an end by two transfers, a stage between two others by four.
  const auto further = [](int stages) {
    return stalls_of_step(stages, 1, 17) - stalls_of_step(stages, 1, 16);
  };
  CHECK(further(2) == Approx(2).margin(0.1));
  CHECK(further(4) == Approx(4).margin(0.1));
}

TEST_CASE("transfers of fewer ranks stall where tensor parallel groups lie on four nodes") {
  CHECK(stalls_of_step(2, 32, 1, 64, 512) == Approx(2).margin(0.1));
  CHECK(stalls_of_step(2, 16, 1, 64, 512) == Approx(0).margin(0.1));
  CHECK(stalls_of_step(2, 32, 1, 64, 0) == Approx(0).margin(0.1));
}

TEST_CASE(
    "a step without stages whose collectives keep their pace loses two stalls, before it and before its "
    "update") {
  sim::Scenario s = step("nanotron_2025_gathered");
  s.hardware.device_spread = 0;
  s.strategy.data_parallel = 32;
  s.implementation.pipeline.stalls_from_ranks = 32;
  s.implementation.pipeline.stall = Seconds{1000};
  for (const int micro_batches : {1, 4}) {
    s.workload.global_batch_size = 32 * micro_batches;
    CHECK(seconds(s) == Approx(2000).epsilon(0.01));
  }
}

namespace {

// On 32 devices in nodes of eight, host time that one more layer adds to one more micro-batch.
double delays_of_layer(bool gathers_again, int tensor, int stalls_from_ranks = 0) {
  sim::Scenario s = step("nanotron_2025");
  s.strategy.tensor_parallel = tensor;
  s.strategy.data_parallel = 32 / tensor;
  s.strategy.sequence_parallel = true;
  s.hardware.device_spread = 0;
  s.implementation.tensor_parallel.gathers_again = gathers_again;
  s.implementation.host.collective_rank = Seconds{1000};  // beside which nothing else counts
  s.implementation.host.collective_stall = Seconds{100};
  s.implementation.pipeline.stalls_from_ranks = stalls_from_ranks;
  const auto of = [&](int layers, int micro_batches) {
    s.model.num_hidden_layers = layers;
    s.workload.global_batch_size = micro_batches * s.strategy.data_parallel;
    return seconds(s);
  };
  return of(3, 3) - of(2, 3) - of(3, 2) + of(2, 2);
}

}  // namespace

TEST_CASE("collectives of several nodes wait for each other rank where products gather inputs again") {
  // A layer has four collectives in its forward pass, as many in its backward pass, and gathers two inputs
  // again.
  CHECK(delays_of_layer(true, 16) == Approx(10 * 15 * 1000).epsilon(1e-3));
  CHECK(delays_of_layer(true, 8) < 1);
  CHECK(delays_of_layer(false, 16) < 1);
}

TEST_CASE("where stalls are the rule every collective of a step without stages takes one, in nodes too") {
  CHECK(delays_of_layer(true, 8, 32) == Approx(10 * (7 * 1000 + 100)).epsilon(1e-3));
  CHECK(delays_of_layer(true, 16, 32) == Approx(10 * (15 * 1000 + 100)).epsilon(1e-3));
  CHECK(delays_of_layer(true, 8, 33) < 1);
  CHECK(delays_of_layer(false, 8, 32) < 1);
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

TEST_CASE("gradients that are reduced in one flat message go around the ring once") {
  sim::Scenario s = step("nanotron_2025");
  s.hardware.device_spread = 0;
  s.strategy.data_parallel = 32;
  s.strategy.zero_stage = 1;
  s.implementation.data_parallel.gather_part = {};
  const auto of_steps = [&](bool flat) {
    s.implementation.data_parallel.reduces_flat = flat;
    s.hardware.network_step = {};
    const double without = seconds(s);
    s.hardware.network_step = Seconds{1};
    return seconds(s) - without;
  };
  // Reduced and scattered, then gathered; what is gathered after the update goes around once more.
  constexpr double kRanks = 32;
  CHECK(of_steps(true) == Approx(3 * (kRanks - 1)).epsilon(0.02));
  // Else at least once for each of 16 layers and the embedding.
  CHECK(of_steps(false) > 17 * 2 * (kRanks - 1));
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

TEST_CASE("FlashAttention in Triton takes 1.4 times FlashAttention 2's time forward and twice backward") {
  // Dao 2023 (arXiv 2307.08691), section 4.1: 1.3 to 1.5 times, and about twice.
  sim::Scenario s = step("ideal");
  s.hardware.sustained_clock = 1;  // clocks follow how busy a kernel keeps the chip
  s.workload.seq_len = s.model.max_position_embeddings = 16384;
  const auto time = [&](const char* attention, const std::string& id) {
    s.implementation.kernels.attention = attention;
    const sim::CalibratedDevice& device = sim::calibrated_device("h100-sxm");
    const sim::Report report = sim::predict(sim::make_plan(s), s.hardware, &device.calibration);
    double longest = 0;
    for (const sim::Row& row : report.rows)
      if (row.id == id) longest = std::max(longest, row.duration.value);
    return longest;
  };
  const std::string forward = "layer.attention.flash.forward", backward = "layer.attention.flash.backward";
  CHECK(time("FlashAttnTriton", forward) == Approx(1.4 * time("FlashAttention2", forward)).epsilon(0.02));
  CHECK(time("FlashAttnTriton", backward) == Approx(2 * time("FlashAttention2", backward)).epsilon(0.02));
}

TEST_CASE("implementations read back as they were written, profiles and all") {
  for (const std::string& name : sim::preset_names(sim::PresetKind::implementation)) {
    sim::Scenario s = step("ridgepoint");
    s.implementation = sim::load_implementation_preset(name);
    CHECK(sim::scenario_from_json(sim::to_json(s), "scenario.json") == s);
  }
}
