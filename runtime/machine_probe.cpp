#include "runtime/machine_probe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/threads.h"
#include "runtime/device.h"
#include "runtime/machine_pace.h"

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

Pace pace_of_run(std::span<const Pace> before, std::span<const Pace> during, std::span<const Pace> after) {
  const std::size_t near = during.empty() ? std::max(before.size(), after.size()) : 1;
  const auto last = before.last(std::min(near, before.size())),
             first = after.first(std::min(near, after.size()));
  std::vector<Pace> looks(during.begin(), during.end());
  looks.insert(looks.end(), last.begin(), last.end());
  looks.insert(looks.end(), first.begin(), first.end());
  return median(looks);
}

MachineProbe::MachineProbe(const sim::Calibration& calibration) : calibrated_(calibrated_pace(calibration)) {
  if (!calibrated_) return;
  device_ = make_cpu_device(kernels::cpu::threads());
  machine_.emplace(*device_, calibration.hardware.last_level_cache);
}

sim::Slowdown MachineProbe::look() {
  if (!machine_) return {};
  before_ = std::move(after_);
  after_.clear();
  for (int look = 0; look < kLooks; ++look) after_.push_back(machine_->look(&Timing::mean));
  last_ = Clock::now();
  return times_as_long(median(after_), *calibrated_);
}

void MachineProbe::begin() {
  during_.clear();
}

void MachineProbe::look_once_in_a_while() {
  if (!machine_ || Clock::now() - last_ < kBetweenLooks) return;
  during_.push_back(machine_->look(&Timing::mean));
  last_ = Clock::now();
}

sim::Slowdown MachineProbe::of_run() const {
  if (!machine_ || after_.empty()) return {};
  return times_as_long(pace_of_run(before_, during_, after_), *calibrated_);
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
