#include "runtime/machine_probe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "kernels/threads.h"
#include "runtime/device.h"
#include "runtime/sample_kernels.h"
#include "runtime/stopwatch.h"
#include "sim/quantile.h"

namespace runtime {
namespace {

constexpr SampleLength kLength{.seconds = 0.06, .most = 8};
constexpr int kRounds = 3;  // a burst of another program's work spoils one of them

// The fastest sample of the very shape, whatever cache its operands came from: both are too large, or too
// rich in arithmetic, for that to matter.
std::optional<double> calibrated_seconds(const sim::Calibration& calibration, const SingleOperation& single) {
  sim::KernelSample shape = sim::kernel_shape(single.operation(), single.bound_variables(), single.work());
  std::optional<double> fastest;
  for (const sim::KernelSample& sample : calibration.samples)
    if (sample.kind == shape.kind && sample.dtype == shape.dtype && sample.flops == shape.flops &&
        sample.bytes == shape.bytes && sample.rows == shape.rows && sample.cols == shape.cols &&
        (!fastest || sample.median.value < *fastest))
      fastest = sample.median.value;
  return fastest;
}

}  // namespace

SingleOperation probe_of_arithmetic() {
  return product(sim::OpKind::matmul, 1024, 3072, 768);
}

SingleOperation probe_of_memory() {
  return optimizer(sim::OpKind::adamw, std::int64_t{1} << 24);
}

std::optional<sim::Slowdown> probe_this_machine(const sim::Calibration& calibration) {
  const std::array<SingleOperation, 2> operations{probe_of_arithmetic(), probe_of_memory()};
  std::array<double, 2> calibrated{};
  sim::Bytes memory;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const std::optional<double> seconds = calibrated_seconds(calibration, operations[i]);
    if (!seconds) return std::nullopt;
    calibrated[i] = *seconds;
    memory = std::max(memory, operands_size(operations[i]));
  }
  const std::unique_ptr<Device> device = make_cpu_device(kernels::cpu::threads());
  Stopwatch stopwatch(*device, memory, kCachedRotation, sim::DType::fp32, kLength);
  std::array<std::vector<double>, 2> seconds;
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t i = 0; i < operations.size(); ++i)
      seconds[i].push_back(stopwatch.time_cached(operations[i]).median);
  return sim::Slowdown{sim::quantile(seconds[0], 0.5) / calibrated[0],
                       sim::quantile(seconds[1], 0.5) / calibrated[1]};
}

bool is_steady(const sim::Slowdown& slowdown) {
  const auto steady = [](double factor) {
    return factor < sim::kSteadyWithin && factor > 1 / sim::kSteadyWithin;
  };
  return steady(slowdown.arithmetic) && steady(slowdown.memory);
}

std::string slowdown_sentence(const sim::Slowdown& slowdown) {
  if (is_steady(slowdown)) return "this machine is as fast as when it was calibrated";
  const double further = std::abs(std::log(slowdown.arithmetic)) > std::abs(std::log(slowdown.memory))
                             ? slowdown.arithmetic
                             : slowdown.memory;
  std::array<char, 160> text{};
  std::snprintf(
      text.data(), text.size(),
      "this machine is %s by %.2f than when it was calibrated (arithmetic takes %.2f times as long, "
      "memory %.2f)",
      further > 1 ? "slower" : "faster", further > 1 ? further : 1 / further, slowdown.arithmetic,
      slowdown.memory);
  return text.data();
}

}  // namespace runtime
