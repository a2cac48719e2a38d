// What stacks keep, against closed forms and measurements that were published of them.
#include "sim/scenario/memory_profile.h"

#include <set>
#include <sstream>
#include <string>

#include "sim/advise/fit.h"
#include "sim/plan/device_memory.h"
#include "sim/plan/legality.h"
#include "sim/report/memory_report.h"
#include "sim/scenario/preset.h"
#include "tests/sim/check_plan.h"
#include "tests/sim/kept_for_backward.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"
#include "tests/support/changed_fields.h"

namespace {

using namespace sim;

// Bytes a token that a layer keeps for its backward pass; norms' statistics are no part of closed forms.
double kept_per_token(const Scenario& s) {
  const Plan plan = make_plan(s);
  REQUIRE(check(plan).empty());
  std::int64_t bytes = 0;
  for (const LiveBuffer& b : kept_for_backward(plan, 0)) {
    const std::string& name = plan.buffers[static_cast<std::size_t>(b.buffer)].name;
    if (!name.ends_with(".mean") && !name.ends_with(".rstd")) bytes += b.bytes.value;
  }
  return static_cast<double>(bytes) / static_cast<double>(s.workload.micro_batch_size * s.workload.seq_len);
}

Scenario with(const char* implementation, Model model, std::int64_t micro_batch = 1) {
  Scenario s = test::training(std::move(model), 1024, micro_batch, micro_batch);
  s.implementation = load_implementation_preset(implementation);
  return s;
}

TEST_CASE("a layer of Llama-3 8B keeps 139,392 bytes a token where all is fused (peers' closed form)") {
  CHECK(kept_per_token(with("ideal", test::llama_8b())) == 139392);
}

TEST_CASE("nanotron keeps 8h + 4q + 4g + 8f + 4a, and 4g more where the query is a view of a packed copy") {
  const double h = 4096, f = 14336, a = 32, g = 1024;
  CHECK(kept_per_token(with("nanotron_2025", test::llama_8b())) == 8 * h + 4 * h + 4 * g + 8 * f + 4 * a);
  const Model multi_head = test::llama(4096, 14336, 32, 32, 32, 131072);
  CHECK(kept_per_token(with("nanotron_2025", multi_head)) == 16 * h + 8 * f + 4 * a + 4 * h);
}

TEST_CASE("Hugging Face's eager Llama-3 8B keeps 56 h bytes a token and layer, as measured") {
  CHECK(kept_per_token(with("hf_fsdp", test::llama_8b())) == Approx(56 * 4096).epsilon(0.001));
}

TEST_CASE("llm.c keeps 24 h with GELU made again, llm-foundry's MPT block 32 h") {
  const Model gpt = test::gpt(2048, 24, 16, 50304, 2048);
  CHECK(kept_per_token(with("llmc", gpt)) == Approx(24 * 2048).epsilon(0.001));
  CHECK(kept_per_token(with("llm_foundry_2024", gpt)) == Approx(32 * 2048 + 4 * 16).epsilon(0.001));
}

TEST_CASE("torchtitan's selective recompute keeps 4h + 4q + 2g + 2f + 4a: 15.5 h of Llama-3 8B") {
  Scenario s = with("torchtitan_2024_compile", test::llama_8b());
  s.strategy.recompute = Recompute::selective;
  CHECK(kept_per_token(s) == Approx(15.5 * 4096).epsilon(0.005));
}

TEST_CASE("tensor and sequence parallelism divide what is kept beside the operations, too") {
  Scenario s = with("nanotron_2025", test::llama(4096, 14336, 32, 32, 32, 131072));
  const double whole = kept_per_token(s);
  s.strategy.tensor_parallel = 4;
  s.strategy.sequence_parallel = true;
  CHECK(kept_per_token(s) == Approx(whole / 4));
}

Bytes line(const StepMemory& step, std::string_view category) {
  for (const MemoryLine& l : step.ledger)
    if (l.category == category) return l.bytes;
  return {};
}

TEST_CASE("in the first step moments are missing until the optimizer makes them: its peak is lower") {
  const Plan plan = make_plan(with("pytorch_eager", test::llama(2048, 8192, 16, 32, 8, 128256)));
  const MemoryReport report = memory_report(plan, fullest_program(plan));
  CHECK(report.first.peak < report.later.peak);
  CHECK(line(report.first, "optimizer") < line(report.later, "optimizer"));
  CHECK(report.first.timeline.front().bytes[static_cast<std::size_t>(BufferClass::gradient)].value == 0);
  // Both end with all states.
  const auto optimizer = static_cast<std::size_t>(BufferClass::optimizer);
  CHECK(report.first.timeline.back().bytes[optimizer] == report.later.timeline.back().bytes[optimizer]);
}

TEST_CASE("the ledger adds up to what the device holds, and the tensors at the peak to what is live") {
  for (const char* implementation : {"ridgepoint", "nanotron_2025", "pytorch_eager"}) {
    const Plan plan = make_plan(with(implementation, test::llama(1024, 4096, 4, 16, 16, 32000), 2));
    const MemoryReport report = memory_report(plan, fullest_program(plan));
    const MemoryPlan memory = plan_memory(plan, report.later.program, Addresses::none);
    CHECK(report.later.peak == device_memory(plan, memory).total());
    Bytes live;
    for (const PeakTensor& t : report.later.at_peak) live += t.bytes;
    CHECK(live == memory.live_peak);
  }
}

// PyTorch's profile of Llama-3.2 1B in fp32 by Hugging Face's implementation: HF's Ultra-Scale Playbook,
// 9,216 tokens (4.403 GiB of fp32 logits), peaks 45.85 GiB in the first step and 59.49 GiB later.
TEST_CASE("the first steps of Llama-3.2 1B: parameters, moments and peaks of the playbook's profile") {
  Scenario s = test::training(test::llama(2048, 8192, 16, 32, 8, 128256), 1024, 9, 9, DType::fp32);
  s.model.tie_word_embeddings = true;
  s.implementation = load_implementation_preset("hf_fsdp");
  s.implementation.memory.tensors = {{.name = "logits_shifted",
                                      .from = "head.logits.forward",
                                      .to = "head.logits.forward",
                                      .vocabulary = 8}};
  const Plan plan = make_plan(s);
  const MemoryReport report = memory_report(plan, fullest_program(plan));
  const auto gib = [](Bytes b) { return static_cast<double>(b.value) / kGiB; };
  const auto at = [](const MemoryPoint& p, BufferClass c) { return p.bytes[static_cast<std::size_t>(c)]; };
  CHECK(gib(at(report.first.timeline.front(), BufferClass::parameter)) == Approx(4.604).epsilon(0.001));
  // The gradient's norm alone.
  CHECK(at(report.first.timeline.front(), BufferClass::optimizer).value == kArenaAlignment);
  CHECK(gib(at(report.later.timeline.front(), BufferClass::optimizer)) == Approx(9.2075).epsilon(0.001));
  const auto live_peak = [](const StepMemory& step) {
    Bytes most;
    for (const MemoryPoint& p : step.timeline) most = std::max(most, total(p.bytes));
    return most;
  };
  CHECK(gib(live_peak(report.later)) == Approx(59.49).epsilon(0.03));
  CHECK(gib(live_peak(report.first)) < gib(live_peak(report.later)) - 9);
}

TEST_CASE("changes that make a step fit are legal, lower the peak, and stand in the order of their time") {
  Scenario s = test::training(test::llama_8b(), 8192, 8, 64);
  s.hardware = test::h100();
  s.strategy.data_parallel = 8;
  const std::vector<FitChange> changes = changes_that_fit(s, nullptr);
  REQUIRE(!changes.empty());
  const Plan plan = make_plan(s);
  const Bytes before = device_memory(plan, plan_memory(plan, 0, Addresses::none)).total();
  for (std::size_t i = 0; i < changes.size(); ++i) {
    CHECK(validate(changes[i].scenario).empty());
    CHECK(changes[i].peak < before);
    CHECK(changes[i].fits == (changes[i].peak <= s.hardware.memory));
    if (i > 0 && changes[i].fits) CHECK(changes[i - 1].step <= changes[i].step);
    if (i > 0 && changes[i].fits) CHECK(changes[i - 1].fits);
  }
}

TEST_CASE("a change that makes a step fit names every field that it changes") {
  Scenario s = test::training(test::llama_8b(), 8192, 8, 64);
  s.hardware = test::h100();
  s.strategy.data_parallel = 4;
  s.strategy.tensor_parallel = 2;
  const std::vector<FitChange> changes = changes_that_fit(s, nullptr);
  REQUIRE(changes.size() > 4);
  for (const FitChange& change : changes) {
    INFO(change.change);
    std::istringstream words(change.change);
    std::set<std::string> named;
    for (std::string field, value; words >> field >> value;) named.insert(field);
    CHECK(named == test::changed_fields(s, change.scenario));
  }
}

}  // namespace
