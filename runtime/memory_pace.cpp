#include "runtime/memory_pace.h"

#include <algorithm>
#include <cmath>

#include "runtime/this_machine.h"
#include "sim/quantile.h"

namespace runtime {
namespace {

constexpr SampleLength kLength{.seconds = 0.006, .most = 12};

// The sample of the very operation that went through most memory.
std::optional<std::size_t> uncached_sample(const std::vector<sim::KernelSample>& samples,
                                           const SingleOperation& single) {
  std::optional<std::size_t> found;
  for (const std::size_t i : samples_of(single, samples))
    if (!found || samples[*found].working_set < samples[i].working_set) found = i;
  return found;
}

}  // namespace

std::array<SingleOperation, kStreams> streams() {
  return {product(sim::OpKind::matmul, 1, 16384, 256), optimizer(sim::OpKind::adamw, std::int64_t{1} << 20)};
}

double times_as_long(const Pace& now, const Pace& then) {
  double product = 1;
  for (std::size_t i = 0; i < kStreams; ++i) product *= now[i] / then[i];
  return std::pow(product, 1.0 / kStreams);
}

Pace between(const Pace& a, const Pace& b) {
  Pace mean{};
  for (std::size_t i = 0; i < kStreams; ++i) mean[i] = std::sqrt(a[i] * b[i]);
  return mean;
}

sim::Bytes uncached_size(sim::Bytes last_level_cache) {
  constexpr std::int64_t kLeast = 256 << 20, kMost = std::int64_t{2} << 30;
  return {std::min(std::clamp<std::int64_t>(2 * last_level_cache.value, kLeast, kMost),
                   physical_memory().value / 8)};
}

MemoryPace::MemoryPace(Device& device, sim::Bytes last_level_cache)
    : stopwatch_(device, uncached_size(last_level_cache), kCachedRotation, sim::DType::fp32, kLength) {}

Pace MemoryPace::look() {
  Pace pace{};
  for (std::size_t i = 0; i < kStreams; ++i) pace[i] = stopwatch_.time_uncached(streams_[i]).median;
  return pace;
}

void set_to_one_pace(sim::Calibration& calibration, const std::vector<Pace>& paces) {
  if (paces.empty()) return;
  Pace median{};
  for (std::size_t i = 0; i < kStreams; ++i) {
    std::vector<double> seconds;
    for (const Pace& pace : paces) seconds.push_back(pace[i]);
    median[i] = sim::quantile(seconds, 0.5);
  }
  const sim::Hardware& hardware = calibration.hardware;
  for (std::size_t i = 0; i < paces.size(); ++i) {
    sim::KernelSample& sample = calibration.samples[i];
    const sim::Slowdown then{.arithmetic = 1, .memory = times_as_long(paces[i], median)};
    sample.median = sample.median * (sim::roofline(hardware, calibration.launch, sample).time() /
                                     sim::roofline(hardware, calibration.launch, sample, then).time());
  }
  const auto all = streams();
  for (std::size_t i = 0; i < kStreams; ++i)
    if (const auto sample = uncached_sample(calibration.samples, all[i]))
      calibration.samples[*sample].median = {median[i]};
}

std::optional<Pace> calibrated_pace(const sim::Calibration& calibration) {
  Pace pace{};
  const auto all = streams();
  for (std::size_t i = 0; i < kStreams; ++i) {
    const auto sample = uncached_sample(calibration.samples, all[i]);
    if (!sample) return std::nullopt;
    pace[i] = calibration.samples[*sample].median.value;
  }
  return pace;
}

}  // namespace runtime
