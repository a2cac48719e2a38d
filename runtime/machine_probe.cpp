#include "runtime/machine_probe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/threads.h"
#include "runtime/device.h"
#include "runtime/machine_pace.h"
#include "sim/quantile.h"

namespace runtime {

namespace {

constexpr int kLooks = 11;  // a burst of another program's work spoils a few of them
constexpr std::chrono::milliseconds kBetweenLooks{100};

}  // namespace

std::optional<sim::Slowdown> probe_this_machine(const sim::Calibration& calibration) {
  const std::optional<Pace> then = calibrated_pace(calibration);
  if (!then) return std::nullopt;
  const std::unique_ptr<Device> device = make_cpu_device(kernels::cpu::threads());
  MachinePace machine(*device, calibration.hardware.last_level_cache);
  std::vector<Pace> looks;
  for (int look = 0; look < kLooks; ++look) looks.push_back(machine.look());
  return times_as_long(median(looks), *then);
}

Pace pace_of_run(const std::vector<Stretch>& stretches) {
  std::vector<double> seconds;
  for (const Stretch& stretch : stretches) seconds.push_back(stretch.seconds);
  const double middle = sim::quantile(std::move(seconds), 0.5);
  const auto scaled = [&](const auto& part) {
    std::vector<double> at_middle;
    for (const Stretch& stretch : stretches)
      at_middle.push_back(part(stretch.pace) / stretch.seconds * middle);
    std::ranges::sort(at_middle);
    const std::ptrdiff_t left_out = at_middle.size() > 2 ? 1 : 0;
    return std::accumulate(at_middle.begin() + left_out, at_middle.end() - left_out, 0.0) /
           static_cast<double>(std::ssize(at_middle) - 2 * left_out);
  };
  Pace pace{.arithmetic = scaled([](const Pace& p) { return p.arithmetic; })};
  for (std::size_t i = 0; i < kStreams; ++i)
    pace.streams[i] = scaled([&](const Pace& p) { return p.streams[i]; });
  return pace;
}

MachineProbe::MachineProbe(const sim::Calibration& calibration) : calibrated_(calibrated_pace(calibration)) {
  if (!calibrated_) return;
  device_ = make_cpu_device(kernels::cpu::threads());
  machine_.emplace(*device_, calibration.hardware.last_level_cache);
}

void MachineProbe::end_stretch(const Pace& now) {
  if (!took_.empty())
    stretches_.push_back({sim::quantile(std::exchange(took_, {}), 0.5), between(last_look_, now)});
  last_look_ = now;
  last_ = Clock::now();
}

sim::Slowdown MachineProbe::look() {
  if (!machine_) return {};
  std::vector<Pace> looks;
  for (int look = 0; look < kLooks; ++look) {
    looks.push_back(machine_->look(&Timing::mean));
    end_stretch(looks.back());
  }
  around_.insert(around_.end(), looks.begin(), looks.end());
  return times_as_long(median(looks), *calibrated_);
}

void MachineProbe::begin() {
  took_.clear();
  stretches_.clear();
  if (around_.size() > kLooks) around_.erase(around_.begin(), around_.end() - kLooks);
}

void MachineProbe::ended(sim::Seconds took) {
  if (!machine_) return;
  took_.push_back(took.value);
  if (Clock::now() - last_ >= kBetweenLooks) end_stretch(machine_->look(&Timing::mean));
}

sim::Slowdown MachineProbe::of_run() const {
  if (around_.empty()) return {};
  return times_as_long(stretches_.empty() ? median(around_) : pace_of_run(stretches_), *calibrated_);
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
