// Whole plans of all model presets, shrunk, on the GPU: held to the CPU's, which PyTorch's are compared with.
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "runtime/cuda_device.h"
#include "runtime/error.h"
#include "runtime/run.h"
#include "tests/runtime/shrunk_model.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

std::unique_ptr<runtime::Device> open_gpu() {
  return runtime::make_cuda_device({.deterministic = true, .scratch = sim::Bytes{1 << 22}});
}

// What one step leaves: losses, and each parameter's gradient by name and layer.
struct Step {
  std::vector<float> losses;
  std::map<std::pair<std::string, std::int32_t>, std::vector<float>> gradients;
};

Step step_of(const sim::Model& model, std::unique_ptr<runtime::Device> device,
             sim::DType dtype = sim::DType::fp32, sim::AttentionKind attention = sim::AttentionKind::flash) {
  constexpr std::int64_t kTokens = 24;
  sim::Scenario scenario = tests::training(model, kTokens, 1, 1);
  scenario.workload.dtype = dtype;
  scenario.implementation.attention = attention;
  scenario.hardware.peak[sim::DType::bf16] = sim::tflops(0.1);
  runtime::Run run(scenario, std::move(device));
  run.fill_parameters(tests::drawn(model), 1);
  std::vector<std::int32_t> tokens(kTokens), targets(kTokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>((7 * i + i * i) % 251);
    targets[i] = static_cast<std::int32_t>((5 * i + 1) % 251);
  }
  run.write(run.plan().find(sim::buffer_names::tokens), std::span<const std::int32_t>(tokens));
  run.write(run.plan().find(sim::buffer_names::targets), std::span<const std::int32_t>(targets));
  runtime::RunSettings settings;
  settings.adamw = {
      .learning_rate = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0, .step = 1};
  settings.max_gradient_norm = 1;
  run.executor().run(0, settings);
  Step step;
  step.losses.resize(tokens.size());
  run.read(run.plan().find(sim::buffer_names::losses), std::span(step.losses));
  for (const runtime::InstanceName& name : run.instances_of(sim::BufferClass::gradient)) {
    std::vector<float> values(run.elements_of(name));
    run.read_values(name, values);
    step.gradients[{run.plan().buffers[static_cast<std::size_t>(name.buffer)].name, name.layer}] = values;
  }
  return step;
}

double mean(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

// ||a - b|| / ||b||
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    difference += (x - y) * (x - y);
    size += y * y;
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

// The tokens that follow a prompt of three, of two sequences.
std::vector<std::int32_t> tokens_of(const sim::Model& model, std::unique_ptr<runtime::Device> device) {
  const sim::Scenario scenario = tests::generation(model, 9, 2);
  runtime::Run run(scenario, std::move(device));
  run.fill_parameters(tests::drawn(model), 3);
  std::vector<std::vector<std::int32_t>> sequences(2, {5, 17, 99});
  const sim::Plan& plan = run.plan();
  const auto& sections = run.executor().program().sections;
  for (std::size_t i = 0; i < sections.size(); ++i) {
    const sim::Variables& v = run.executor().program().actions[sections[i].begin].variables;
    std::vector<std::int32_t> tokens;
    for (const auto& sequence : sequences)
      tokens.insert(tokens.end(), sequence.end() - v.query_length, sequence.end());
    run.write(plan.find(sim::buffer_names::tokens), std::span<const std::int32_t>(tokens));
    if (const sim::BufferId positions = plan.find(sim::buffer_names::positions);
        positions != sim::kNoBuffer) {
      const std::vector<std::int32_t> starts(2, static_cast<std::int32_t>(v.kv_length - v.query_length));
      run.write(positions, std::span<const std::int32_t>(starts));
    }
    run.executor().run(i, {});
    std::vector<std::int32_t> next(2);
    run.read(plan.find(sim::buffer_names::next_tokens), std::span(next));
    for (std::size_t b = 0; b < 2; ++b) sequences[b].push_back(next[b]);
  }
  std::vector<std::int32_t> all = sequences[0];
  all.insert(all.end(), sequences[1].begin(), sequences[1].end());
  return all;
}

// Calls body(model) for every preset's; presets that shrink to the same model are one. Multi-token prediction
// has no test on the GPU yet, capped scores and logits have no kernels there.
void for_each_model(const auto& body) {
  std::set<std::string> seen;
  for (const std::string& preset : sim::preset_names(sim::PresetKind::model)) {
    sim::Model model = tests::shrunk(sim::load_model_preset(preset));
    model.num_nextn_predict_layers = 0;
    model.attn_logit_softcapping = model.final_logit_softcapping = 0;
    if (!seen.insert(sim::to_json(model)).second) continue;
    CAPTURE(preset);
    body(model);
  }
}

void check_step(const sim::Model& model, sim::AttentionKind attention = sim::AttentionKind::flash) {
  constexpr sim::DType kFp32 = sim::DType::fp32;
  const Step gpu = step_of(model, open_gpu(), kFp32, attention),
             cpu = step_of(model, runtime::make_cpu_device(1), kFp32, attention);
  CHECK(distance(gpu.losses, cpu.losses) < 1e-5);
  REQUIRE(gpu.gradients.size() == cpu.gradients.size());
  for (const auto& [name, gradient] : cpu.gradients) {
    CAPTURE(name.first, name.second);
    CHECK(distance(gpu.gradients.at(name), gradient) < 2e-4);
  }
  // In bf16 a router's choice may be another; losses are those of a model that nearly agrees.
  const Step in_bf16 = step_of(model, open_gpu(), sim::DType::bf16, attention);
  CHECK(mean(in_bf16.losses) == Approx(mean(cpu.losses)).epsilon(0x1p-6));
}

}  // namespace

TEST_CASE("A step of every model preset, shrunk, gives on the GPU the CPU's losses and gradients", "[plan]") {
  for_each_model([](const sim::Model& model) { check_step(model); });
}

TEST_CASE("A step with sinks and scores in memory gives on the GPU the CPU's losses and gradients",
          "[plan]") {
  const sim::Model model = tests::shrunk(sim::load_model_preset("gpt-oss-20b"));
  REQUIRE(model.attention_sinks);
  check_step(model, sim::AttentionKind::standard);
}

TEST_CASE("Norms of queries and keys without gains give on the GPU the CPU's losses, gradients and tokens",
          "[plan]") {
  sim::Model model = tests::shrunk(sim::load_model_preset("qwen3-8b"));
  model.qk_norm = sim::QkNorm::without_gain;
  check_step(model);
  CHECK(tokens_of(model, open_gpu()) == tokens_of(model, runtime::make_cpu_device(1)));
}

TEST_CASE("A step with activations that only files of models have gives on the GPU the CPU's", "[plan]") {
  sim::Model exact = tests::shrunk(sim::load_model_preset("pythia-70m"));
  exact.activation = sim::Activation::gelu_exact;
  check_step(exact);
  sim::Model clamped = tests::shrunk(sim::load_model_preset("mixtral-8x7b"));
  clamped.activation = sim::Activation::clamped_swiglu;
  check_step(clamped);
  for (const sim::ExpertWeights on : {sim::ExpertWeights::input, sim::ExpertWeights::output}) {
    clamped.moe.weights_on = on;
    check_step(clamped);
  }
}

TEST_CASE("Every model preset, shrunk, generates on the GPU the CPU's tokens", "[plan]") {
  for_each_model([](const sim::Model& model) {
    const auto gpu = tokens_of(model, open_gpu()), cpu = tokens_of(model, runtime::make_cpu_device(1));
    CHECK(gpu == cpu);
  });
}
