// Training beside frozen weights in 8 and 4 bits.
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/error.h"
#include "runtime/gguf_model.h"
#include "runtime/run.h"
#include "runtime/train.h"
#include "sim/plan/memory.h"
#include "tests/runtime/llama_file.h"
#include "tests/runtime/reference_device.h"
#include "tests/runtime/short_training.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

constexpr sim::FrozenWeights kStored[] = {sim::FrozenWeights::int8, sim::FrozenWeights::nf4,
                                          sim::FrozenWeights::nf4_double};

sim::Scenario qlora(const sim::Model& model, sim::FrozenWeights stored) {
  sim::Scenario s = tests::training(model);
  s.workload.lora_rank = 4;
  s.workload.lora_targets = {"all"};
  s.workload.frozen_weights = stored;
  return s;
}

runtime::TrainSettings settings_for(const TemporaryFolder& folder, std::int64_t steps) {
  return tests::short_training(folder, steps, 3e-3f, 2);
}

// Weights that are what the run's parameters stand for; adapters are drawn.
runtime::ModelSource as_held_by(runtime::Run& run) {
  runtime::ModelSource source = tests::drawn(run.plan().scenario.model);
  source.load = [&run](std::string_view buffer, std::int32_t layer, std::span<float> out) {
    run.read_values({run.plan().find(buffer), layer}, out);
  };
  return source;
}

// Values of each instance of a class by "name/layer".
std::map<std::string, std::vector<float>> values_of(const runtime::Run& run, sim::BufferClass of) {
  std::map<std::string, std::vector<float>> all;
  for (const runtime::InstanceName& name : run.instances_of(of)) {
    std::vector<float> values(run.elements_of(name));
    run.read_values(name, std::span(values));
    all[run.plan().buffers[static_cast<std::size_t>(name.buffer)].name + "/" + std::to_string(name.layer)] =
        values;
  }
  return all;
}

std::vector<std::byte> bytes_of(runtime::Run& run, sim::BufferId buffer, std::int32_t layer) {
  std::vector<std::byte> bytes(run.executor().instance(buffer, layer).size());
  run.read(buffer, std::span(bytes), layer);
  return bytes;
}

}  // namespace

// What is expanded for a product is rounded to its type, as a parameter that is written in that type is.
TEST_CASE("QLoRA learns bit by bit what LoRA learns beside the weights that its codes stand for") {
  const TemporaryFolder folder;
  const runtime::TrainSettings settings = settings_for(folder, 3);
  const sim::DType dtype = GENERATE(sim::DType::fp32, sim::DType::bf16, sim::DType::fp16);
  for (const sim::Model& model : {tests::small_gpt(), tests::small_llama()})
    for (const sim::FrozenWeights stored : kStored) {
      CAPTURE(model.name, sim::name(dtype), sim::name(stored));
      sim::Scenario s = qlora(model, stored);
      s.workload.dtype = dtype;
      s.hardware.peak[dtype] = sim::tflops(0.1);
      runtime::Run narrow(s, 2), held(s, 2);
      held.fill_parameters(tests::drawn(model), settings.seed);
      s.workload.frozen_weights = sim::FrozenWeights::as_dtype;
      runtime::Run wide(s, 2);
      const sim::Report of_narrow = runtime::train(narrow, tests::drawn(model), settings, {}, {});
      const sim::Report of_wide = runtime::train(wide, as_held_by(held), settings, {}, {});
      for (std::size_t step = 0; step < 3; ++step) {
        CHECK(of_narrow.steps[step].loss == of_wide.steps[step].loss);
        CHECK(of_narrow.steps[step].grad_norm == of_wide.steps[step].grad_norm);
      }
      for (const sim::BufferClass of :
           {sim::BufferClass::gradient, sim::BufferClass::optimizer, sim::BufferClass::parameter}) {
        auto learned = values_of(narrow, of), expected = values_of(wide, of);
        CHECK(!learned.empty());
        CHECK(learned.size() == expected.size());
        if (dtype != sim::DType::fp32 && of == sim::BufferClass::parameter) continue;  // codes stand for fp32
        CHECK(learned == expected);
      }
    }
}

TEST_CASE("Frozen weights keep their codes and scales while adapters learn, in the planned memory") {
  const TemporaryFolder folder;
  for (const sim::FrozenWeights stored : kStored)
    for (const std::int64_t steps : {1, 5}) {
      const sim::Scenario s = qlora(tests::small_llama(), stored);
      CAPTURE(sim::name(stored), steps);
      const runtime::TrainSettings settings = settings_for(folder, steps);
      runtime::Run run(s, 2), before(s, 2);
      before.fill_parameters(tests::drawn(s.model), settings.seed);
      const sim::Report report = runtime::train(run, tests::drawn(s.model), settings, {}, {});
      std::int64_t weights = 0;
      const std::vector<sim::Buffer>& buffers = run.plan().buffers;
      for (const sim::Instance& instance : run.memory().instances) {
        const sim::Buffer& buffer = buffers[static_cast<std::size_t>(instance.buffer)];
        const bool learns = buffer.name.find("_adapter_") != std::string::npos;
        if (buffer.buffer_class != sim::BufferClass::parameter) continue;
        CAPTURE(buffer.name, instance.layer);
        CHECK((bytes_of(run, instance.buffer, instance.layer) ==
               bytes_of(before, instance.buffer, instance.layer)) != learns);
        weights += sim::bits(buffer.dtype) < 16 && buffer.parameter == sim::kNoBuffer;
      }
      CHECK(weights == 4 * s.model.num_hidden_layers);
      // Categories of the ledger are what the operations touched: equal to the plan's arena.
      std::int64_t held = 0;
      for (const sim::MemoryLine& line : report.memory)
        if (!line.category.starts_with("platform")) held += line.bytes.value;
      CHECK(held == sim::plan_memory(sim::make_plan(s)).arena.value);
    }
}

TEST_CASE("Weights of a GGUF file in 4 bits are frozen as what they stand for, not as the file's codes") {
  const TemporaryFolder folder;
  const auto in_q4_0 = [](std::string_view, int) { return runtime::GgmlType::q4_0; };
  const std::filesystem::path file = folder.path() / "model.gguf";
  std::ofstream(file, std::ios::binary) << tests::llama_of_types(in_q4_0);
  const runtime::ModelSource model = runtime::open_model(file.string());
  REQUIRE(model.load_codes);
  for (const sim::FrozenWeights stored : kStored) {
    CAPTURE(sim::name(stored));
    sim::Scenario s = qlora(model.model, stored);
    runtime::Run from_file(s, 1), from_values(s, 1);
    from_file.fill_parameters(model, 1);
    s.workload.frozen_weights = sim::FrozenWeights::as_dtype;
    runtime::Run wide(s, 1);
    wide.fill_parameters(model, 1);
    from_values.fill_parameters(as_held_by(wide), 1);
    const auto frozen = values_of(from_file, sim::BufferClass::parameter);
    CHECK(frozen == values_of(from_values, sim::BufferClass::parameter));
    CHECK(frozen != values_of(wide, sim::BufferClass::parameter));
  }
}

TEST_CASE("Frozen weights in a type that the device does not store are refused with the field") {
  const sim::Scenario s = qlora(tests::small_llama(), sim::FrozenWeights::nf4);
  CHECK_THROWS_WITH(runtime::Run(s, tests::make_reference_device()),
                    contains("workload.frozen_weights is nf4, which can be predicted but not run here"));
}
