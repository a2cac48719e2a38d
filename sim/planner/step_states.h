// Where a strategy's parameters and their states lie, and what is exchanged of them: what strategies that do
// the same to them share.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "sim/planner/pass_timer.h"
#include "sim/planner/stage_memory.h"

namespace sim {

// What a stage has in the order in which it is updated, in whatever pieces; embedding and head are runs of
// one.
struct StageUnits {
  bool at_an_end = false;
  std::vector<Piece::Run> runs;
  void add(const Piece& piece);
  UnitCounts counts() const;
  auto operator<=>(const StageUnits&) const = default;
};
// Numbers for those that a search has met.
using StageNumbers = std::map<StageUnits, std::size_t>;

// By these numbers, as they are asked for.
using EndsOfStages = std::vector<std::optional<StageEnds>>;

// What a schedule makes of parameters' places.
enum class StatePlaces {
  apart,           // embedding and head on different stages, or there is one
  ends_meet,       // on one of several stages, with parameters in common
  two_directions,  // every stage twice
};
StatePlaces state_places(const Scenario& scenario);

// States whose gradients go layer by layer, from which those with buckets are made.
struct UnbucketedStates {
  UnbucketedStates(const Scenario& scenario, const Hardware& hardware, const Calibration* calibration,
                   const BlockTimes& passes, int number_of_exchanges);
  const StateTimes& times();

  int exchanges = 0;  // the same number for those that differ in what the optimizer does alone
  BlockTimes blocks;
  StateMemory memory;
  EndsOfStages ends;
  std::vector<std::optional<StageStates>> of_stages;  // by StageNumbers, too

 private:
  std::optional<StateTimes> times_;
};

// What of states decides how they are exchanged beside passes.
struct StateExchange {
  int unbucketed = 0;  // UnbucketedStates::exchanges
  BucketLayers bucket;
  int virtual_pipeline = 1;
  auto operator<=>(const StateExchange&) const = default;
};
// Numbers for those that a search has met.
using ExchangeNumbers = std::map<StateExchange, int>;

// For strategies that do the same to parameters and their states.
class StepStates {
 public:
  // Buckets of no bytes: of one layer each.
  StepStates(UnbucketedStates& unbucketed, Buckets buckets, ExchangeNumbers& numbers);
  const StateMemory& memory() const { return unbucketed_.memory; }
  const BucketLayers& bucket_layers() const { return bucket_layers_; }
  // The number of their StateExchange.
  int exchange() const { return exchange_; }
  // Found where a candidate fits: most do not.
  const StateTimes& times() const;
  // Where these buckets go after the passes.
  EndsOfStages& bucket_ends() const { return bucket_ends_; }

  // What does not depend on buckets.
  UnbucketedStates& unbucketed() const { return unbucketed_; }

 private:
  UnbucketedStates& unbucketed_;
  Buckets buckets_;
  BucketLayers bucket_layers_;
  int exchange_ = 0;
  mutable std::unique_ptr<StateTimes> times_;  // of most states nobody asks
  mutable EndsOfStages bucket_ends_;
};

}  // namespace sim
