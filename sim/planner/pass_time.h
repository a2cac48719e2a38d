// A pass of a micro-batch through a piece of the model as one action, or with what is exchanged beside it.
#pragma once
#include <span>
#include <vector>

#include "sim/cost/execution.h"

namespace sim {

// Actions that follow each other in one stream are one action: exact, for both device and host are sums and
// maxima. What the host does first is that of the first.
ActionTime in_turn(const ActionTime& first, const ActionTime& then);
ActionTime repeated(const ActionTime& action, std::int32_t times);

// Work on units (embedding, layers, head), one after the other; `count` units alike. Zero duration and no
// launches: nothing is done.
struct UnitStep {
  ActionTime recompute = {};
  ActionTime before = {};  // on the compute stream, with no need of the unit's parameters
  ActionTime compute = {};
  ActionTime begin = {};  // before all but `recompute`, in the first pass that has gradients
  // Of a unit's parameters, before `compute` (ZeRO 3), and of gradients, after it.
  ActionTime gather = {}, reduce = {};
  // Of parameters that are gathered in any case: when the first of these units' are there, and how much later
  // each further one's.
  Seconds there{-1e30}, each_later{};
  std::int32_t count = 1;
  bool reads = true;  // the first of its pass to read the unit's parameters, for which they are gathered
};
inline bool is_there(const ActionTime& t) {
  return t.duration.value > 0 || t.host.launches.value > 0;
}

// Which of a step's actions begins it.
inline ActionTime& first_of(UnitStep& s) {
  return is_there(s.recompute) ? s.recompute : is_there(s.before) ? s.before : s.compute;
}

// The same where the host is ahead of the device: durations, and what is launched.
struct MessageTime {
  Seconds duration, launches;
};
inline bool is_there(const MessageTime& t) {
  return t.duration.value > 0 || t.launches.value > 0;
}
inline MessageTime message_of(const ActionTime& t) {
  return {t.duration, t.host.launches};
}
inline MessageTime in_turn(const MessageTime& first, const MessageTime& then) {
  return {first.duration + then.duration, first.launches + then.launches};
}
inline MessageTime repeated(const MessageTime& message, std::int32_t times) {
  return {message.duration * times, message.launches * times};
}
struct DeviceStep {
  Seconds before, compute;  // the latter with what is recomputed
  MessageTime gather, reduce;
  Seconds before_gather;  // of the host
  std::int32_t count = 1;
  bool reads = true;
};
// Where streams stand after a pass that began at zero; collectives long before, where it has none.
struct DevicePass {
  Seconds compute, collectives;
};
DevicePass run_pass(std::span<const DeviceStep> steps, std::int32_t prefetch, Interference interference);

struct PassPlace {
  bool begins = true;            // the host does what it does before a pass
  bool first_gradients = false;  // of a step
  Seconds host{};                // more that the host does before it
};

// Runs the steps: parameters are gathered so many units ahead. Units alike are run until each takes as long
// as the one before, and the rest is added.
void run_pass(DeviceClock& clock, const std::vector<UnitStep>& steps, std::int32_t prefetch,
              PassPlace place = {});

// All of its compute as one action, exchanges left out.
ActionTime compute_of(const std::vector<UnitStep>& steps);

}  // namespace sim
