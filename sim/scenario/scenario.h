// What the user edits: a small plain value. Everything else is a function of it.
#pragma once
#include <string>
#include <vector>

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

// One thing that cannot be, beside the field that says it ("workload.seq_len").
struct Problem {
  std::string field;
  std::string message;
  bool operator==(const Problem&) const = default;
};

// Empty means that make_plan will work. Never throws.
std::vector<Problem> validate(const Scenario& scenario);

}  // namespace sim
