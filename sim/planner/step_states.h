// Where a strategy's parameters and their states lie, and how they are exchanged. Strategies that treat them
// alike share this.
#pragma once
#include <map>
#include <optional>
#include <vector>

#include "sim/planner/pass_timer.h"
#include "sim/planner/stage_memory.h"

namespace sim {

// A stage's units in the order in which they are updated, whatever pieces they lie in; embedding and head are
// runs of one unit.
struct StageUnits {
  bool at_an_end = false;
  std::vector<Piece::Run> runs;
  void add(const Piece& piece);
  UnitCounts counts() const;
  auto operator<=>(const StageUnits&) const = default;
};
// Numbers of the StageUnits that a search has met.
using StageNumbers = std::map<StageUnits, std::size_t>;

// By these numbers, as they are asked for.
using EndsOfStages = std::vector<std::optional<StageEnds>>;

// Where a schedule puts embedding and head, and how often each stage is there.
enum class StatePlaces {
  apart,           // embedding and head on different stages, or there is one
  ends_meet,       // on one of several stages, with parameters in common
  two_directions,  // every stage twice
};
StatePlaces state_places(const Scenario& scenario);

// States with all that does not depend on how many layers' gradients go in one message.
struct UnbucketedStates {
  UnbucketedStates(const Scenario& scenario, const Hardware& hardware, const Calibration* calibration,
                   const BlockTimes& passes, int number_of_exchange);

  BlockTimes blocks;
  StateMemory memory;
  int exchange = 0;   // a number, the same where passes exchange the same beside them
  EndsOfStages ends;  // where no gradients go after the passes
  std::vector<std::optional<StageStates>> of_stages;  // by StageNumbers, too
};

// For strategies that do the same to parameters and their states.
struct StepStates {
  UnbucketedStates& unbucketed;
  BucketLayers bucket;
  int exchange = 0;  // as UnbucketedStates::exchange, with the bucket
  mutable EndsOfStages ends = {};
};

}  // namespace sim
