#include "runtime/machine_probe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "kernels/threads.h"
#include "runtime/device.h"
#include "runtime/memory_pace.h"
#include "runtime/stopwatch.h"
#include "sim/quantile.h"

namespace runtime {
namespace {

constexpr SampleLength kLength{.seconds = 0.06, .most = 8};
constexpr int kRounds = 3, kLooksARound = 3;  // a burst of another program's work spoils one of them

// The fastest sample of the very shape: too rich in arithmetic for it to matter where operands came from.
std::optional<double> calibrated_seconds(const sim::Calibration& calibration, const SingleOperation& single) {
  std::optional<double> fastest;
  for (const std::size_t i : samples_of(single, calibration.samples)) {
    const double seconds = calibration.samples[i].median.value;
    fastest = std::min(fastest.value_or(seconds), seconds);
  }
  return fastest;
}

}  // namespace

SingleOperation probe_of_arithmetic() {
  return product(sim::OpKind::matmul, 1024, 3072, 768);
}

std::optional<sim::Slowdown> probe_this_machine(const sim::Calibration& calibration) {
  const SingleOperation arithmetic = probe_of_arithmetic();
  const std::optional<double> calibrated = calibrated_seconds(calibration, arithmetic);
  const std::optional<Pace> pace_then = calibrated_pace(calibration);
  if (!calibrated || !pace_then) return std::nullopt;
  const std::unique_ptr<Device> device = make_cpu_device(kernels::cpu::threads());
  Stopwatch stopwatch(*device, kCachedRotation, kCachedRotation, sim::DType::fp32, kLength);
  MemoryPace memory(*device, calibration.hardware.last_level_cache);
  std::vector<double> seconds, paces;
  for (int round = 0; round < kRounds; ++round) {
    seconds.push_back(stopwatch.time_cached(arithmetic).median);
    for (int look = 0; look < kLooksARound; ++look) paces.push_back(times_as_long(memory.look(), *pace_then));
  }
  return sim::Slowdown{sim::quantile(seconds, 0.5) / *calibrated, sim::quantile(paces, 0.5)};
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
