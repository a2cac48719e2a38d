// Whole plans on the GPU: the device's table of kernels against the CPU's, which the parity tests
// hold to PyTorch.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "runtime/cuda_device.h"
#include "runtime/error.h"
#include "runtime/run.h"
#include "sim/plan/plan.h"
#include "tests/runtime/shrunk_model.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

// Emulated (test_cuda), or a real one (test_gpu, from the same sources).
std::unique_ptr<runtime::Device> open_gpu(bool deterministic = true) {
  return runtime::make_cuda_device({.deterministic = deterministic, .scratch = sim::Bytes{1 << 22}});
}

// `alike`: all micro-batches have the first one's tokens.
void fill_inputs(runtime::Run& run, bool alike = false) {
  const sim::Workload& w = run.plan().scenario.workload;
  const auto count = static_cast<std::size_t>(w.micro_batch_size * w.seq_len);
  for (std::int32_t m = 0; m < w.global_batch_size / w.micro_batch_size; ++m) {
    std::vector<std::int32_t> tokens(count), targets(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto other = static_cast<std::size_t>(alike ? 0 : m);
      tokens[i] = static_cast<std::int32_t>((7 * i + 13 * other + i * i) % 251);
      targets[i] = static_cast<std::int32_t>((5 * i + 1) % 251);
    }
    run.write(run.plan().find(sim::buffer_names::tokens), std::span<const std::int32_t>(tokens), 0, m);
    run.write(run.plan().find(sim::buffer_names::targets), std::span<const std::int32_t>(targets), 0, m);
  }
}

struct Step {
  double loss = 0, norm = 0;
  std::vector<double> losses;  // of each token
  std::map<std::pair<std::string, std::int32_t>, std::vector<float>> gradients, parameters;
};

runtime::RunSettings step_settings(std::int64_t step, float loss_scale = 0) {
  runtime::RunSettings settings;
  settings.loss_scale = loss_scale;
  settings.adamw = {.learning_rate = 1e-3f,
                    .beta1 = 0.9f,
                    .beta2 = 0.95f,
                    .eps = 1e-8f,
                    .weight_decay = 0.1f,
                    .step = step};
  settings.max_gradient_norm = 1;
  return settings;
}

std::map<std::pair<std::string, std::int32_t>, std::vector<float>> values_of(runtime::Run& run,
                                                                             sim::BufferClass buffer_class) {
  std::map<std::pair<std::string, std::int32_t>, std::vector<float>> all;
  for (const runtime::InstanceName& name : run.instances_of(buffer_class)) {
    std::vector<float> values(run.elements_of(name));
    run.read_values(name, values);
    all[{run.plan().buffers[static_cast<std::size_t>(name.buffer)].name, name.layer}] = values;
  }
  return all;
}

// `whole_from`: steps from this one on are run whole, that is, captured and replayed.
Step step_of(const sim::Scenario& scenario, std::unique_ptr<runtime::Device> device, std::int64_t steps = 1,
             std::int64_t whole_from = 1000, float loss_scale = 0, bool alike = false) {
  runtime::Run run(scenario, std::move(device));
  run.fill_parameters(tests::drawn(scenario.model), 1);
  fill_inputs(run, alike);
  for (std::int64_t step = 1; step <= steps; ++step) {
    if (step < whole_from)
      run.executor().run(0, step_settings(step, loss_scale));
    else
      run.executor().run_whole(0, step_settings(step, loss_scale));
  }
  Step result;
  const sim::Workload& w = scenario.workload;
  std::vector<float> losses(static_cast<std::size_t>(w.micro_batch_size * w.seq_len));
  const std::int64_t micro_batches = w.global_batch_size / w.micro_batch_size;
  for (std::int32_t m = 0; m < micro_batches; ++m) {
    run.read(run.plan().find(sim::buffer_names::losses), std::span(losses), 0, m);
    for (const float loss : losses)
      result.loss +=
          static_cast<double>(loss) / static_cast<double>(losses.size()) / static_cast<double>(micro_batches);
    result.losses.insert(result.losses.end(), losses.begin(), losses.end());
  }
  std::vector<double> norm(2);
  run.read(run.plan().find(sim::buffer_names::gradient_norm), std::span(norm));
  result.norm = norm[1];
  result.gradients = values_of(run, sim::BufferClass::gradient);
  result.parameters = values_of(run, sim::BufferClass::parameter);
  return result;
}

// ||a - b|| / ||b||
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    size += static_cast<double>(b[i]) * b[i];
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

sim::Scenario training(const sim::Model& model, sim::DType dtype, sim::AttentionKind attention,
                       sim::Recompute recompute = sim::Recompute::none) {
  sim::Scenario s = tests::training(model, 10, 1, 2);
  s.workload.dtype = dtype;
  s.implementation.attention = attention;
  s.strategy.recompute = recompute;
  s.hardware.peak[sim::DType::bf16] = s.hardware.peak[sim::DType::fp16] = sim::tflops(0.1);
  return s;
}

// A parameter's relative rounding error in bf16.
constexpr double kBf16 = 0x1p-8;

}  // namespace

TEST_CASE("a training step on the GPU in fp32 gives the CPU's loss, gradients and parameters", "[plan]") {
  for (const sim::Model& model : {tests::small_gpt(), tests::small_llama()})
    for (const auto attention : {sim::AttentionKind::flash, sim::AttentionKind::standard}) {
      CAPTURE(model.name, static_cast<int>(attention));
      const sim::Scenario scenario = training(model, sim::DType::fp32, attention);
      const Step gpu = step_of(scenario, open_gpu()), cpu = step_of(scenario, runtime::make_cpu_device(1));
      CHECK(gpu.loss == Approx(cpu.loss).epsilon(1e-6));
      CHECK(gpu.norm == Approx(cpu.norm).epsilon(1e-5));
      REQUIRE(gpu.gradients.size() == cpu.gradients.size());
      for (const auto& [name, gradient] : cpu.gradients) {
        CAPTURE(name.first, name.second);
        CHECK(distance(gpu.gradients.at(name), gradient) < 1e-4);
      }
      for (const auto& [name, parameter] : cpu.parameters) {
        CAPTURE(name.first, name.second);
        CHECK(distance(gpu.parameters.at(name), parameter) < 1e-3);
      }
    }
}

namespace {

// A step on the GPU in bf16 beside the CPU's in fp32.
void check_follows_in_bf16(const sim::Model& model) {
  CAPTURE(model.name);
  const Step gpu = step_of(training(model, sim::DType::bf16, sim::AttentionKind::flash), open_gpu());
  const Step cpu =
      step_of(training(model, sim::DType::fp32, sim::AttentionKind::flash), runtime::make_cpu_device(1));
  CHECK(gpu.loss == Approx(cpu.loss).epsilon(kBf16));
  for (const auto& [name, gradient] : cpu.gradients) {
    CAPTURE(name.first, name.second);
    // A handful of roundings, some of them of partial sums, lie between.
    CHECK(distance(gpu.gradients.at(name), gradient) < 10 * kBf16);
  }
}

}  // namespace

TEST_CASE("a training step on the GPU in bf16 follows the CPU's in fp32 as far as bf16 goes", "[plan]") {
  for (const sim::Model& model : {tests::small_gpt(), tests::small_llama()}) check_follows_in_bf16(model);
}

TEST_CASE(
    "recompute on the GPU changes no bit of losses, gradients or parameters of two steps of two "
    "micro-batches",
    "[plan]") {
  sim::Strategy selective, full, from_every_second_layer, operations;
  selective.recompute = sim::Recompute::selective;
  full.recompute = from_every_second_layer.recompute = sim::Recompute::full;
  from_every_second_layer.recompute_interval = 2;
  operations.recompute = sim::Recompute::operations;
  operations.recompute_operations = {"norm", "activation", "qkv"};
  for (sim::Model model : {tests::small_llama(), tests::small_gpt()}) {
    model.num_hidden_layers = 2;
    const auto step = [&](const sim::Strategy& strategy) {
      sim::Scenario scenario = training(model, sim::DType::bf16, sim::AttentionKind::flash);
      scenario.strategy = strategy;
      return step_of(scenario, open_gpu(), 2);
    };
    const Step none = step({});
    for (const sim::Strategy& strategy : {selective, full, from_every_second_layer, operations}) {
      CAPTURE(model.name, static_cast<int>(strategy.recompute), strategy.recompute_interval);
      const Step again = step(strategy);
      CHECK(again.losses == none.losses);
      CHECK(again.norm == none.norm);
      CHECK(again.gradients == none.gradients);
      CHECK(again.parameters == none.parameters);
    }
  }
}

TEST_CASE(
    "a head in chunks gives the bits of one at once in losses, and its gradients to the accumulator's "
    "rounding",
    "[plan]") {
  for (sim::Model model : {tests::small_gpt(), tests::small_llama()})  // tied and not
    for (const sim::DType dtype : {sim::DType::fp32, sim::DType::bf16}) {
      model.num_hidden_layers = 1;
      sim::Scenario scenario = training(model, dtype, sim::AttentionKind::flash);
      const Step whole = step_of(scenario, open_gpu());
      scenario.implementation.head_chunks = 5;
      const Step parts = step_of(scenario, open_gpu());
      CAPTURE(model.name, std::string(sim::name(dtype)));
      CHECK(parts.losses == whole.losses);
      const double rounding = dtype == sim::DType::bf16 ? kBf16 : 0x1p-23;
      for (const auto& [name, gradient] : whole.gradients) {
        CAPTURE(name.first, name.second);
        const bool of_head =
            name.first == (model.tie_word_embeddings ? "gradient.embedding.weight" : "gradient.head.weight");
        if (of_head)  // each chunk of each micro-batch rounds the sum once more
          CHECK(distance(parts.gradients.at(name), gradient) < 2 * 5 * rounding);
        else
          CHECK(parts.gradients.at(name) == gradient);
      }
    }
}

TEST_CASE(
    "gradients accumulated in fp32 beside bf16 weights lose nothing over micro-batches, in bf16 they do",
    "[plan]") {
  constexpr std::int64_t kMicroBatches =
      16;  // a power of two: each one's gradient is a sixteenth without rounding
  const auto step = [](sim::DType gradients, std::int64_t micro_batches) {
    sim::Scenario scenario = training(tests::small_llama(), sim::DType::bf16, sim::AttentionKind::flash);
    scenario.model.num_hidden_layers = 1;
    scenario.workload.global_batch_size = micro_batches;
    scenario.implementation.gradient_dtype = gradients;
    return step_of(scenario, open_gpu(), 1, 1000, 0, true);
  };
  double most = 0;
  for (const sim::DType type : {sim::DType::fp32, sim::DType::bf16}) {
    const Step one = step(type, 1), many = step(type, kMicroBatches);
    for (const auto& [name, gradient] : one.gradients) {
      CAPTURE(name.first, name.second);
      const double lost = distance(many.gradients.at(name), gradient);
      if (type == sim::DType::fp32)
        CHECK(lost <= kMicroBatches * 0x1p-24);
      else
        most = std::max(most, lost);
    }
  }
  CHECK(most > kBf16 / 4);
}

TEST_CASE("a vocabulary padded to whole vectors trains to the same losses and gradients, and pads with zeros",
          "[plan]") {
  for (sim::Model model : {tests::small_gpt(), tests::small_llama()}) {  // tied and not
    model.num_hidden_layers = 1;
    model.vocab_size = 253;
    sim::Scenario scenario = training(model, sim::DType::bf16, sim::AttentionKind::flash);
    scenario.implementation.vocabulary_multiple = 1;
    const Step alone = step_of(scenario, open_gpu());
    scenario.implementation.vocabulary_multiple = 128;
    const Step padded = step_of(scenario, open_gpu());
    CAPTURE(model.name);
    for (std::size_t i = 0; i < alone.losses.size(); ++i)
      CHECK(padded.losses[i] == Approx(alone.losses[i]).epsilon(kBf16));
    for (const auto& [name, gradient] : alone.gradients) {
      CAPTURE(name.first, name.second);
      std::vector<float> without = padded.gradients.at(name);
      CHECK(std::all_of(without.begin() + static_cast<std::ptrdiff_t>(gradient.size()), without.end(),
                        [](float x) { return x == 0; }));
      without.resize(gradient.size());
      CHECK(distance(without, gradient) < 2 * kBf16);
    }
  }
}

TEST_CASE("micro-batches whose gradients add up give the gradient of one batch, to fp32's rounding",
          "[plan]") {
  const auto step = [](std::int64_t micro_batch) {
    sim::Scenario scenario = training(tests::small_llama(), sim::DType::fp32, sim::AttentionKind::flash);
    scenario.workload.global_batch_size = 2;
    scenario.workload.micro_batch_size = micro_batch;
    return step_of(scenario, open_gpu());
  };
  // fill_inputs() gives a micro-batch its tokens by its number: two of one sequence are one of two.
  const Step parts = step(1);
  CHECK(parts.losses.size() == 20);
  sim::Scenario whole = training(tests::small_llama(), sim::DType::fp32, sim::AttentionKind::flash);
  const Step on_cpu = step_of(whole, runtime::make_cpu_device(1));
  CHECK(parts.loss == Approx(on_cpu.loss).epsilon(1e-6));
  for (const auto& [name, gradient] : on_cpu.gradients) {
    CAPTURE(name.first, name.second);
    CHECK(distance(parts.gradients.at(name), gradient) < 1e-4);
  }
}

TEST_CASE(
    "a training step on the GPU in fp16 with its loss scaled follows the CPU's in fp32 as far as fp16 goes",
    "[plan]") {
  constexpr double kF16 = 0x1p-11;
  constexpr float kLossScale = 1024;
  for (const sim::Model& model : {tests::small_gpt(), tests::small_llama()}) {
    CAPTURE(model.name);
    const Step gpu = step_of(training(model, sim::DType::fp16, sim::AttentionKind::flash), open_gpu(), 1,
                             1000, kLossScale);
    const Step cpu =
        step_of(training(model, sim::DType::fp32, sim::AttentionKind::flash), runtime::make_cpu_device(1));
    CHECK(gpu.loss == Approx(cpu.loss).epsilon(kF16));
    CHECK(gpu.norm == Approx(cpu.norm).epsilon(10 * kF16));
    for (const auto& [name, gradient] : cpu.gradients) {
      CAPTURE(name.first, name.second);
      std::vector<float> scaled = gpu.gradients.at(name);  // they keep the loss's scale
      for (float& x : scaled) x /= kLossScale;
      CHECK(distance(scaled, gradient) < 10 * kF16);
    }
  }
}

TEST_CASE(
    "a step in fp16 whose gradients overflow changes no parameter and says so, replayed steps do the same",
    "[plan]") {
  const sim::Scenario scenario = training(tests::small_llama(), sim::DType::fp16, sim::AttentionKind::flash);
  for (const bool whole : {false, true}) {
    runtime::Run run(scenario, open_gpu());
    run.fill_parameters(tests::drawn(scenario.model), 1);
    fill_inputs(run);
    const sim::BufferId flag = run.plan().find(sim::buffer_names::gradient_overflow);
    REQUIRE(flag != sim::kNoBuffer);
    const auto step = [&](std::int64_t number, float loss_scale) {
      if (whole)
        run.executor().run_whole(0, step_settings(number, loss_scale));
      else
        run.executor().run(0, step_settings(number, loss_scale));
      float found = -1;
      run.read(flag, std::span(&found, 1));
      return found;
    };
    CHECK(step(1, 256) == 0);
    const auto before = values_of(run, sim::BufferClass::parameter),
               states = values_of(run, sim::BufferClass::optimizer);
    CHECK(step(2, 0x1p40f) == 1);
    CHECK(values_of(run, sim::BufferClass::parameter) == before);
    CHECK(values_of(run, sim::BufferClass::optimizer) == states);
    CHECK(step(2, 256) == 0);
    CHECK(values_of(run, sim::BufferClass::parameter) != before);
  }
}

TEST_CASE("steps that are captured and replayed give the bits of steps that run operation by operation",
          "[plan]") {
  sim::Model model = tests::small_gpt();
  model.num_hidden_layers = 1;
  sim::Scenario scenario = training(model, sim::DType::bf16, sim::AttentionKind::flash);
  scenario.workload.global_batch_size = scenario.workload.micro_batch_size = 1;
  const Step one_by_one = step_of(scenario, open_gpu(), 3), replayed = step_of(scenario, open_gpu(), 3, 2);
  CHECK(replayed.parameters == one_by_one.parameters);
  CHECK(replayed.norm == one_by_one.norm);
}

namespace {

// What the run's program generates for two sequences, and the logits of its last section.
struct Generated {
  std::vector<std::vector<std::int32_t>> sequences{2, {5, 17, 99}};
  std::vector<float> logits;
};
// Sections from `queued_from` on pass their tokens on themselves.
Generated generate_on(std::unique_ptr<runtime::Device> device, const sim::Scenario& scenario,
                      kernels::SamplingSettings sampling = {}, std::size_t queued_from = 1000) {
  runtime::Run run(scenario, std::move(device));
  run.fill_parameters(tests::drawn(scenario.model), 3);
  Generated result;
  const sim::Plan& plan = run.plan();
  runtime::Executor& executor = run.executor();
  for (std::size_t number = 0; number < executor.program().sections.size(); ++number) {
    const sim::Section& section = executor.program().sections[number];
    const sim::Variables& v = executor.program().actions[section.begin].variables;
    std::vector<std::int32_t> next(2);
    const auto accept = [&] {
      for (std::size_t b = 0; b < 2; ++b) result.sequences[b].push_back(next[b]);
    };
    if (number > queued_from) {
      if (number + 1 < executor.program().sections.size()) executor.queue(number + 1);
      executor.read_queued(next);
      accept();
      continue;
    }
    std::vector<std::int32_t> tokens;
    for (const auto& sequence : result.sequences)
      tokens.insert(tokens.end(), sequence.end() - v.query_length, sequence.end());
    run.write(plan.find(sim::buffer_names::tokens), std::span<const std::int32_t>(tokens));
    if (const sim::BufferId positions = plan.find(sim::buffer_names::positions);
        positions != sim::kNoBuffer) {
      const std::vector<std::int32_t> starts(2, static_cast<std::int32_t>(v.kv_length - v.query_length));
      run.write(positions, std::span<const std::int32_t>(starts));
    }
    runtime::RunSettings settings;
    settings.sampling = sampling;
    settings.sampling_step = static_cast<std::int64_t>(number);
    if (number == queued_from) {
      const auto place = [&](std::string_view name) { return executor.instance(plan.find(name)).data(); };
      REQUIRE(executor.can_queue(number));
      executor.begin_queue(settings, {place(sim::buffer_names::tokens), place(sim::buffer_names::positions),
                                      place(sim::buffer_names::next_tokens), 2});
      executor.queue(number);
      if (number + 1 < executor.program().sections.size()) executor.queue(number + 1);
      executor.read_queued(next);
      accept();
      continue;
    }
    executor.run(number, settings);
    run.read(plan.find(sim::buffer_names::next_tokens), std::span(next));
    accept();
  }
  if (queued_from < 1000) executor.end_queue();
  result.logits.resize(static_cast<std::size_t>(2 * scenario.model.vocab_size));
  run.read(plan.find(sim::buffer_names::logits), std::span(result.logits));
  return result;
}

}  // namespace

TEST_CASE("the GPU generates the CPU's tokens", "[plan]") {
  for (const sim::Model& model : {tests::small_gpt(), tests::small_llama()})
    for (const bool kv_cache : {true, false}) {
      CAPTURE(model.name, kv_cache);
      sim::Scenario scenario = tests::generation(model, 3, 2);
      scenario.workload.kv_cache = kv_cache;
      CHECK(generate_on(open_gpu(), scenario).sequences ==
            generate_on(runtime::make_cpu_device(1), scenario).sequences);
    }
}

TEST_CASE("tokens that the GPU passes on to itself are those that the host would have handed it", "[plan]") {
  for (const sim::Model& model : {tests::small_gpt(), tests::small_llama()})
    for (const std::int64_t block : {0, 16}) {
      CAPTURE(model.name, block);
      sim::Scenario scenario = tests::generation(model, 3, 2);
      scenario.workload.dtype = sim::DType::bf16;
      scenario.hardware.peak[sim::DType::bf16] = sim::tflops(0.1);
      scenario.workload.kv_block = block;
      scenario.workload.max_new_tokens = 7;
      const kernels::SamplingSettings sampling{.temperature = 2, .top_k = 20, .top_p = 0.9f, .seed = 5};
      const Generated by_host = generate_on(open_gpu(), scenario, sampling);
      const Generated queued = generate_on(open_gpu(), scenario, sampling, 2);
      CHECK(queued.sequences == by_host.sequences);
      CHECK(queued.logits == by_host.logits);
      CHECK(by_host.sequences[0] != by_host.sequences[1]);  // drawn
    }
}

TEST_CASE("a KV cache of blocks on the GPU gives the bits of one in a piece, in fp32, bf16 and fp8",
          "[plan]") {
  for (const sim::Model& model : {tests::small_gpt(), tests::small_llama()})
    for (const sim::DType dtype : {sim::DType::fp32, sim::DType::bf16})
      for (const bool fp8 : {false, true}) {
        CAPTURE(model.name, std::string(sim::name(dtype)), fp8);
        sim::Scenario scenario = tests::generation(model, 15, 2);  // into a second block
        scenario.workload.dtype = dtype;
        scenario.hardware.peak[sim::DType::bf16] = sim::tflops(0.1);
        if (fp8) scenario.workload.kv_dtype = sim::DType::fp8;
        const Generated whole = generate_on(open_gpu(), scenario);
        scenario.workload.kv_block = 16;
        const Generated paged = generate_on(open_gpu(), scenario);
        CHECK(paged.sequences == whole.sequences);
        CHECK(paged.logits == whole.logits);
        // Both round keys and values to e4m3 where fp32 has put them.
        if (dtype == sim::DType::fp32) {
          const Generated on_cpu = generate_on(runtime::make_cpu_device(1), scenario);
          CHECK(paged.sequences == on_cpu.sequences);
          CHECK(distance(paged.logits, on_cpu.logits) < (fp8 ? 0x1p-4 : 1e-5));
        }
      }
  sim::Scenario scenario = tests::generation(tests::small_llama(), 3, 2);
  scenario.workload.kv_block = 20;
  CHECK_THROWS_WITH(runtime::Run(scenario, open_gpu()),
                    Catch::Matchers::EndsWith(
                        " keeps the KV cache in blocks of a multiple of 16 tokens; workload.kv_block is 20"));
}

namespace {

// Heads and latents are of whole vectors: in 16 bits, tensor cores take them.
sim::Model latent_model(const char* preset) {
  sim::Model m = tests::shrunk(sim::load_model_preset(preset));
  m.latent.v_head_dim = 16;
  return m;
}

}  // namespace

TEST_CASE("three steps and eight tokens of DeepSeek's models, shrunk, are on the GPU those of the CPU",
          "[plan]") {
  for (const char* const preset : {"deepseek-v2", "deepseek-v3"}) {
    CAPTURE(preset);
    const sim::Model model = latent_model(preset);
    const sim::Scenario steps = training(model, sim::DType::fp32, sim::AttentionKind::flash);
    const Step gpu = step_of(steps, open_gpu(), 3), cpu = step_of(steps, runtime::make_cpu_device(1), 3);
    CHECK(gpu.loss == Approx(cpu.loss).epsilon(1e-5));
    CHECK(gpu.norm == Approx(cpu.norm).epsilon(1e-4));
    for (const auto& [name, parameter] : cpu.parameters) {
      CAPTURE(name.first, name.second);
      CHECK(distance(gpu.parameters.at(name), parameter) < 2e-3);
    }
    sim::Scenario tokens = tests::generation(model, 8, 2);
    const Generated expected = generate_on(runtime::make_cpu_device(1), tokens);
    for (const std::int64_t block : {0, 16}) {
      tokens.workload.kv_block = block;
      const Generated generated = generate_on(open_gpu(), tokens);
      CHECK(generated.sequences == expected.sequences);
      CHECK(distance(generated.logits, expected.logits) < 1e-4);
    }
  }
}

TEST_CASE("latent attention by tensor cores follows the CPU's in fp32 as far as bf16 goes", "[plan]") {
  sim::Model model = latent_model("deepseek-v3");
  model.moe = {};  // no choice of experts that rounding could turn
  model.num_nextn_predict_layers = 0;
  check_follows_in_bf16(model);
  sim::Scenario tokens = tests::generation(model, 8, 2);
  const Generated expected = generate_on(runtime::make_cpu_device(1), tokens);
  tokens.workload.dtype = sim::DType::bf16;
  tokens.hardware.peak[sim::DType::bf16] = sim::tflops(0.1);
  const Generated by_host = generate_on(open_gpu(), tokens);
  CHECK(distance(by_host.logits, expected.logits) < 10 * kBf16);
  // Captured: positions are the device's.
  const Generated queued = generate_on(open_gpu(), tokens, {}, 2);
  CHECK(queued.sequences == by_host.sequences);
  CHECK(queued.logits == by_host.logits);
}

TEST_CASE(
    "the logits after a prompt and a token, in bf16 with a cache, follow the CPU's in fp32 as far as bf16 "
    "goes",
    "[plan]") {
  for (const sim::Model& model : {tests::small_gpt(), tests::small_llama()}) {
    CAPTURE(model.name);
    const auto logits_on = [&](std::unique_ptr<runtime::Device> device, sim::DType dtype) {
      sim::Scenario scenario = tests::generation(model, 2, 1);
      scenario.workload.dtype = dtype;
      scenario.hardware.peak[sim::DType::bf16] = sim::tflops(0.1);
      runtime::Run run(scenario, std::move(device));
      run.fill_parameters(tests::drawn(model), 3);
      const sim::Plan& plan = run.plan();
      std::vector<std::int32_t> tokens = {5, 17, 99};
      std::int32_t position = 0;
      for (std::size_t section = 0; section < 2; ++section) {
        run.write(plan.find(sim::buffer_names::tokens), std::span<const std::int32_t>(tokens));
        run.write(plan.find(sim::buffer_names::positions), std::span<const std::int32_t>(&position, 1));
        run.executor().run(section, {});
        position = 3;
        tokens = {42};
      }
      std::vector<float> logits(static_cast<std::size_t>(model.vocab_size));
      run.read(plan.find(sim::buffer_names::logits), std::span(logits));
      return logits;
    };
    const auto on_gpu = logits_on(open_gpu(), sim::DType::bf16);
    const auto on_cpu = logits_on(runtime::make_cpu_device(1), sim::DType::fp32);
    CHECK(distance(on_gpu, on_cpu) < 10 * kBf16);
  }
}

TEST_CASE(
    "dropout drops the same elements again where they are recomputed and replayed, and others at another "
    "step",
    "[plan]") {
  sim::Model model = tests::small_gpt();
  for (const auto attention : {sim::AttentionKind::flash, sim::AttentionKind::standard}) {
    const auto step = [&](float dropout, sim::Recompute recompute, bool whole = false) {
      sim::Scenario scenario = training(model, sim::DType::bf16, attention, recompute);
      scenario.implementation.dropout = dropout > 0;
      runtime::Run run(scenario, open_gpu());
      run.fill_parameters(tests::drawn(scenario.model), 1);
      fill_inputs(run);
      std::vector<float> losses(20), all;
      for (std::int64_t number = 1; number <= 2; ++number) {
        runtime::RunSettings settings = step_settings(number);
        settings.adamw.learning_rate = 0;
        settings.dropout = dropout;
        settings.dropout_seed = 3;
        if (whole)
          run.executor().run_whole(0, settings);
        else
          run.executor().run(0, settings);
        run.read(run.plan().find(sim::buffer_names::losses), std::span(losses).first(10));
        all.insert(all.end(), losses.begin(), losses.begin() + 10);
      }
      return std::pair{all, values_of(run, sim::BufferClass::gradient)};
    };
    const auto none = step(0.2f, sim::Recompute::none);
    CHECK(step(0.2f, sim::Recompute::full) == none);
    CHECK(step(0.2f, sim::Recompute::none, true) == none);
    const std::vector<float>& losses = none.first;
    CHECK(!std::equal(losses.begin(), losses.begin() + 10, losses.begin() + 10));  // parameters were the same
    const auto without = step(0, sim::Recompute::none);
    CHECK(without.first != none.first);
    // So small a probability that none of these elements is dropped leaves the function as it is.
    const auto hardly = step(1e-9f, sim::Recompute::none);
    for (std::size_t i = 0; i < without.first.size(); ++i)
      CHECK(static_cast<double>(hardly.first[i]) ==
            Approx(static_cast<double>(without.first[i])).epsilon(kBf16));
  }
}

TEST_CASE("bf16 weights without an fp32 copy are rounded the same way in every run, and learn as with it",
          "[plan]") {
  sim::Scenario scenario = training(tests::small_llama(), sim::DType::bf16, sim::AttentionKind::flash);
  const Step with_copy = step_of(scenario, open_gpu(), 4);
  scenario.implementation.master_weights = false;
  const Step one = step_of(scenario, open_gpu(), 4), again = step_of(scenario, open_gpu(), 4);
  CHECK(one.parameters == again.parameters);
  CHECK(one.parameters != with_copy.parameters);
  CHECK(one.loss == Approx(with_copy.loss).epsilon(kBf16));
}

// Were two tensors rounded by the same numbers, all elements would be rounded alike; by independent ones as
// many as by chance. Tensors of one operation, of one layer and the next, of two operations, of two steps.
TEST_CASE("every tensor is rounded by random numbers of its own, in every step by others") {
  constexpr std::size_t kCount = 4096;
  const std::unique_ptr<runtime::Device> gpu = open_gpu();
  const auto place = [&gpu](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    std::byte* const memory = gpu->allocate(sim::Bytes{static_cast<std::int64_t>(bytes.size())});
    gpu->copy_to_device(memory, bytes);
    return runtime::BoundOperand{memory, static_cast<std::int64_t>(bytes.size()), sim::DType::fp32};
  };
  // Ones, and Adam without memory, whose step is the learning rate: a quarter of bf16's spacing below 1.
  constexpr std::uint16_t kOne = 0x3f80;
  constexpr double kProbability = 1e-3 / 0x1p-8;
  runtime::RunSettings settings;
  settings.adamw = {
      .learning_rate = 1e-3f, .beta1 = 0, .beta2 = 0, .eps = 1e-8f, .weight_decay = 0, .step = 1};
  // What becomes of the two tensors of one operation.
  const auto rounded = [&](const std::string& id, std::int32_t layer, std::int64_t step) {
    sim::Operation operation{.id = id, .kind = sim::OpKind::adamw, .dtype = sim::DType::bf16};
    std::vector<runtime::BoundOperand> operands = {place(std::vector<double>{0, 0, 1})};  // sum, norm, scale
    for (int tensor = 0; tensor < 2; ++tensor) {
      runtime::BoundOperand parameter = place(std::vector<std::uint16_t>(kCount, kOne));
      parameter.dtype = sim::DType::bf16;
      operands.push_back(parameter);
      operands.push_back(place(std::vector<float>(kCount, 1.0f)));
      operands.push_back(place(std::vector<float>(kCount, 0.0f)));
      operands.push_back(place(std::vector<float>(kCount, 0.0f)));
      operands.push_back({});
    }
    operation.operands.resize(operands.size());
    settings.adamw.step = step;
    gpu->begin(settings);
    gpu->run({&operation, {}, operands, layer, 0}, settings);
    std::vector<std::vector<bool>> went_down;
    for (const std::size_t tensor : {1, 6}) {
      std::vector<std::uint16_t> values(kCount);
      gpu->copy_from_device(std::as_writable_bytes(std::span(values)), operands[tensor].data);
      std::vector<bool> down;
      for (const std::uint16_t value : values) down.push_back(value != kOne);
      went_down.push_back(down);
    }
    for (const runtime::BoundOperand& operand : operands)
      if (operand.data != nullptr) gpu->release(operand.data, sim::Bytes{operand.bytes});
    return went_down;
  };
  struct Place {
    std::string id;
    std::int32_t layer;
    std::int64_t step;
  };
  std::vector<std::vector<bool>> all;
  for (const Place& at : {Place{"layer.adamw", 0, 1}, Place{"layer.adamw", 1, 1}, Place{"head.adamw", 0, 1},
                          Place{"layer.adamw", 0, 2}})
    for (std::vector<bool>& down : rounded(at.id, at.layer, at.step)) all.push_back(std::move(down));
  const double alike = kProbability * kProbability + (1 - kProbability) * (1 - kProbability);
  const double deviation = std::sqrt(alike * (1 - alike) * kCount);
  for (std::size_t a = 0; a < all.size(); ++a)
    for (std::size_t b = a + 1; b < all.size(); ++b) {
      CAPTURE(a, b);
      std::size_t same = 0;
      for (std::size_t i = 0; i < kCount; ++i) same += all[a][i] == all[b][i];
      CHECK(std::abs(static_cast<double>(same) - alike * kCount) < 4 * deviation);
    }
  CHECK(rounded("layer.adamw", 1, 1)[1] == all[3]);
}

TEST_CASE("a training step on the GPU with fp8 products follows the CPU's in fp32 as far as fp8 goes",
          "[plan]") {
  // Relative errors of a product's two factors, rounded to e4m3 and e5m2, as independent of each other and
  // uniform up to half a unit in the last place; they add up as random numbers do.
  const double of_a_product = std::hypot(0x1p-4, 0x1p-3) / std::sqrt(3.0);
  for (sim::Model model : {tests::small_gpt(), tests::small_llama()}) {
    CAPTURE(model.name);
    sim::Scenario scenario = training(model, sim::DType::fp8, sim::AttentionKind::flash);
    scenario.hardware.peak[sim::DType::fp8] = sim::tflops(0.2);
    const Step gpu = step_of(scenario, open_gpu());
    const Step cpu =
        step_of(training(model, sim::DType::fp32, sim::AttentionKind::flash), runtime::make_cpu_device(1));
    const double products = 2 * 4 * static_cast<double>(model.num_hidden_layers);  // forward and backward
    CHECK(gpu.loss == Approx(cpu.loss).epsilon(0x1p-4));
    for (const auto& [name, gradient] : cpu.gradients) {
      CAPTURE(name.first, name.second);
      CHECK(distance(gpu.gradients.at(name), gradient) < of_a_product * std::sqrt(products));
    }
    // Smaller than what fp8 loses would mean that the products were formed in something else.
    CHECK(distance(gpu.gradients.at({"gradient.layer.attention.qkv.weight", 0}),
                   cpu.gradients.at({"gradient.layer.attention.qkv.weight", 0})) > 10 * kBf16);
  }
}

TEST_CASE("fp8 steps that are replayed, and whose scratch memory holds little, give the same bits and sums",
          "[plan]") {
  sim::Model model = tests::small_gpt();
  model.num_hidden_layers = 1;
  sim::Scenario scenario = training(model, sim::DType::fp8, sim::AttentionKind::flash);
  scenario.hardware.peak[sim::DType::fp8] = sim::tflops(0.2);
  const Step one_by_one = step_of(scenario, open_gpu(), 3), replayed = step_of(scenario, open_gpu(), 3, 2);
  CHECK(replayed.parameters == one_by_one.parameters);
  // Transposes come in several parts: weights' gradients are sums of more roundings to bf16.
  const Step in_parts = step_of(
      scenario, runtime::make_cuda_device({.deterministic = true, .scratch = sim::Bytes{12 << 10}}), 1);
  const Step whole = step_of(scenario, open_gpu(), 1);
  CHECK(in_parts.loss == whole.loss);
  for (const auto& [name, gradient] : whole.gradients) {
    CAPTURE(name.first, name.second);
    CHECK(distance(in_parts.gradients.at(name), gradient) < 4 * kBf16);
  }
}

TEST_CASE(
    "logits with weights in int8, fp8 and int4 follow those in bf16 as far as the format goes, prompt and "
    "token",
    "[plan]") {
  sim::Model model = tests::small_llama();
  model.hidden_size = 128;  // whole groups of int4
  model.num_attention_heads = 8;
  model.num_key_value_heads = 4;
  model.intermediate_size = 256;
  model.num_hidden_layers = 1;
  struct Run {
    std::vector<float> prompt, token;
    sim::Bytes parameters;
  };
  const auto logits_with = [&](std::optional<sim::DType> weights) {
    sim::Scenario scenario = tests::generation(model, 2, 1);
    scenario.workload.dtype = sim::DType::bf16;
    scenario.workload.weights_dtype = weights;
    scenario.workload.weights_group = weights == sim::DType::int4 ? 128 : 0;
    scenario.workload.prompt_length = 9;  // more rows than a gemv has
    scenario.hardware.peak[sim::DType::bf16] = scenario.hardware.peak[sim::DType::fp8] = sim::tflops(0.1);
    runtime::Run run(scenario,
                     runtime::make_cuda_device({.deterministic = true, .scratch = sim::Bytes{1 << 17}}));
    run.fill_parameters(tests::drawn(model), 3);
    Run result;
    std::vector<std::int32_t> tokens = {5, 17, 99, 4, 8, 15, 16, 23, 42};
    std::int32_t position = 0;
    for (std::vector<float>* const logits : {&result.prompt, &result.token}) {
      run.write(run.plan().find(sim::buffer_names::tokens), std::span<const std::int32_t>(tokens));
      run.write(run.plan().find(sim::buffer_names::positions), std::span<const std::int32_t>(&position, 1));
      run.executor().run(position == 0 ? 0 : 1, {});
      logits->resize(static_cast<std::size_t>(model.vocab_size));
      run.read(run.plan().find(sim::buffer_names::logits), std::span(*logits));
      position = 9;
      tokens = {42};
    }
    result.parameters = run.memory().at_peak[static_cast<std::size_t>(sim::BufferClass::parameter)];
    return result;
  };
  const Run exact = logits_with(std::nullopt);
  // Half a step at the largest magnitude of a row, as a share of its root mean square: normal weights'
  // largest of 128 to 256 is about three of them. Roundings of four products a layer add up as random numbers
  // do.
  constexpr double kPeakToRms = 3;
  const double products = std::sqrt(4.0 * static_cast<double>(model.num_hidden_layers));
  for (const auto& [dtype, half_step] :
       {std::pair{sim::DType::int8, kPeakToRms / 254}, std::pair{sim::DType::fp8, 0x1p-4},
        std::pair{sim::DType::int4, kPeakToRms / 14}}) {
    CAPTURE(std::string(sim::name(dtype)));
    const Run quantised = logits_with(dtype);
    for (const auto& [got, wanted] :
         {std::pair{&quantised.prompt, &exact.prompt}, std::pair{&quantised.token, &exact.token}}) {
      CHECK(distance(*got, *wanted) < products * half_step + 10 * kBf16);
      CHECK(*got != *wanted);
    }
    CHECK(quantised.parameters < exact.parameters);
  }
}

TEST_CASE("weights in a type or group that no kernel reads are refused with what there is", "[plan]") {
  sim::Scenario scenario = tests::generation(tests::small_llama(), 2, 1);
  scenario.workload.dtype = sim::DType::bf16;
  scenario.hardware.peak[sim::DType::bf16] = sim::tflops(0.1);
  scenario.workload.weights_dtype = sim::DType::int8;
  scenario.workload.weights_group = 64;
  CHECK_THROWS_WITH(runtime::Run(scenario, open_gpu()),
                    "weights in int8 run with workload.weights_group 0, not 64 (0: a scale for each row)");
  scenario.workload.weights_group = 0;
  scenario.workload.weights_zeros = false;
  CHECK_THROWS_WITH(
      runtime::Run(scenario, open_gpu()),
      Catch::Matchers::Contains("a group's scale in 32 bits; workload.weights_zeros must be true"));
  scenario.workload.weights_zeros = true;
  scenario.workload.dtype = sim::DType::fp32;
  CHECK_THROWS_WITH(
      runtime::Run(scenario, open_gpu()),
      Catch::Matchers::Contains("stores weights as it multiplies them; workload.weights_dtype is int8"));
  scenario.workload.weights_dtype = sim::DType::bf16;
  CHECK_THROWS_WITH(
      runtime::Run(scenario, runtime::make_cpu_device(1)),
      Catch::Matchers::Contains("q2_k while it multiplies in fp32; workload.weights_dtype is bf16"));
}

TEST_CASE("a GPU that is not there and a type that it does not compute in are said so", "[plan]") {
  CHECK_THROWS_AS(runtime::make_cuda_device({.ordinal = 99}), runtime::NoDevice);
  sim::Scenario scenario = tests::training(tests::small_llama());
  scenario.workload.dtype = sim::DType::int8;
  scenario.hardware.peak[sim::DType::int8] = sim::tflops(0.1);
  CHECK_THROWS_WITH(
      runtime::Run(scenario, open_gpu()),
      Catch::Matchers::EndsWith(" computes in bf16, fp16, fp32, tf32, fp8; workload.dtype is int8"));
  const auto has_fp8 = [](int compute_capability) {
    const auto types = runtime::cuda_dtypes(compute_capability);
    return std::find(types.begin(), types.end(), sim::DType::fp8) != types.end();
  };
  CHECK_FALSE(has_fp8(80));  // A100
  CHECK(has_fp8(89));        // Ada
  CHECK(has_fp8(90));        // H100
}

TEST_CASE(
    "products in fp8 of sizes that Hopper's tensor cores do not take are refused before anything starts",
    "[plan]") {
  sim::Model model = tests::small_llama();
  model.intermediate_size = 72;
  sim::Scenario scenario = training(model, sim::DType::fp8, sim::AttentionKind::flash);
  scenario.hardware.peak[sim::DType::fp8] = sim::tflops(0.2);
  CHECK_THROWS_WITH(runtime::Run(scenario, open_gpu()),
                    Catch::Matchers::Contains("has no kernel for layer.mlp.down.forward (matmul in fp8)"));
}

TEST_CASE("memory in use on the GPU is the arena and what the device keeps for itself", "[plan]") {
  const sim::Scenario scenario = training(tests::small_llama(), sim::DType::bf16, sim::AttentionKind::flash);
  runtime::Run run(scenario, open_gpu());
  CHECK(run.executor().arena().size() == run.memory().arena);
  CHECK(run.executor().arena().resident() == run.memory().arena);
  run.fill_parameters(tests::drawn(scenario.model), 1);
  fill_inputs(run);
  run.executor().run(0, step_settings(1));
  sim::Report report;
  run.add_memory(report, run.executor().stamps());
  sim::Bytes planned, platform;
  std::set<std::string> parts;
  for (const sim::MemoryLine& line : report.memory) {
    CHECK(line.bytes.value >= 0);
    (line.category.starts_with("platform") ? platform : planned) += line.bytes;
    parts.insert(line.category);
  }
  CHECK(planned == run.memory().arena);
  CHECK(parts.count("platform.kernel_scratch") == 1);
  // All that is in use of the device is some line's.
  CHECK(planned + platform == run.device().in_use());
}

TEST_CASE("memory that others have taken since is an error of the device that says how much there is",
          "[plan]") {
  const std::unique_ptr<runtime::Device> gpu = open_gpu();
  const sim::Bytes more{gpu->available().value + 1};
  CHECK_THROWS_WITH(gpu->allocate(more), Catch::Matchers::Contains(" of memory are left: ") &&
                                             Catch::Matchers::Contains("other processes"));
  CHECK_THROWS_AS(gpu->allocate(more), runtime::DeviceError);
  gpu->release(gpu->allocate({1 << 20}), {1 << 20});  // and nothing is broken by it
}
