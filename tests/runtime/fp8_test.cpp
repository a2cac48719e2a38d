// Training with fp8 products on the CPU, beside plain loops in double that round and multiply as the plan
// says.
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "runtime/cpu/arguments.h"
#include "runtime/error.h"
#include "runtime/generate.h"
#include "runtime/run.h"
#include "runtime/train.h"
#include "sim/cost/predict.h"
#include "sim/report/metrics.h"
#include "tests/kernels/fp8_reference.h"
#include "tests/runtime/random_strategy.h"
#include "tests/runtime/short_training.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

namespace cuda = kernels::cuda;
using K = sim::OpKind;
using R = sim::Role;

// The CPU, but for conversions to fp8 and the products that read them: these are loops in double, whose
// results are rounded once.
class PlainFp8 final : public runtime::Device {
 public:
  // Counts the products.
  explicit PlainFp8(std::int64_t& products) : products_(products) {}
  std::string name() const override { return "plain fp8"; }
  std::span<const sim::DType> dtypes() const override { return cpu_->dtypes(); }
  bool shares_host_memory() const override { return true; }
  bool supports(const sim::Operation& operation, std::span<const sim::DType> types) const override {
    return cpu_->supports(operation, types);
  }
  sim::Bytes available() const override { return cpu_->available(); }
  sim::Bytes in_use() const override { return cpu_->in_use(); }
  std::byte* allocate(sim::Bytes size) override { return cpu_->allocate(size); }
  void release(std::byte* memory, sim::Bytes size) noexcept override { cpu_->release(memory, size); }
  sim::Bytes resident(const std::byte* memory, sim::Bytes size) const override {
    return cpu_->resident(memory, size);
  }
  void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
    cpu_->copy_to_device(to, from);
  }
  void copy_from_device(std::span<std::byte> to, const std::byte* from) override {
    cpu_->copy_from_device(to, from);
  }
  void record(std::size_t index) override { cpu_->record(index); }
  void synchronise() override { cpu_->synchronise(); }
  void stamps(std::span<double> seconds) const override { cpu_->stamps(seconds); }

  void run(const runtime::BoundOperation& operation, const runtime::RunSettings& settings) override {
    const runtime::Arguments a(operation);
    if (operation.operation->kind == K::quantise) return quantise(a);
    if (operation.operation->dtype != sim::DType::fp8) return cpu_->run(operation, settings);
    ++products_;
    switch (operation.operation->kind) {
      case K::matmul:
        return forward(a);
      case K::matmul_backward_input:
        return backward_input(a);
      case K::matmul_backward_weight:
        return backward_weight(a);
      default:
        FAIL("a product in fp8 of another kind");
    }
  }

 private:
  struct Tensor {
    reference::Type format{};
    double scale = 1;
  };

  // Elements of a tensor in bf16 or fp8.
  class Elements {
   public:
    Elements(const PlainFp8& device, const runtime::BoundOperand* operand) : operand_(operand) {
      if (operand && operand->dtype == sim::DType::fp8) tensor_ = device.tensors_.at(operand->data);
    }
    bool absent() const { return !operand_ || !operand_->data; }
    double at(std::int64_t i) const {
      if (absent()) return 0;
      if (operand_->dtype == sim::DType::bf16)
        return static_cast<double>(cuda::to_float(reinterpret_cast<const cuda::bf16*>(operand_->data)[i]));
      if (operand_->dtype != sim::DType::fp8) FAIL("a product in fp8 reads " << sim::name(operand_->dtype));
      return reference::fp8_value(tensor_.format, std::to_integer<std::uint32_t>(operand_->data[i])) *
             tensor_.scale;
    }

   private:
    const runtime::BoundOperand* operand_;
    Tensor tensor_;
  };
  Elements elements(const runtime::Arguments& a, R role) const { return {*this, a.find(role)}; }

  static void put(const runtime::Arguments& a, R role, std::int64_t i, double value) {
    if (a.dtype(role) != sim::DType::bf16) FAIL("a product in fp8 writes " << sim::name(a.dtype(role)));
    a.b16(role)[i] = cuda::to_bf16(static_cast<float>(value));
  }

  void quantise(const runtime::Arguments& a) {
    const Elements inp = elements(a, R::inp);
    const std::int64_t count = a.find(R::out)->bytes;
    float largest = 0;
    for (std::int64_t i = 0; i < count; ++i)
      largest = std::max(largest, static_cast<float>(std::abs(inp.at(i))));
    const float scale = largest > 0 ? largest / a.scalar() : 1;
    const reference::Type format = a.scalar() == 448 ? reference::Type::e4m3 : reference::Type::e5m2;
    for (std::int64_t i = 0; i < count; ++i)
      a.as<std::uint8_t>(R::out)[i] =
          reference::nearest_fp8(format, static_cast<double>(static_cast<float>(inp.at(i)) / scale));
    tensors_[a.as<std::byte>(R::out)] = {format, static_cast<double>(scale)};
  }

  void forward(const runtime::Arguments& a) const {
    const Elements inp = elements(a, R::inp), weight = elements(a, R::weight), bias = elements(a, R::bias),
                   residual = elements(a, R::residual);
    const kernels::MatmulShape s = a.matmul();
    for (std::int64_t m = 0; m < s.M; ++m)
      for (std::int64_t n = 0; n < s.N; ++n) {
        double sum = bias.at(n) + residual.at(m * s.N + n);
        for (std::int64_t k = 0; k < s.K; ++k) sum += inp.at(m * s.K + k) * weight.at(n * s.K + k);
        put(a, R::out, m * s.N + n, sum);
      }
  }

  void backward_input(const runtime::Arguments& a) const {
    const Elements dinp = elements(a, R::dinp), dout = elements(a, R::dout), weight = elements(a, R::weight);
    const kernels::MatmulShape s = a.matmul();
    for (std::int64_t m = 0; m < s.M; ++m)
      for (std::int64_t k = 0; k < s.K; ++k) {
        double sum = a.updates(R::dinp) ? dinp.at(m * s.K + k) : 0;
        for (std::int64_t n = 0; n < s.N; ++n) sum += dout.at(m * s.N + n) * weight.at(n * s.K + k);
        put(a, R::dinp, m * s.K + k, sum);
      }
  }

  void backward_weight(const runtime::Arguments& a) const {
    const Elements dweight = elements(a, R::dweight), dbias = elements(a, R::dbias),
                   dout = elements(a, R::dout), inp = elements(a, R::inp);
    const kernels::MatmulShape s = a.matmul();
    const bool adds = a.updates(R::dweight);
    for (std::int64_t n = 0; n < s.N; ++n) {
      for (std::int64_t k = 0; k < s.K; ++k) {
        double sum = adds ? dweight.at(n * s.K + k) : 0;
        for (std::int64_t m = 0; m < s.M; ++m) sum += dout.at(m * s.N + n) * inp.at(m * s.K + k);
        put(a, R::dweight, n * s.K + k, sum);
      }
      if (dbias.absent()) continue;
      double sum = adds ? dbias.at(n) : 0;
      for (std::int64_t m = 0; m < s.M; ++m) sum += dout.at(m * s.N + n);
      put(a, R::dbias, n, sum);
    }
  }

  std::int64_t& products_;
  std::unique_ptr<runtime::Device> cpu_ = runtime::make_cpu_device(1);
  std::map<const std::byte*, Tensor> tensors_;
};

sim::Scenario in(sim::DType type, sim::Scenario scenario) {
  scenario.workload.dtype = type;
  scenario.hardware.peak[type] = scenario.hardware.peak[sim::DType::bf16] = sim::tflops(0.1);
  return scenario;
}

struct Step {
  double loss = 0;
  std::map<std::pair<std::string, std::int32_t>, std::vector<float>> gradients;
};

// The first step.
Step step_of(const sim::Scenario& scenario, std::unique_ptr<runtime::Device> device) {
  runtime::Run run(scenario, std::move(device));
  run.fill_parameters(tests::drawn(scenario.model), 1);
  const sim::Workload& w = scenario.workload;
  const auto count = static_cast<std::size_t>(w.micro_batch_size * w.seq_len);
  const std::int64_t micro_batches = w.global_batch_size / w.micro_batch_size;
  for (std::int32_t m = 0; m < micro_batches; ++m) {
    std::vector<std::int32_t> tokens(count), targets(count);
    for (std::size_t i = 0; i < count; ++i) {
      tokens[i] = static_cast<std::int32_t>((7 * i + 13 * static_cast<std::size_t>(m) + i * i) % 251);
      targets[i] = static_cast<std::int32_t>((5 * i + 1) % 251);
    }
    run.write(run.plan().find(sim::buffer_names::tokens), std::span<const std::int32_t>(tokens), 0, m);
    run.write(run.plan().find(sim::buffer_names::targets), std::span<const std::int32_t>(targets), 0, m);
  }
  runtime::RunSettings settings;
  settings.adamw = {
      .learning_rate = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .step = 1};
  run.executor().run(0, settings);
  Step step;
  std::vector<float> losses(count);
  for (std::int32_t m = 0; m < micro_batches; ++m) {
    run.read(run.plan().find(sim::buffer_names::losses), std::span(losses), 0, m);
    for (const float loss : losses) step.loss += static_cast<double>(loss) / static_cast<double>(count);
  }
  step.loss /= static_cast<double>(micro_batches);
  for (const runtime::InstanceName& name : run.instances_of(sim::BufferClass::gradient)) {
    std::vector<float> values(run.elements_of(name));
    run.read_values(name, values);
    step.gradients[{run.plan().buffers[static_cast<std::size_t>(name.buffer)].name, name.layer}] = values;
  }
  return step;
}

// ||a - b|| / ||b||
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(size > 0 ? difference / size : difference);
}

runtime::TrainSettings settings_for(const TemporaryFolder& folder, std::int64_t steps) {
  return tests::short_training(folder, steps, 3e-3f, 1);
}

using tests::train;

}  // namespace

TEST_CASE("A training step in fp8 is that of plain loops which round factors to fp8 and sum in double") {
  const sim::Model model = GENERATE(tests::small_gpt(), tests::small_llama());
  CAPTURE(model.name);
  const sim::Scenario scenario = in(sim::DType::fp8, tests::training(model, 10, 1, 2));
  std::int64_t products = 0;
  const Step plain = step_of(scenario, std::make_unique<PlainFp8>(products));
  // Four weights a layer, forward and backward twice, of two micro-batches.
  CHECK(products == 4 * model.num_hidden_layers * 3 * 2);
  const Step kernels = step_of(scenario, runtime::make_cpu_device(1));
  const Step bf16 = step_of(in(sim::DType::bf16, scenario), runtime::make_cpu_device(1));
  CHECK(kernels.loss == Approx(plain.loss).epsilon(1e-5));
  CHECK(bf16.loss != Approx(plain.loss).epsilon(1e-5));
  // Sums in fp32 and in double round to the same number of bf16 but for a few.
  constexpr double kFewOfBf16 = 0x1p-10;
  for (const auto& [name, gradient] : plain.gradients) {
    CAPTURE(name.first, name.second);
    CHECK(distance(kernels.gradients.at(name), gradient) < kFewOfBf16);
    if (name.first == "gradient.layer.attention.qkv.weight")
      CHECK(distance(bf16.gradients.at(name), gradient) > 10 * kFewOfBf16);
  }
}

TEST_CASE("Training in fp8 lowers the loss nearly as far as bf16, of every sort of layer") {
  const TemporaryFolder folder;
  const sim::Scenario scenario = tests::training(
      GENERATE(tests::small_gpt(), tests::small_llama(), tests::small_experts(), tests::small_hybrid()));
  CAPTURE(scenario.model.name);
  const runtime::TrainSettings settings = settings_for(folder, 30);
  const double wide = train(in(sim::DType::bf16, scenario), settings).steps.back().loss;
  const double narrow = train(in(sim::DType::fp8, scenario), settings).steps.back().loss;
  const double guessing = std::log(static_cast<double>(scenario.model.vocab_size));
  CHECK(wide < guessing - 0.05);
  CHECK(narrow != wide);
  CHECK(guessing - narrow > 0.9 * (guessing - wide));
}

TEST_CASE("Training in fp8 takes the memory that its plan says, to the byte, with a byte an element in fp8") {
  const TemporaryFolder folder;
  const sim::Scenario scenario = in(sim::DType::fp8, tests::training(tests::small_llama()));
  const sim::Report measured = train(scenario, settings_for(folder, 2));
  CHECK(sim::planned_memory(measured) == sim::planned_memory(sim::predict(scenario, nullptr)));
  const runtime::Run run(scenario, 1);
  std::set<std::string> converted;
  for (const sim::Instance& instance : run.memory().instances) {
    const sim::Buffer& buffer = run.plan().buffers[static_cast<std::size_t>(instance.buffer)];
    if (buffer.dtype != sim::DType::fp8) continue;
    CHECK(instance.bytes.value == buffer.elements({.batch = 2, .query_length = 16, .kv_length = 16}));
    converted.insert(buffer.name);
  }
  CHECK(converted.size() > 8);  // inputs, weights and gradients of a layer's products
}

TEST_CASE("Two runs in fp8 are the same bits, and so is one that stops and resumes") {
  const TemporaryFolder folder;
  const sim::Scenario scenario = in(sim::DType::fp8, tests::training(tests::small_llama()));
  runtime::TrainSettings settings = settings_for(folder, 6);
  settings.schedule = runtime::LearningRateSchedule::constant;
  const sim::Report whole = train(scenario, settings);
  settings.device.threads = 2;
  const sim::Report again = train(scenario, settings);
  for (std::size_t i = 0; i < 6; ++i) CHECK(again.steps[i].loss == whole.steps[i].loss);
  settings.checkpoint = (folder.path() / "checkpoint").string();
  settings.steps = 3;
  train(scenario, settings);
  settings.resume = true;
  settings.steps = 6;
  const sim::Report second = train(scenario, settings);
  REQUIRE(second.steps.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(second.steps[i].loss == whole.steps[3 + i].loss);
}

TEST_CASE("Recompute in fp8 gives the bits of a step that keeps what it needs") {
  const TemporaryFolder folder;
  sim::Scenario scenario = in(sim::DType::fp8, tests::training(tests::small_gpt()));
  const sim::Report kept = train(scenario, settings_for(folder, 3));
  scenario.strategy.recompute = sim::Recompute::full;
  const sim::Report computed_again = train(scenario, settings_for(folder, 3));
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(computed_again.steps[i].loss == kept.steps[i].loss);
    CHECK(computed_again.steps[i].grad_norm == kept.steps[i].grad_norm);
  }
}

TEST_CASE("With gradients in fp32, too, products in fp8 train, and the loss is near that of bf16's") {
  const TemporaryFolder folder;
  sim::Scenario scenario = in(sim::DType::fp8, tests::training(tests::small_llama()));
  const sim::Report narrow = train(scenario, settings_for(folder, 5));
  scenario.implementation.gradient_dtype = sim::DType::fp32;
  const sim::Report wide = train(scenario, settings_for(folder, 5));
  CHECK(wide.steps.front().loss == narrow.steps.front().loss);
  CHECK(wide.steps.back().loss == Approx(narrow.steps.back().loss).epsilon(1e-2));
}

TEST_CASE("Generation in fp8 is refused on the CPU by a sentence that says what it takes") {
  const sim::Scenario scenario = in(sim::DType::fp8, tests::generation(tests::small_llama(), 2));
  CHECK_THROWS_WITH(runtime::Run(scenario, 1),
                    Catch::Matchers::EndsWith("trains in fp8, but does not generate in it; workload.dtype "
                                              "must be fp32, bf16 or fp16"));
}

TEST_CASE("Weights stored in fp8 give logits as far off as e4m3 is, in the memory that was predicted") {
  sim::Scenario scenario = tests::generation(GENERATE(tests::small_llama(), tests::small_gpt()), 6, 2);
  CAPTURE(scenario.model.name);
  runtime::GenerateSettings settings;
  settings.prompt = {1, 2, 3};
  settings.device.threads = 1;
  const auto generate = [&] {
    return runtime::generate(scenario, tests::drawn(scenario.model), settings, {}, {});
  };
  const auto parameters = [](const sim::Report& report) {
    std::int64_t bytes = 0;
    for (const sim::MemoryLine& line : report.memory)
      if (line.category == "parameter") bytes += line.bytes.value;
    return bytes;
  };
  const runtime::Generation exact = generate();
  scenario.workload.weights_dtype = sim::DType::fp8;
  scenario.hardware.peak[sim::DType::fp8] = sim::tflops(0.1);
  const runtime::Generation stored = generate();
  // Errors up to half a unit in the last place, uniform; those of the layers' products add up as random
  // numbers do.
  const double products = 4 * static_cast<double>(scenario.model.num_hidden_layers);
  CHECK(distance(stored.first_logits, exact.first_logits) < 0x1p-4 / std::sqrt(3.0) * std::sqrt(products));
  CHECK(distance(stored.first_logits, exact.first_logits) > 0x1p-8);
  CHECK(parameters(stored.report) == parameters(sim::predict(scenario)));
  CHECK(parameters(stored.report) < parameters(exact.report));

  scenario.workload.weights_group = 32;
  CHECK_THROWS_WITH(generate(),
                    Catch::Matchers::StartsWith("weights in fp8 run with workload.weights_group 0"));
}
