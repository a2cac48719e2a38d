#include "runtime/watched_run.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

#include "kernels/threads.h"
#include "sim/quantile.h"
#include "sim/report/events.h"

namespace runtime {
namespace {

// The run waits while the machine is looked at.
constexpr double kMostOfTheTime = 0.02;
// A shorter run is over before the machine has changed, or before a look would be worth its time.
constexpr std::chrono::seconds kLongEnough{3};

}  // namespace

std::optional<sim::Seconds> step_of(const sim::Event& event) {
  if (const auto* const step = std::get_if<sim::StepResult>(&event)) return step->duration;
  const auto* const token = std::get_if<sim::TokenResult>(&event);
  if (token && token->index > 0) return token->duration;
  return std::nullopt;
}

std::string meanwhile_sentence(const sim::Slowdown& before, const sim::Slowdown& meanwhile) {
  if (is_steady({.arithmetic = meanwhile.arithmetic / before.arithmetic,
                 .memory = meanwhile.memory / before.memory}))
    return {};
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(),
                "while it ran, arithmetic took %.2f times as long as when this machine was calibrated, "
                "memory %.2f",
                meanwhile.arithmetic, meanwhile.memory);
  return text.data();
}

WatchedRun::WatchedRun(const sim::Calibration& calibration, const sim::Slowdown& before, EventSink sink)
    : calibration_(calibration),
      before_(before),
      sink_(std::move(sink)),
      calibrated_(calibrated_pace(calibration)) {
  if (!calibrated_) return;
  device_ = make_cpu_device(kernels::cpu::threads());
  machine_.emplace(*device_);
}

EventSink WatchedRun::sink() {
  return [this](const sim::Event& event) { hear(event); };
}

void WatchedRun::look() {
  const Clock::time_point begin = Clock::now();
  const double now = machine_->look();
  if (!took_.empty()) {
    // Of memory nothing is known here: it is taken to change as arithmetic does, and changes no result.
    const double arithmetic = std::sqrt(last_ * now);
    Pace pace{.arithmetic = arithmetic};
    pace.streams.fill(arithmetic);
    stretches_.push_back({sim::quantile(std::exchange(took_, {}), 0.5), pace});
  }
  last_ = now;
  const Clock::time_point end = Clock::now();
  next_look_ = end + std::chrono::duration_cast<Clock::duration>((end - begin) / kMostOfTheTime);
}

void WatchedRun::ended(sim::Seconds took) {
  if (last_ > 0) took_.push_back(took.value);
  if (Clock::now() >= next_look_) look();
}

sim::Slowdown WatchedRun::over_the_run(const sim::Slowdown& after) const {
  std::vector<Pace> ends;
  for (const sim::Slowdown& end : {before_, after}) {
    Pace pace{.arithmetic = calibrated_->arithmetic * end.arithmetic};
    for (std::size_t i = 0; i < kStreams; ++i) pace.streams[i] = calibrated_->streams[i] * end.memory;
    ends.push_back(pace);
  }
  sim::Slowdown slowdown = times_as_long(between(ends[0], ends[1]), *calibrated_);
  if (!stretches_.empty()) slowdown.arithmetic = pace_of_run(stretches_).arithmetic / calibrated_->arithmetic;
  slowdown.error = error_of_run(stretches_, ends);
  return slowdown;
}

void WatchedRun::hear(sim::Event event) {
  auto* const end = std::get_if<sim::EndEvent>(&event);
  if (end && machine_ && end->message.empty() && Clock::now() - begin_ >= kLongEnough) {
    if (!took_.empty()) look();
    machine_.reset();
    if (const auto after = probe_this_machine(calibration_)) {
      meanwhile_ = over_the_run(*after);
      end->slowdown = meanwhile_;
    }
  }
  if (sink_) sink_(event);
  if (const std::optional<sim::Seconds> took = step_of(event); took && machine_) ended(*took);
}

}  // namespace runtime
