// Operations of a plan that become one kernel. Of the emulated GPU alone: which of the two ways a real one
// takes is for its own timing to say.
#include <algorithm>
#include <string>
#include <vector>

#include "runtime/cuda_device.h"
#include "runtime/run.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

struct Step {
  runtime::SectionTiming timing;
  std::vector<runtime::RowKey> rows;
  std::vector<float> losses;
};

Step step_of(const sim::Scenario& scenario, bool deterministic) {
  runtime::Run run(
      scenario, runtime::make_cuda_device({.deterministic = deterministic, .scratch = sim::Bytes{1 << 22}}));
  run.fill_parameters(tests::drawn(scenario.model), 1);
  const auto count = static_cast<std::size_t>(scenario.workload.micro_batch_size * scenario.workload.seq_len);
  std::vector<std::int32_t> tokens(count), targets(count);
  for (std::size_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<std::int32_t>(7 * i % 251);
    targets[i] = static_cast<std::int32_t>(5 * i % 251);
  }
  run.write(run.plan().find(sim::buffer_names::tokens), std::span<const std::int32_t>(tokens));
  run.write(run.plan().find(sim::buffer_names::targets), std::span<const std::int32_t>(targets));
  runtime::RunSettings settings;
  settings.adamw = {
      .learning_rate = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0, .step = 1};
  Step step{run.executor().run(0, settings), run.executor().rows(), std::vector<float>(count)};
  run.read(run.plan().find(sim::buffer_names::losses), std::span(step.losses));
  return step;
}

// "recompute gelu into layer.mlp.up.forward" of each row that has no kernel of its own.
std::vector<std::string> fused_rows(const Step& step) {
  std::vector<std::string> all;
  for (std::size_t r = 0; r < step.rows.size(); ++r) {
    const std::size_t into = step.timing.fused_into[r];
    if (into == runtime::SectionTiming::kAlone) continue;
    CHECK(step.timing.duration[r] == 0);
    CHECK(step.timing.count[r] == step.timing.count[into]);
    all.push_back(std::string(sim::name(step.rows[r].phase)) + " " +
                  std::string(sim::name(step.rows[r].kind)) + " into " + step.rows[into].id);
  }
  return all;
}

sim::Scenario training(const sim::Model& model, sim::Recompute recompute) {
  sim::Scenario scenario = tests::training(model, 16, 1, 1);
  scenario.workload.dtype = sim::DType::bf16;
  scenario.strategy.recompute = recompute;
  scenario.hardware.peak[sim::DType::bf16] = sim::tflops(0.1);
  return scenario;
}

}  // namespace

TEST_CASE("GELU and its gradient are the epilogues of the products before them, and their rows say so",
          "[plan]") {
  const Step step = step_of(training(tests::small_gpt(), sim::Recompute::none), false);
  CHECK(fused_rows(step) ==
        std::vector<std::string>{"forward gelu into layer.mlp.up.forward",
                                 "backward gelu_backward into layer.mlp.down.backward_input"});
  // The same numbers but for a rounding before GELU.
  const Step apart = step_of(training(tests::small_gpt(), sim::Recompute::none), true);
  CHECK(fused_rows(apart) ==
        std::vector<std::string>{"backward gelu_backward into layer.mlp.down.backward_input"});
  for (std::size_t i = 0; i < step.losses.size(); ++i)
    CHECK(step.losses[i] == Approx(apart.losses[i]).epsilon(0x1p-7));
  CHECK(fused_rows(step_of(training(tests::small_llama(), sim::Recompute::none), false)).empty());
}

TEST_CASE("GELU is an operation of its own where it is recomputed without its product", "[plan]") {
  sim::Scenario scenario = training(tests::small_gpt(), sim::Recompute::operations);
  scenario.strategy.recompute_operations = {"activation"};
  const Step again = step_of(scenario, false),
             none = step_of(training(tests::small_gpt(), sim::Recompute::none), true);
  CHECK(fused_rows(again) ==
        std::vector<std::string>{"backward gelu_backward into layer.mlp.down.backward_input"});
  CHECK(again.losses == none.losses);
}

// With nothing kept, GELU's result may lie where its product's operands were: then both stay apart, in the
// forward pass and where it is repeated.
TEST_CASE("operations whose memory overlaps are not fused, and a fused step with full recompute is right",
          "[plan]") {
  const Step full = step_of(training(tests::small_gpt(), sim::Recompute::full), false),
             none = step_of(training(tests::small_gpt(), sim::Recompute::none), true);
  for (std::size_t i = 0; i < none.losses.size(); ++i)
    CHECK(full.losses[i] == Approx(none.losses[i]).epsilon(0x1p-7));
  const std::vector<std::string> fused = fused_rows(full);
  const auto has = [&fused](const std::string& row) {
    return std::find(fused.begin(), fused.end(), row) != fused.end();
  };
  CHECK(has("forward gelu into layer.mlp.up.forward") == has("recompute gelu into layer.mlp.up.forward"));
}
