#include "runtime/watched_run.h"

#include <array>
#include <cstdio>
#include <string>
#include <utility>
#include <variant>

#include "kernels/threads.h"
#include "sim/report/events.h"

namespace runtime {
namespace {

// The run waits while the machine is looked at.
constexpr double kMostOfTheTime = 0.02;
// A shorter run is over before the machine has changed, or before a look would be worth its time.
constexpr std::chrono::seconds kLongEnough{1};

}  // namespace

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

WatchedRun::WatchedRun(const sim::Calibration& calibration, const sim::Slowdown& before,
                       sim::Report predicted, EventSink sink)
    : calibration_(calibration),
      before_(before),
      predicted_(std::move(predicted)),
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
  // Nothing is known of memory here: it is assumed to change as arithmetic does, and it changes no result.
  const double arithmetic = machine_->look();
  const Pace now{.arithmetic = arithmetic, .memory = arithmetic};
  stretches_.looked(now);
  const Clock::time_point end = Clock::now();
  next_look_ = end + std::chrono::duration_cast<Clock::duration>((end - begin) / kMostOfTheTime);
}

sim::Slowdown WatchedRun::over_the_run(const sim::Slowdown& after) const {
  std::vector<Pace> ends;
  for (const sim::Slowdown& end : {before_, after})
    ends.push_back(
        {.arithmetic = calibrated_->arithmetic * end.arithmetic, .memory = calibrated_->memory * end.memory});
  sim::Slowdown slowdown = times_as_long(between(ends[0], ends[1]), *calibrated_);
  const std::vector<Stretch>& stretches = stretches_.all();
  if (!stretches.empty()) slowdown.arithmetic = pace_of_run(stretches).arithmetic / calibrated_->arithmetic;
  slowdown.error = error_of_run(stretches, ends);
  return slowdown;
}

void WatchedRun::hear(const sim::Event& event) {
  const auto* const end = std::get_if<sim::EndEvent>(&event);
  if (machine_ && end && end->message.empty() && Clock::now() - begin_ >= kLongEnough) {
    look();
    machine_.reset();
    if (const auto after = probe_this_machine(calibration_)) meanwhile_ = over_the_run(*after);
  }
  if (sink_ && end && meanwhile_) {
    sim::EndEvent with_pace = *end;
    with_pace.slowdown = meanwhile_;
    sink_(with_pace);
  } else if (sink_) {
    sink_(event);
  }
  const std::optional<double> times = times_as_predicted(event, predicted_);
  if (!machine_ || !times) return;
  stretches_.ended(*times);
  if (Clock::now() >= next_look_) look();
}

}  // namespace runtime
