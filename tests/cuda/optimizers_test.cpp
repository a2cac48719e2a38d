// Optimizers on the GPU, thread by thread: kernels against loops in double, whole steps against the CPU's,
// which torch's are compared with (tests/runtime/parity_test.cpp).
#include <array>
#include <cmath>
#include <map>

#include "kernels/cuda/adafactor.h"
#include "kernels/cuda/adam_8bit.h"
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

// Shazeer, Stern 2018, algorithms 4 and 5, with torch.optim.Adafactor's constants, of one matrix or vector.
template <class Real>
struct Adafactor {
  std::size_t rows, cols;
  bool is_matrix;
  std::vector<Real> parameter, row_moment, column_moment;
  void step(const std::vector<float>& gradient) {
    const Real t = static_cast<Real>(kSettings.step), by = std::pow(t, Real(-0.8)), eps = 0x1p-23f;
    const auto move = [&](Real& moment, Real towards) { moment += by * (towards - moment); };
    std::vector<Real> of_rows(rows), of_columns(cols), update(parameter.size());
    Real size = 0, mean = 0, squares = 0;
    for (std::size_t i = 0; i < parameter.size(); ++i) {
      const Real g = Real(kGradientScale) * gradient[i];
      of_rows[i / cols] += g * g / static_cast<Real>(cols);
      of_columns[i % cols] += g * g / static_cast<Real>(rows);
      size += parameter[i] * parameter[i] / static_cast<Real>(parameter.size());
    }
    for (std::size_t j = 0; j < cols; ++j) move(column_moment[j], of_columns[j]);
    for (std::size_t i = 0; is_matrix && i < rows; ++i) {
      move(row_moment[i], of_rows[i]);
      mean += row_moment[i] / static_cast<Real>(rows);
    }
    for (std::size_t i = 0; i < parameter.size(); ++i) {
      const Real of_row = is_matrix ? row_moment[i / cols] / std::max(mean, eps) : Real(1);
      update[i] = Real(kGradientScale) * gradient[i] /
                  std::sqrt(std::max(of_row * column_moment[i % cols], eps * eps));
      squares += update[i] * update[i] / static_cast<Real>(parameter.size());
    }
    const Real rate = std::min(Real(kSettings.learning_rate), 1 / std::sqrt(t));
    const Real most = std::max(Real(1e-3), std::sqrt(size)) * rate / std::max(Real(1), std::sqrt(squares));
    for (std::size_t i = 0; i < parameter.size(); ++i)
      parameter[i] = parameter[i] * (1 - Real(kSettings.learning_rate) * Real(kSettings.weight_decay)) -
                     most * update[i];
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

using Values = std::map<std::pair<std::string, std::int32_t>, std::vector<float>>;

// What steps leave: losses of the last, and parameters.
struct Steps {
  std::vector<float> losses;
  Values parameters;
};

constexpr std::int64_t kTokens = 16;

runtime::RunSettings settings_of(std::int64_t step, float loss_scale = 0) {
  runtime::RunSettings settings;
  settings.loss_scale = loss_scale;
  settings.adamw = kSettings;
  settings.adamw.step = step;
  settings.max_gradient_norm = 1;
  return settings;
}

void fill(runtime::Run& run) {
  run.fill_parameters(tests::drawn(run.plan().scenario.model), 1);
  std::vector<std::int32_t> tokens(kTokens), targets(kTokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>((7 * i + i * i) % 251);
    targets[i] = static_cast<std::int32_t>((5 * i + 1) % 251);
  }
  run.write(run.plan().find(sim::buffer_names::tokens), std::span<const std::int32_t>(tokens));
  run.write(run.plan().find(sim::buffer_names::targets), std::span<const std::int32_t>(targets));
}

// By name and layer, but for codes of 8 bits.
Values values_of(runtime::Run& run, sim::BufferClass buffer_class) {
  Values all;
  for (const runtime::InstanceName& name : run.instances_of(buffer_class)) {
    const sim::Buffer& buffer = run.plan().buffers[static_cast<std::size_t>(name.buffer)];
    if (buffer.dtype == sim::DType::int8 || buffer.dtype == sim::DType::fp64) continue;
    std::vector<float> values(run.elements_of(name));
    run.read_values(name, values);
    all[{buffer.name, name.layer}] = values;
  }
  return all;
}

// Captured: all steps but the first are run whole, captured and replayed.
Steps steps_of(const sim::Scenario& scenario, std::unique_ptr<runtime::Device> device, std::int64_t steps,
               bool captured = false) {
  runtime::Run run(scenario, std::move(device));
  fill(run);
  for (std::int64_t step = 1; step <= steps; ++step) {
    if (captured && step > 1)
      run.executor().run_whole(0, settings_of(step));
    else
      run.executor().run(0, settings_of(step));
  }
  Steps result;
  result.losses.resize(static_cast<std::size_t>(kTokens));
  run.read(run.plan().find(sim::buffer_names::losses), std::span(result.losses));
  result.parameters = values_of(run, sim::BufferClass::parameter);
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
const std::vector<sim::Optimizer> kOptimizers = {sim::Optimizer::sgd, sim::Optimizer::muon,
                                                 sim::Optimizer::adamw_8bit, sim::Optimizer::adafactor};

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

TEST_CASE("AdamW's moments in 8 bits on the GPU are the CPU's codes, its step as accurate as plain loops") {
  // Blocks that lanes fill in vectors and one by one, and a last one that is not full.
  for (const std::int64_t count : {3 * kernels::kMomentBlock + 17, 40 * kernels::kMomentBlock + 8}) {
    const auto n = static_cast<std::size_t>(count), blocks = (n + 255) / 256;
    const auto parameter = normal_tensor(count, 1, Type::f32), gradient = normal_tensor(count, 2, Type::bf16);
    std::vector<std::uint8_t> code1(n), code2(n);
    for (std::size_t i = 0; i < n; ++i) {
      code1[i] = static_cast<std::uint8_t>(37 * i + i / 256);
      code2[i] = static_cast<std::uint8_t>(101 * i + i / 256);
    }
    std::vector<float> scale1(blocks), scale2(blocks);
    for (std::size_t b = 0; b < blocks; ++b) {
      scale1[b] = 0.3f + 0.01f * static_cast<float>(b);
      scale2[b] = 0.2f + 0.03f * static_cast<float>(b);
    }
    std::vector<double> moment1, moment2, exact;
    std::vector<float> plain;
    for (std::size_t i = 0; i < n; ++i) {
      const auto step = [&]<class Real>(Real) {
        const kernels::AdamWSettings& a = kSettings;
        const Real g = Real(kGradientScale) * gradient[i], beta1 = a.beta1, beta2 = a.beta2;
        const Real m = beta1 * kernels::moment_map(true)[code1[i]] * scale1[i / 256] + (1 - beta1) * g;
        const Real v = beta2 * kernels::moment_map(false)[code2[i]] * scale2[i / 256] + (1 - beta2) * g * g;
        moment1.push_back(m);
        moment2.push_back(v);
        const Real steps = static_cast<Real>(a.step), rate = a.learning_rate;
        return parameter[i] * (1 - rate * Real(a.weight_decay)) -
               rate * m / (1 - std::pow(beta1, steps)) /
                   (std::sqrt(v / (1 - std::pow(beta2, steps))) + Real(a.eps));
      };
      plain.push_back(step(float{}));
      moment1.pop_back();
      moment2.pop_back();
      exact.push_back(step(double{}));
    }
    OnGpu<cuda::AdamWStep> step(cuda::adamw_step(kSettings, 0));
    OnGpu<double> scale(kGradientScale);
    DeviceArray p(parameter, Type::bf16), g(gradient, Type::bf16), s1(scale1, Type::f32),
        s2(scale2, Type::f32), master(parameter, Type::f32);
    OnGpu<std::uint8_t> c1(code1), c2(code2);
    const cuda::AdamW8BitTensor tensor{p,     g, c1.data(), c2.data(), s1.f32(), s2.f32(), master.f32(),
                                       count, 0};
    cuda::adamw_8bit(no_scratch(), {&tensor, 1}, scale.data(), step.data(), true);
    check_as_accurate_as_plain(master.values(), plain, exact, Type::f32, kForward);
    CHECK(p.values() == rounded(master.values(), Type::bf16));
    // Scales are the greatest of a block; codes the nearest value's, one beside where rounding decides.
    const auto of_codes1 = c1.values(), of_codes2 = c2.values();
    const auto of_scales1 = s1.values(), of_scales2 = s2.values();
    for (std::size_t b = 0; b < blocks; ++b) {
      double greatest1 = 0, greatest2 = 0;
      for (std::size_t i = 256 * b; i < std::min(n, 256 * b + 256); ++i) {
        greatest1 = std::max(greatest1, std::abs(moment1[i]));
        greatest2 = std::max(greatest2, moment2[i]);
      }
      CHECK(of_scales1[b] == Approx(greatest1).epsilon(1e-6));
      CHECK(of_scales2[b] == Approx(greatest2).epsilon(1e-6));
      for (std::size_t i = 256 * b; i < std::min(n, 256 * b + 256); ++i) {
        const auto is_near = [](std::uint8_t code, double value, bool is_signed) {
          const auto& map = kernels::moment_map(is_signed);
          const double distance = std::abs(map[code] - value);
          for (const float other : map)
            if (std::abs(other - value) < distance - 1e-6 * std::abs(value)) return false;
          return true;
        };
        CHECK(is_near(of_codes1[i], moment1[i] / greatest1, true));
        CHECK(is_near(of_codes2[i], moment2[i] / greatest2, false));
      }
    }
  }
}

TEST_CASE("a moment's code on the GPU is the CPU's for every value, middle and neighbour, beyond them too") {
  // Without memory, a first moment is the gradient; each block's greatest is 1, and so its scale.
  std::vector<float> gradient;
  const auto add = [&](float x) {
    if (gradient.size() % 256 == 0) gradient.push_back(1);
    gradient.push_back(x);
  };
  for (const bool is_signed : {true, false}) {
    const auto& map = kernels::moment_map(is_signed);
    for (std::size_t code = 0; code + 1 < map.size(); ++code)
      for (const float value : {map[code], (map[code] + map[code + 1]) / 2}) {
        const float x = is_signed ? value : std::sqrt(value);  // whose square is the second moment
        for (const float y : {std::nextafter(x, -2.0f), x, std::nextafter(x, 2.0f)}) add(y);
      }
  }
  for (const float x : {0.0f, -0.0f, 1e-30f, -1e-30f, -1.0f, 1.0f, 0.1f, -0.1f, 1e-3f, 1e-6f, 1e-7f}) add(x);
  const auto count = static_cast<std::int64_t>(gradient.size());
  const std::vector<float> zeros(gradient.size(), 0.0f), scales(gradient.size() / 256 + 1, 0.0f);
  OnGpu<cuda::AdamWStep> step(cuda::adamw_step(
      {.learning_rate = 0, .beta1 = 0, .beta2 = 0, .eps = 1, .weight_decay = 0, .step = 1}, 0));
  OnGpu<double> scale(1);
  DeviceArray p(zeros, Type::f32), g(gradient, Type::f32), s1(scales, Type::f32), s2(scales, Type::f32);
  OnGpu<std::uint8_t> c1(std::vector<std::uint8_t>(gradient.size())),
      c2(std::vector<std::uint8_t>(gradient.size()));
  const cuda::AdamW8BitTensor tensor{p, g, c1.data(), c2.data(), s1.f32(), s2.f32(), nullptr, count, 0};
  cuda::adamw_8bit(no_scratch(), {&tensor, 1}, scale.data(), step.data(), true);
  const auto codes1 = c1.values(), codes2 = c2.values();
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    CAPTURE(gradient[i]);
    CHECK(codes1[i] == kernels::moment_code(gradient[i], true));
    CHECK(codes2[i] == kernels::moment_code(gradient[i] * gradient[i], false));
  }
}

TEST_CASE(
    "Adafactor on the GPU is as accurate as plain loops, of matrices and vectors, and skips what "
    "overflowed") {
  struct Size {
    std::size_t matrices, rows, cols;
    bool is_matrix;
  };
  // Tiles that are full and that are not, several of either side, columns that are no whole vectors.
  for (const Size s : {Size{1, 130, 300, true}, {3, 64, 128, true}, {2, 70, 33, true}, {1, 1, 500, false}}) {
    CAPTURE(s.matrices, s.rows, s.cols);
    const std::size_t one = s.rows * s.cols, all = s.matrices * one;
    const auto count = static_cast<std::int64_t>(all);
    const auto parameter = normal_tensor(count, 1, Type::f32),
               gradient = normal_tensor(count, 2, Type::bf16, 1e-2f);
    const auto moments = [&](std::size_t n, unsigned seed) {
      auto values = normal_tensor(static_cast<std::int64_t>(n), seed, Type::f32, 1e-2f);
      for (float& x : values) x = x * x + 1e-6f;
      return values;
    };
    const auto of_rows = moments(s.matrices * s.rows, 3), of_columns = moments(s.matrices * s.cols, 4);
    OnGpu<cuda::AdamWStep> step(cuda::adamw_step(kSettings, 0));
    // Parameters, moments of columns and of rows.
    const auto run = [&](double scale_value) {
      OnGpu<double> scale(scale_value);
      Scratch scratch;
      DeviceArray p(parameter, Type::bf16), g(gradient, Type::bf16), r(of_rows, Type::f32),
          c(of_columns, Type::f32), master(parameter, Type::f32);
      const cuda::AdafactorTensor tensor{p,
                                         g,
                                         s.is_matrix ? r.f32() : c.f32(),
                                         s.is_matrix ? c.f32() : nullptr,
                                         master.f32(),
                                         static_cast<std::int64_t>(s.matrices),
                                         static_cast<std::int64_t>(s.rows),
                                         static_cast<std::int64_t>(s.cols),
                                         0};
      cuda::adafactor(scratch.context(), {&tensor, 1}, scale.data(), step.data(), true);
      CHECK(p.values() == rounded(master.values(), Type::bf16));
      auto values = master.values();
      for (const auto& more : {c.values(), r.values()}) values.insert(values.end(), more.begin(), more.end());
      return values;
    };
    const auto before = run(0);
    CHECK(std::vector<float>(before.begin(), before.begin() + count) == parameter);
    CHECK(std::vector<float>(before.end() - static_cast<std::ptrdiff_t>(of_rows.size()), before.end()) ==
          of_rows);
    const auto values = in_every_order([&] { return run(kGradientScale); });
    // A tensor's matrices share its step's size alone: where there are several, their moments are compared.
    const auto expected = [&]<class Real>(Real) {
      std::vector<Real> parameters, columns, rows;
      for (std::size_t m = 0; m < s.matrices; ++m) {
        const auto part = [&](const std::vector<float>& of, std::size_t n) {
          return std::vector<Real>(of.begin() + static_cast<std::ptrdiff_t>(m * n),
                                   of.begin() + static_cast<std::ptrdiff_t>((m + 1) * n));
        };
        Adafactor<Real> plain{s.rows,
                              s.cols,
                              s.is_matrix,
                              part(parameter, one),
                              part(of_rows, s.rows),
                              part(of_columns, s.cols)};
        plain.step({gradient.begin() + static_cast<std::ptrdiff_t>(m * one),
                    gradient.begin() + static_cast<std::ptrdiff_t>((m + 1) * one)});
        parameters.insert(parameters.end(), plain.parameter.begin(), plain.parameter.end());
        columns.insert(columns.end(), plain.column_moment.begin(), plain.column_moment.end());
        rows.insert(rows.end(), plain.row_moment.begin(), plain.row_moment.end());
      }
      return std::array{parameters, columns, rows};
    };
    const auto plain = expected(float{});
    const auto exact = expected(double{});
    auto begin = values.begin();
    for (std::size_t which = 0; which < 3; ++which) {
      const auto end = begin + static_cast<std::ptrdiff_t>(plain[which].size());
      if (which > 0 || s.matrices == 1)
        check_as_accurate_as_plain({begin, end}, plain[which], exact[which], Type::f32, kForward);
      begin = end;
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
    // In 16 bits with master copies: parameters that nearly agree, though steps are as long as they are here.
    for (const sim::DType dtype : {sim::DType::bf16, sim::DType::fp16}) {
      const Steps narrow = steps_of(scenario_of(optimizer, dtype), open_gpu(), 3);
      for (const auto& [name, values] : cpu.parameters) {
        CAPTURE(name.first, name.second);
        CHECK(distance(narrow.parameters.at(name), values) < 0.1);
      }
    }
  }
}

TEST_CASE("Steps of each optimizer that are captured and replayed give the bits of steps that are not",
          "[plan]") {
  for (const sim::Optimizer optimizer : kOptimizers) {
    CAPTURE(sim::name(optimizer));
    const sim::Scenario scenario = scenario_of(optimizer, sim::DType::bf16);
    const Steps plain = steps_of(scenario, open_gpu(), 3), replayed = steps_of(scenario, open_gpu(), 3, true);
    CHECK(replayed.losses == plain.losses);
    CHECK(replayed.parameters == plain.parameters);
  }
}

TEST_CASE("A step in fp16 whose gradients overflow changes no parameter and no state of any optimizer",
          "[plan]") {
  for (const sim::Optimizer optimizer : kOptimizers) {
    CAPTURE(sim::name(optimizer));
    runtime::Run run(scenario_of(optimizer, sim::DType::fp16), open_gpu());
    fill(run);
    run.executor().run(0, settings_of(1, 256));
    const Values parameters = values_of(run, sim::BufferClass::parameter),
                 states = values_of(run, sim::BufferClass::optimizer);
    REQUIRE(!states.empty());
    run.executor().run(0, settings_of(2, 0x1p40f));
    CHECK(values_of(run, sim::BufferClass::parameter) == parameters);
    CHECK(values_of(run, sim::BufferClass::optimizer) == states);
    run.executor().run(0, settings_of(2, 256));
    CHECK(values_of(run, sim::BufferClass::parameter) != parameters);
  }
}
