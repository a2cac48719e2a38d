#include "runtime/machine_pace.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/this_machine.h"
#include "sim/quantile.h"

namespace runtime {
namespace {

constexpr SampleLength kLength{.seconds = 0.006, .most = 12};
constexpr sim::Bytes kOfArithmetic{32 << 20};  // two copies of the product's operands

// The sample of exactly this operation that went through most memory; any of them, where memory makes no
// difference.
std::optional<std::size_t> uncached_sample(const std::vector<sim::KernelSample>& samples,
                                           const SingleOperation& single) {
  std::optional<std::size_t> found;
  for (const std::size_t i : samples_of(single, samples))
    if (!found || samples[*found].working_set < samples[i].working_set) found = i;
  return found;
}

}  // namespace

SingleOperation probe_of_arithmetic() {
  return product(sim::OpKind::matmul, 256, 3072, 768);
}

SingleOperation probe_of_memory() {
  return product(sim::OpKind::matmul, 1, 16384, 256);
}

sim::Slowdown times_as_long(const Pace& now, const Pace& then) {
  return {.arithmetic = now.arithmetic / then.arithmetic, .memory = now.memory / then.memory};
}

Pace between(const Pace& a, const Pace& b) {
  return {.arithmetic = std::sqrt(a.arithmetic * b.arithmetic), .memory = std::sqrt(a.memory * b.memory)};
}

Pace median(const std::vector<Pace>& paces) {
  const auto over_looks = [&](const auto& part) {
    std::vector<double> seconds;
    for (const Pace& pace : paces) seconds.push_back(part(pace));
    return sim::quantile(std::move(seconds), 0.5);
  };
  return {.arithmetic = over_looks([](const Pace& pace) { return pace.arithmetic; }),
          .memory = over_looks([](const Pace& pace) { return pace.memory; })};
}

sim::Bytes uncached_size(sim::Bytes last_level_cache) {
  constexpr std::int64_t kLeast = 256 << 20, kMost = std::int64_t{2} << 30;
  return {std::min(std::clamp<std::int64_t>(2 * last_level_cache.value, kLeast, kMost),
                   physical_memory().value / 8)};
}

ArithmeticPace::ArithmeticPace(Device& device)
    : stopwatch_(device, kOfArithmetic, kOfArithmetic, sim::DType::fp32, kLength) {}

double ArithmeticPace::look() {
  return stopwatch_.time_cached(arithmetic_).mean;
}

MachinePace::MachinePace(Device& device, sim::Bytes last_level_cache)
    : stopwatch_(device, uncached_size(last_level_cache), kCachedRotation, sim::DType::fp32, kLength) {}

Pace MachinePace::look(double Timing::*of_runs) {
  return {.arithmetic = stopwatch_.time_cached(arithmetic_).*of_runs,
          .memory = stopwatch_.time_uncached(memory_).*of_runs};
}

Pace set_to_one_pace(sim::Calibration& calibration, const std::vector<Pace>& paces) {
  const Pace usual = median(paces);
  const sim::Hardware& hardware = calibration.hardware;
  std::vector<sim::KernelSample>& samples = calibration.samples;
  for (std::size_t i = 0; i < paces.size(); ++i) {
    const sim::Roofline fast = sim::roofline(hardware, calibration.launch, samples[i]);
    const double from_memory = sim::share_from_memory(calibration, samples[i].working_set);
    samples[i].median = samples[i].median *
                        (fast.time() / sim::slowed(fast, times_as_long(paces[i], usual), from_memory).time());
  }
  return usual;
}

void tell_pace_by(const Pace& usual, sim::Calibration& calibration) {
  std::vector<sim::KernelSample>& samples = calibration.samples;
  for (const std::size_t i : samples_of(probe_of_arithmetic(), samples))
    samples[i].median = {usual.arithmetic};
  if (const auto sample = uncached_sample(samples, probe_of_memory()))
    samples[*sample].median = {usual.memory};
}

std::optional<Pace> calibrated_pace(const sim::Calibration& calibration) {
  const auto seconds = [&](const SingleOperation& single) -> std::optional<double> {
    const auto sample = uncached_sample(calibration.samples, single);
    if (!sample) return std::nullopt;
    return calibration.samples[*sample].median.value;
  };
  const auto arithmetic = seconds(probe_of_arithmetic()), memory = seconds(probe_of_memory());
  if (!arithmetic || !memory) return std::nullopt;
  return Pace{.arithmetic = *arithmetic, .memory = *memory};
}

}  // namespace runtime
