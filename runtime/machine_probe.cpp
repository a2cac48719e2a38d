#include "runtime/machine_probe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <memory>
#include <numeric>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/threads.h"
#include "runtime/device.h"
#include "runtime/machine_pace.h"
#include "sim/quantile.h"

namespace runtime {

namespace {

constexpr int kLooks = 11;  // a burst of another program's work spoils a few of them
constexpr std::chrono::milliseconds kBetweenLooks{100};

double arithmetic(const Pace& pace) {
  return pace.arithmetic;
}
double memory(const Pace& pace) {
  return pace.memory;
}

double mean_of(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

// Divides a part of the pace by how long steps took beside their predictions, for all stretches but those
// with the least and the greatest quotient.
std::vector<double> beside_times(const std::vector<Stretch>& stretches, const auto& part) {
  std::vector<double> all;
  for (const Stretch& stretch : stretches) all.push_back(part(stretch.pace) / mean_of(stretch.times));
  std::ranges::sort(all);
  if (all.size() > 2) all = {all.begin() + 1, all.end() - 1};
  return all;
}

// Half of the 90 % band of a normal distribution, in standard deviations and in distances of its deciles.
constexpr double kOfDeviations = 1.645, kOfDeciles = 0.642;

// Half of the 90 % band of the mean of at least two numbers, as a share of it.
double error_of_mean(const std::vector<double>& numbers) {
  const double mean = mean_of(numbers), count = static_cast<double>(numbers.size());
  double squares = 0;
  for (const double number : numbers) squares += (number - mean) * (number - mean);
  return kOfDeviations * std::sqrt(squares / (count - 1) / count) / mean;
}

// The same for the mean of `looks` numbers that scatter as these do. One in ten may be any number at all.
double error_of_looks(const std::vector<double>& numbers, std::size_t looks) {
  const double deciles = sim::quantile(numbers, 0.9) - sim::quantile(numbers, 0.1);
  return kOfDeciles * deciles / mean_of(numbers) / std::sqrt(static_cast<double>(looks));
}

// The greater of arithmetic's and memory's.
double greatest_error(const auto& error_of_part) {
  return std::max(error_of_part(arithmetic), error_of_part(memory));
}

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

std::optional<double> times_as_predicted(const sim::Event& event, const sim::Report& predicted) {
  sim::Seconds took, expected;
  if (const auto* const step = std::get_if<sim::StepResult>(&event)) {
    took = step->duration;
    expected = predicted.step_time;
  } else if (const auto* const token = std::get_if<sim::TokenResult>(&event);
             token && token->index > 0 && token->index < std::ssize(predicted.tokens)) {
    took = token->duration;
    expected = predicted.tokens[static_cast<std::size_t>(token->index)].duration;
  }
  if (!(expected.value > 0)) return std::nullopt;
  return took / expected;
}

void Stretches::begin() {
  times_.clear();
  all_.clear();
}

void Stretches::ended(double times_as_predicted) {
  if (last_) times_.push_back(times_as_predicted);
}

void Stretches::looked(const Pace& now) {
  if (!times_.empty()) all_.push_back({std::exchange(times_, {}), between(*last_, now)});
  last_ = now;
}

Pace pace_of_run(const std::vector<Stretch>& stretches) {
  std::vector<double> times;
  for (const Stretch& stretch : stretches)
    times.insert(times.end(), stretch.times.begin(), stretch.times.end());
  const double middle = sim::quantile(std::move(times), 0.5);
  return {.arithmetic = middle * mean_of(beside_times(stretches, arithmetic)),
          .memory = middle * mean_of(beside_times(stretches, memory))};
}

double error_of_run(const std::vector<Stretch>& stretches, const std::vector<Pace>& around) {
  constexpr std::size_t kFewest = 8;
  if (stretches.size() >= kFewest)
    return greatest_error([&](const auto& part) { return error_of_mean(beside_times(stretches, part)); });
  const double least = sim::Slowdown{}.error;
  if (around.size() < 2) return least;
  return std::max(least, greatest_error([&](const auto& part) {
                    std::vector<double> numbers;
                    for (const Pace& pace : around) numbers.push_back(part(pace));
                    return error_of_looks(numbers, stretches.size() + 1);
                  }));
}

MachineProbe::MachineProbe(const sim::Calibration& calibration) : calibrated_(calibrated_pace(calibration)) {
  if (!calibrated_) return;
  device_ = make_cpu_device(kernels::cpu::threads());
  machine_.emplace(*device_, calibration.hardware.last_level_cache);
}

void MachineProbe::looked(const Pace& now) {
  stretches_.looked(now);
  last_ = Clock::now();
}

sim::Slowdown MachineProbe::look() {
  if (!machine_) return {};
  std::vector<Pace> looks;
  for (int look = 0; look < kLooks; ++look) {
    looks.push_back(machine_->look(&Timing::mean));
    looked(looks.back());
  }
  around_.insert(around_.end(), looks.begin(), looks.end());
  return times_as_long(median(looks), *calibrated_);
}

void MachineProbe::begin() {
  stretches_.begin();
  if (around_.size() > kLooks) around_.erase(around_.begin(), around_.end() - kLooks);
}

void MachineProbe::ended(double times_as_predicted) {
  if (!machine_) return;
  stretches_.ended(times_as_predicted);
  if (Clock::now() - last_ >= kBetweenLooks) looked(machine_->look(&Timing::mean));
}

sim::Slowdown MachineProbe::of_run() const {
  if (around_.empty()) return {};
  sim::Slowdown slowdown =
      times_as_long(stretches_.all().empty() ? median(around_) : pace_of_run(stretches_.all()), *calibrated_);
  slowdown.error = error_of_run(stretches_.all(), around_);
  return slowdown;
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
