// What PyTorch's stacks do beside the mathematics of a layer.
#include <algorithm>
#include <string>
#include <vector>

#include "sim/cost/side_passes.h"
#include "sim/plan/plan.h"
#include "tests/sim/check_plan.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

namespace {

sim::Scenario checkpointed(const sim::Model& model) {
  sim::Scenario s = test::training(model, 1024);
  s.strategy.recompute = sim::Recompute::full;
  return s;
}

std::vector<std::string> ids_of(const sim::Plan& plan, const std::string& block) {
  std::vector<std::string> ids;
  for (const sim::Block& b : plan.blocks)
    if (b.name == block)
      for (const sim::Operation& op : b.operations) ids.push_back(op.id);
  return ids;
}

const sim::Operation& operation(const sim::Plan& plan, const std::string& id) {
  for (const sim::Block& b : plan.blocks)
    for (const sim::Operation& op : b.operations)
      if (op.id == id) return op;
  throw std::runtime_error("no operation " + id);
}

bool has(const std::vector<std::string>& ids, const std::string& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

TEST_CASE("Recompute that stops early leaves the last projection out and nothing else of the layer") {
  sim::Scenario s = checkpointed(test::gpt2_124m());
  const std::vector<std::string> all = ids_of(sim::make_plan(s), "layer.recompute");
  s.implementation.recompute_stops_early = true;
  const sim::Plan plan = sim::make_plan(s);
  CHECK(sim::check(plan).empty());
  const std::vector<std::string> early = ids_of(plan, "layer.recompute");
  for (const std::string& id : all) CHECK(has(early, id) == (id.rfind("layer.mlp.down", 0) != 0));
}

TEST_CASE("fp8 training computes attention and the head in 16 bits") {
  sim::Scenario s = checkpointed(test::llama_8b());
  s.workload.dtype = sim::DType::fp8;
  const sim::Plan plan = sim::make_plan(s);
  CHECK(operation(plan, "layer.mlp.down.forward").dtype == sim::DType::fp8);
  CHECK(operation(plan, "layer.mlp.down.backward_weight").dtype == sim::DType::fp8);
  CHECK(operation(plan, "layer.attention.flash.forward").dtype == sim::DType::bf16);
  CHECK(operation(plan, "layer.attention.flash.backward").dtype == sim::DType::bf16);
  CHECK(operation(plan, "head.logits.forward").dtype == sim::DType::bf16);
  CHECK(operation(plan, "head.logits.backward_weight").dtype == sim::DType::bf16);
}

TEST_CASE("Quantisation passes over a product's input and weight, and over its incoming gradient once") {
  sim::Scenario s = checkpointed(test::llama_8b());
  s.workload.dtype = sim::DType::fp8;
  s.implementation.kernels.quantisation = {.input_bytes = 4, .weight_bytes = 3, .gradient_bytes = 5};
  const sim::Plan plan = sim::make_plan(s);
  const sim::Variables v{.batch = 1, .query_length = 1024, .kv_length = 1024};
  const double rows = 1024, hidden = 4096, inner = 14336;
  CHECK(sim::side_bytes(plan, operation(plan, "layer.mlp.down.forward"), v) ==
        4 * rows * inner + 3 * hidden * inner);
  CHECK(sim::side_bytes(plan, operation(plan, "layer.mlp.down.backward_input"), v) == 5 * rows * hidden);
  CHECK(sim::side_bytes(plan, operation(plan, "layer.mlp.down.backward_weight"), v) == 0);
  CHECK(sim::side_bytes(plan, operation(plan, "head.logits.forward"), v) == 0);
}

TEST_CASE("Sums of bias gradients are priced where a model has biases") {
  const std::string id = "layer.mlp.up.backward_weight", gate_up = "layer.mlp.gate_up.backward_weight";
  sim::Scenario with = checkpointed(test::gpt2_124m()), without = checkpointed(test::llama_8b());
  with.implementation.kernels.side_passes =
      without.implementation.kernels.side_passes = {{id, 1}, {gate_up, 1}};
  const sim::Variables v{.batch = 1, .query_length = 1024, .kv_length = 1024};
  const sim::Plan gpt = sim::make_plan(with), llama = sim::make_plan(without);
  const double bytes_of_element = 2;
  CHECK(sim::side_bytes(gpt, operation(gpt, id), v) == bytes_of_element * 1024 * 4 * 768);
  CHECK(sim::side_bytes(llama, operation(llama, gate_up), v) == 0);
}

TEST_CASE(
    "A policy that keeps every second product repeats keys, the output projection and half of gate and up") {
  sim::Scenario s = test::training(test::llama_8b(), 1024);
  s.strategy.recompute = sim::Recompute::operations;
  s.strategy.recompute_operations = {"norm", "qkv", "attention_output", "mlp_up", "activation"};
  s.implementation.selective_by_operation = true;
  const sim::Plan plan = sim::make_plan(s);
  const auto share = [&](const std::string& id) { return sim::recomputed_share(plan, operation(plan, id)); };
  CHECK(share("layer.attention.qkv.forward") == Approx(8.0 / (32 + 2 * 8)));
  CHECK(share("layer.attention.output.forward") == 1);
  CHECK(share("layer.mlp.gate_up.forward") == 0.5);
  CHECK(!has(ids_of(plan, "layer.recompute"), "layer.attention.flash.forward"));
  CHECK(!has(ids_of(plan, "layer.recompute"), "layer.mlp.down.forward"));
}
