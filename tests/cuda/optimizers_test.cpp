// Optimizers on the GPU, thread by thread: kernels against loops in double, whole steps against the CPU's,
// which torch's are compared with (tests/runtime/parity_test.cpp).
#include <cmath>
#include <map>

#include "kernels/cuda/muon.h"
#include "kernels/cuda/optimizer.h"
#include "runtime/cuda_device.h"
#include "runtime/run.h"
#include "tests/cuda/on_gpu.h"
#include "tests/runtime/small_run.h"

namespace cuda = kernels::cuda;
using cuda::Type;
using test::kBackward;
using test::kForward;
using test::to_double;
using tests::check_as_accurate_as_plain;
using tests::DeviceArray;
using tests::in_every_order;
using tests::no_scratch;
using tests::normal_tensor;
using tests::OnGpu;
using tests::rounded;
using tests::Scratch;

namespace {

constexpr kernels::AdamWSettings kSettings{
    .learning_rate = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .step = 3};
constexpr float kGradientScale = 0.5f;

template <class Real>
struct Sgd {
  std::vector<Real> parameter, moment;
  void step(const std::vector<float>& gradient) {
    for (std::size_t i = 0; i < parameter.size(); ++i) {
      moment[i] = Real(kSettings.beta1) * moment[i] +
                  (Real(kGradientScale) * gradient[i] + Real(kSettings.weight_decay) * parameter[i]);
      parameter[i] -= Real(kSettings.learning_rate) * moment[i];
    }
  }
};

// By the definition, without turning tall matrices: the polynomial of X X^T times X, every matrix rounded.
template <class Real>
std::vector<Real> orthogonal(std::vector<Real> x, std::size_t rows, std::size_t cols, Type type) {
  const auto keep = [&](std::vector<Real> values) {
    if constexpr (std::is_same_v<Real, float>) return rounded(std::move(values), type);
    return values;
  };
  double squares = 0;
  for (const Real value : x) squares += static_cast<double>(value) * static_cast<double>(value);
  for (Real& value : x) value = static_cast<Real>(static_cast<double>(value) / std::sqrt(squares));
  x = keep(x);
  for (int iteration = 0; iteration < 5; ++iteration) {
    std::vector<Real> gram(rows * rows), factor(rows * rows), next = x;
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < rows; ++j)
        for (std::size_t l = 0; l < cols; ++l) gram[i * rows + j] += x[i * cols + l] * x[j * cols + l];
    gram = keep(gram);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < rows; ++j) {
        Real sum = 0;
        for (std::size_t l = 0; l < rows; ++l) sum += gram[i * rows + l] * gram[l * rows + j];
        factor[i * rows + j] = Real(-4.7750) * gram[i * rows + j] + Real(2.0315) * sum;
      }
    factor = keep(factor);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < cols; ++j) {
        Real sum = 0;
        for (std::size_t l = 0; l < rows; ++l) sum += factor[i * rows + l] * x[l * cols + j];
        next[i * cols + j] = Real(3.4445) * x[i * cols + j] + sum;
      }
    x = keep(next);
  }
  for (Real& value : x) value *= Real(0.2) * std::sqrt(Real(std::max(rows, cols)));
  return keep(x);
}

// What steps leave: losses of the last, every parameter and every state by name and layer.
struct Steps {
  std::vector<float> losses;
  std::map<std::pair<std::string, std::int32_t>, std::vector<float>> parameters;
};

constexpr std::int64_t kTokens = 16;

runtime::RunSettings settings_of(std::int64_t step) {
  runtime::RunSettings settings;
  settings.adamw = kSettings;
  settings.adamw.step = step;
  settings.max_gradient_norm = 1;
  return settings;
}

Steps steps_of(const sim::Scenario& scenario, std::unique_ptr<runtime::Device> device, std::int64_t steps) {
  runtime::Run run(scenario, std::move(device));
  run.fill_parameters(tests::drawn(scenario.model), 1);
  std::vector<std::int32_t> tokens(kTokens), targets(kTokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>((7 * i + i * i) % 251);
    targets[i] = static_cast<std::int32_t>((5 * i + 1) % 251);
  }
  run.write(run.plan().find(sim::buffer_names::tokens), std::span<const std::int32_t>(tokens));
  run.write(run.plan().find(sim::buffer_names::targets), std::span<const std::int32_t>(targets));
  for (std::int64_t step = 1; step <= steps; ++step) run.executor().run(0, settings_of(step));
  Steps result;
  result.losses.resize(tokens.size());
  run.read(run.plan().find(sim::buffer_names::losses), std::span(result.losses));
  for (const runtime::InstanceName& name : run.instances_of(sim::BufferClass::parameter)) {
    std::vector<float> values(run.elements_of(name));
    run.read_values(name, values);
    result.parameters[{run.plan().buffers[static_cast<std::size_t>(name.buffer)].name, name.layer}] = values;
  }
  return result;
}

// ||a - b|| / ||b||
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

sim::Scenario scenario_of(sim::Optimizer optimizer, sim::DType dtype) {
  // Without biases, whose gradients nearly vanish: AdamW makes steps of what rounding leaves of them.
  sim::Model model = tests::small_llama();
  model.num_hidden_layers = 1;
  sim::Scenario s = tests::training(model, kTokens, 1, 1);
  s.workload.optimizer = optimizer;
  s.workload.dtype = dtype;
  s.hardware.peak[sim::DType::bf16] = s.hardware.peak[sim::DType::fp16] = sim::tflops(0.1);
  return s;
}

std::unique_ptr<runtime::Device> open_gpu() {
  return runtime::make_cuda_device({.deterministic = true, .scratch = sim::Bytes{1 << 22}});
}

// AdamW's and Lion's steps are those of device_test.cpp.
const std::vector<sim::Optimizer> kOptimizers = {sim::Optimizer::sgd, sim::Optimizer::muon};

}  // namespace

TEST_CASE("SGD on the GPU is as accurate as plain loops, on the master copy in mixed precision") {
  for (const std::int64_t count : {1001, 2000}) {
    const auto parameter = normal_tensor(count, 1, Type::f32), gradient = normal_tensor(count, 2, Type::bf16),
               moment = normal_tensor(count, 3, Type::f32);
    Sgd<float> plain{parameter, moment};
    Sgd<double> exact{to_double(parameter), to_double(moment)};
    plain.step(gradient);
    exact.step(gradient);
    OnGpu<cuda::AdamWStep> step(cuda::adamw_step(kSettings, 0));
    OnGpu<double> scale(kGradientScale);
    DeviceArray p(parameter, Type::bf16), g(gradient, Type::bf16), m(moment, Type::f32),
        master(parameter, Type::f32);
    const cuda::SgdTensor tensor{p, g, m.f32(), master.f32(), count, 0};
    cuda::sgd(no_scratch(), {&tensor, 1}, scale.data(), step.data(), true);
    check_as_accurate_as_plain(master.values(), plain.parameter, exact.parameter, Type::f32, kForward);
    check_as_accurate_as_plain(m.values(), plain.moment, exact.moment, Type::f32, kForward);
    CHECK(p.values() == rounded(master.values(), Type::bf16));
  }
}

TEST_CASE("Muon's momentum and step on the GPU are as accurate as plain loops, and skip what overflowed") {
  const std::int64_t count = 1001;
  const auto parameter = normal_tensor(count, 1, Type::f32), gradient = normal_tensor(count, 2, Type::bf16),
             moment = normal_tensor(count, 3, Type::f32);
  const auto step_of = [&]<class Real>(Real scale) {
    struct {
      std::vector<Real> moment, update, parameter;
    } s;
    const Real beta = kSettings.beta1, rate = kSettings.learning_rate, decay = kSettings.weight_decay;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const Real g = scale * gradient[i], m = beta * moment[i] + (1 - beta) * g;
      s.moment.push_back(m);
      s.update.push_back((1 - beta) * g + beta * m);
      s.parameter.push_back(parameter[i] - rate * decay * parameter[i] - rate * s.update.back());
    }
    return s;
  };
  const auto plain = step_of(kGradientScale);
  const auto exact = step_of(double{kGradientScale});
  OnGpu<cuda::AdamWStep> step(cuda::adamw_step(kSettings, 0));
  const auto run = [&](double scale_value, const auto& check) {
    OnGpu<double> scale(scale_value);
    DeviceArray p(parameter, Type::bf16), g(gradient, Type::bf16), m(moment, Type::f32), u(count, Type::f32),
        master(parameter, Type::f32);
    const cuda::MuonMomentumTensor momentum{u, g, m.f32(), count};
    cuda::muon_momentum(no_scratch(), {&momentum, 1}, scale.data(), step.data());
    const cuda::MuonTensor tensor{p, u, master.f32(), count, 0};
    cuda::apply_update(no_scratch(), {&tensor, 1}, scale.data(), step.data(), true);
    CHECK(p.values() == rounded(master.values(), Type::bf16));
    check(m.values(), u.values(), master.values());
  };
  run(kGradientScale, [&](const auto& moments, const auto& updates, const auto& masters) {
    check_as_accurate_as_plain(moments, plain.moment, exact.moment, Type::f32, kForward);
    check_as_accurate_as_plain(updates, plain.update, exact.update, Type::f32, kForward);
    check_as_accurate_as_plain(masters, plain.parameter, exact.parameter, Type::f32, kForward);
  });
  run(0, [&](const auto& moments, const auto& updates, const auto& masters) {
    CHECK(moments == moment);
    CHECK(updates == std::vector<float>(static_cast<std::size_t>(count), 0.0f));
    CHECK(masters == parameter);
  });
}

TEST_CASE("matrices made orthogonal on the GPU, wide, square and tall, are as accurate as plain loops") {
  struct Size {
    std::int64_t rows, cols;
  };
  for (const Type type : {Type::f32, Type::bf16, Type::f16})
    for (const Size s : {Size{4, 4}, {3, 20}, {24, 24}, {50, 17}, {8, 64}}) {
      CAPTURE(s.rows, s.cols, static_cast<int>(type));
      const std::int64_t all = s.rows * s.cols, matrices = 3;
      const auto updates = normal_tensor(matrices * all, 1, type, 1e-3f);
      // Three matrices at once, and one after the other.
      for (const std::int64_t bytes : {std::int64_t{1} << 18, 2 * all * 12 + 4096}) {
        Scratch scratch(bytes);
        DeviceArray update(updates, type);
        cuda::Products products(true);
        cuda::orthogonalise(scratch.context(), products, update, {matrices, s.rows, s.cols}, false);
        const auto values = update.values();
        std::vector<float> plain;
        std::vector<double> exact;
        for (std::int64_t m = 0; m < matrices; ++m) {
          const std::vector<float> one(updates.begin() + m * all, updates.begin() + (m + 1) * all);
          const auto rows = static_cast<std::size_t>(s.rows), cols = static_cast<std::size_t>(s.cols);
          for (const float x : orthogonal(one, rows, cols, type)) plain.push_back(x);
          for (const double x : orthogonal(to_double(one), rows, cols, type)) exact.push_back(x);
        }
        check_as_accurate_as_plain(values, plain, exact, type, kBackward);
      }
    }
}

TEST_CASE("Three steps of each optimizer give on the GPU the CPU's losses and parameters", "[plan]") {
  for (const sim::Optimizer optimizer : kOptimizers) {
    CAPTURE(sim::name(optimizer));
    const sim::Scenario scenario = scenario_of(optimizer, sim::DType::fp32);
    const Steps gpu = steps_of(scenario, open_gpu(), 3),
                cpu = steps_of(scenario, runtime::make_cpu_device(1), 3);
    CHECK(distance(gpu.losses, cpu.losses) < 1e-5);
    REQUIRE(gpu.parameters.size() == cpu.parameters.size());
    for (const auto& [name, values] : cpu.parameters) {
      CAPTURE(name.first, name.second);
      CHECK(distance(gpu.parameters.at(name), values) < 2e-4);
    }
    // In 16 bits with master copies: parameters that nearly agree.
    for (const sim::DType dtype : {sim::DType::bf16, sim::DType::fp16}) {
      const Steps narrow = steps_of(scenario_of(optimizer, dtype), open_gpu(), 3);
      for (const auto& [name, values] : cpu.parameters) {
        CAPTURE(name.first, name.second);
        CHECK(distance(narrow.parameters.at(name), values) < 0.05);
      }
    }
  }
}
