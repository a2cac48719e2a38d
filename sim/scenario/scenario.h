// The user edits a scenario: a small plain value. Everything else is a function of it.
#pragma once
#include "sim/scenario/hardware.h"
#include "sim/scenario/implementation.h"
#include "sim/scenario/model.h"
#include "sim/scenario/strategy.h"
#include "sim/scenario/workload.h"

namespace sim {

struct Scenario {
  Model model;
  Hardware hardware;
  Strategy strategy;
  Workload workload;
  Implementation implementation;
  bool operator==(const Scenario&) const = default;
};

}  // namespace sim
