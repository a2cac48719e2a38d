// The estimate in the steps that a search takes: what candidates have in common is found once for all of
// them.
//
//   passes     tensor, context and expert parallelism, recompute and micro-batch decide what a pass takes and
//   keeps pipeline   stages, schedule and chunks string passes together states     ZeRO, its groups, buckets
//   and the host decide where parameters and their states lie, and what is
//              exchanged beside the passes
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/planner/estimate.h"
#include "sim/planner/piece.h"
#include "sim/planner/stage_memory.h"

namespace sim {

// What a stage has, in whatever pieces.
struct StageUnits {
  bool first = false, last = false, at_an_end = false;
  std::vector<std::int32_t> layers;  // of each kind
  auto operator<=>(const StageUnits&) const = default;
};
// Numbers for those that a search has met.
using StageNumbers = std::map<StageUnits, std::size_t>;

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
  // Of stages by their StageNumbers, as they are asked for.
  std::vector<std::optional<StageEnds>> ends;
  std::vector<std::optional<StageStates>> of_stages;

 private:
  std::optional<StateTimes> times_;
};

// States that are exchanged alike beside passes.
struct StateExchange {
  int unbucketed = 0;  // UnbucketedStates::exchanges
  BucketLayers bucket;
  int virtual_pipeline = 1;
  bool operator==(const StateExchange&) const = default;
};

// Of strategies that do the same to parameters and their states.
class StepStates {
 public:
  // Buckets of no bytes: of one layer each.
  StepStates(UnbucketedStates& unbucketed, Buckets buckets);
  const StateMemory& memory() const { return unbucketed_.memory; }
  const BucketLayers& bucket_layers() const { return bucket_layers_; }
  StateExchange exchange() const {
    return {unbucketed_.exchanges, bucket_layers_, buckets_.virtual_pipeline};
  }
  // Found where a candidate fits: most do not.
  const StateTimes& times() const;
  // Of stages by their StageNumbers, where these buckets go after the passes.
  std::vector<std::optional<StageEnds>>& bucket_ends() const { return bucket_ends_; }

  // What does not depend on buckets.
  UnbucketedStates& unbucketed() const { return unbucketed_; }

 private:
  UnbucketedStates& unbucketed_;
  Buckets buckets_;
  BucketLayers bucket_layers_;
  mutable std::unique_ptr<StateTimes> times_;  // of most states nobody asks
  mutable std::vector<std::optional<StageEnds>> bucket_ends_;
};

class StepPipeline;

// Compute and memory of passes over the pieces of one model, for one number of stages and for schedules that
// split backward alike.
class StepPasses {
 public:
  StepPasses(BlockTimes& blocks, const ComputeTimes& compute, const PassMemory& memory,
             StageNumbers& stage_numbers, const TransferTimes& transfers, const StepSoftware& software)
      : blocks_(blocks),
        compute_(compute),
        memory_(memory),
        stage_numbers_(stage_numbers),
        transfers_(transfers),
        software_(software) {}

 private:
  friend class StepPipeline;
  // Pieces that differ, and which of them each piece is.
  struct Cut {
    std::vector<Piece> distinct;
    std::vector<std::size_t> of_piece;
    std::vector<ChunkPasses> plain;
    std::vector<PieceMemory> memory;
    std::vector<std::pair<std::pair<StateExchange, int>, std::vector<ChunkPasses>>>
        exchanging;  // by StepStates::exchange and prefetch
  };
  Cut& cut(const Scenario& scenario);

  BlockTimes& blocks_;
  const ComputeTimes& compute_;
  const PassMemory& memory_;
  StageNumbers& stage_numbers_;
  TransferTimes transfers_;
  StepSoftware software_;
  std::map<std::pair<std::int32_t, std::string>, Cut> cuts_;  // by pieces and schedule's parts
};

// A schedule with all that follows from it alone. May be asked by several threads at a time.
class ScheduleFacts {
 public:
  ScheduleFacts(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                std::int32_t micro_batches);
  Schedule placement;                    // without slots
  std::vector<StageInFlight> in_flight;  // of each stage
  std::vector<MostHeld> most_held;       // the same
  // Made when it is first asked for: of many schedules no candidate fits, or all are beaten.
  const ScheduleClock& clock() const;

 private:
  std::string schedule_;
  std::int32_t chunks_;
  mutable std::once_flag made_;
  mutable std::optional<ScheduleClock> clock_;
};

// The schedules that a search has met, for all of its threads.
class Schedules {
 public:
  const ScheduleFacts& of(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                          std::int32_t micro_batches);

 private:
  struct Known {
    std::once_flag made;
    std::unique_ptr<ScheduleFacts> facts;
  };
  std::mutex mutex_;
  std::map<std::tuple<std::string, std::int32_t, std::int32_t, std::int32_t>, Known> known_;
};

// Strategies that differ in their states alone. Refers to passes and facts.
class StepPipeline {
 public:
  StepPipeline(const Scenario& scenario, StepPasses& passes, const ScheduleFacts& facts);
  StepPipeline(const StepPipeline&) = delete;
  StepPipeline& operator=(const StepPipeline&) = delete;

  // `scenario` is that of the pipeline, but for its states.
  // Live at a time: all that planned arenas reserve, and the least of what a caching allocator does.
  Bytes memory(const Scenario& scenario, const StepStates& states) const;
  // Those of which one is the fullest.
  const std::vector<std::int32_t>& fullest_stages() const { return stages_; }
  Seconds time(const Scenario& scenario, const StepStates& states);
  // No more than time(), each more than the one before and found later: for all states, for these with
  // nothing exchanged beside passes, and for these.
  Seconds least_time() const { return least_ * slowest_over_mean_; }
  Seconds least_time_of_ends(const Scenario& scenario, const StepStates& states) const;
  Seconds least_time(const Scenario& scenario, const StepStates& states);

 private:
  // Stages that have the same pieces: one stands for them.
  struct Kind {
    std::vector<std::size_t> chunks;  // distinct pieces
    StageUnits units;
    std::size_t number = 0;  // of these
    std::vector<std::size_t> stages;
    std::size_t last = 0;  // of them to end
  };
  // Strategies whose ranks exchange the same in the same way, but for what a stage does once.
  struct Exchanged {
    StateExchange exchange;
    int prefetch = 0;  // 0 where nothing is gathered
    Seconds begin;
    // Where streams stand after the last pass; the last of all stages of a kind.
    struct Ends {
      Seconds device, host, sends;
    };
    std::vector<Ends> ends;    // of kinds; empty: not known yet
    Seconds least;             // without what is done once, of mean ranks
    std::size_t least_of = 0;  // the kind that it is of
    bool by_units = false;     // it is run unit by unit
  };
  void find_kinds();
  void find_fullest();
  Exchanged& exchanged(const Scenario& scenario, const StepStates& states);
  Seconds least_of_compute() const;
  void hide_exchanges(const Scenario& scenario, const StepStates& states, Exchanged& found);
  bool hides(const Scenario& scenario, const PassTimer& timer) const;
  bool needs_units(const Scenario& scenario, bool hide) const;
  bool begins_gradients_for_long() const;
  void run_passes(const Scenario& scenario, const StepStates& states, Exchanged& found);
  Seconds time_of_mean_ranks(const Scenario& scenario, const StepStates& states);
  const std::vector<ChunkPasses>& exchanging(const Scenario& scenario, const StepStates& states);
  const StageEnds& ends_of(const Scenario& scenario, const StepStates& states, const Kind& kind) const;
  Seconds begin_of(const Scenario& scenario, const StepStates& states, const Kind& kind) const;
  Piece all_units(const StageUnits& units) const;
  std::vector<const Piece*> pieces_of(const Kind& kind) const;
  Seconds run_units(const Scenario& scenario, const StepStates& states);
  void execute();
  Seconds longer_with(const std::vector<ChunkPasses>& passes, bool gathers) const;
  bool exchanges_hide(const std::vector<ChunkPasses>& passes) const;
  Seconds slower_beside(Seconds exchanged, Seconds compute) const;
  bool host_keeps_up(const std::vector<ChunkPasses>& passes) const;

  StepPasses& passes_;
  StepPasses::Cut& cut_;
  const ScheduleFacts& facts_;
  double slowest_over_mean_ = 1;  // a step of the slowest rank over one of mean ranks
  std::size_t chunks_ = 1;
  std::vector<Kind> kinds_;
  std::vector<std::size_t> kind_of_stage_;
  PipelineMemory memory_;             // of stages that may be fullest
  std::vector<std::int32_t> stages_;  // these
  std::vector<std::size_t> numbers_;  // of their units
  std::vector<Exchanged> exchanged_;
  std::size_t last_asked_ = 0;        // of these
  std::vector<ChunkPasses> hidden_;   // of the states at hand
  std::optional<PipelineRun> plain_;  // without exchanges
  Seconds longest_;                   // its last stage's compute
  Seconds least_;                     // of a stage with the least before and after it
  // By distinct piece, as PipelineRun has them.
  std::vector<std::array<double, 9>> on_path_;
  std::vector<std::array<double, 8>> followed_;
};

// Keeps what strategies of one scenario have in common.
class StepEstimator {
 public:
  // What schedules are is found with others who have the same `schedules`.
  StepEstimator(const Scenario& base, const Calibration* calibration,
                std::shared_ptr<Schedules> schedules = std::make_shared<Schedules>());

  StepPasses passes(const Scenario& scenario);
  const StepStates& states(const Scenario& scenario);
  const ScheduleFacts& schedule(const Scenario& scenario);
  // What these strategies do is run: samples of kernels that were timed here depend on all that a plan
  // touches, and copies of activations on all that goes on beside them.
  bool must_run(const Strategy& strategy) const;
  Estimate by_running(const Scenario& scenario) const;
  // Forgets what only strategies of one layout share.
  void forget_layout();

 private:
  struct ComputeKey;
  struct StateKey;
  struct Known;
  BlockTimes& compute_blocks(const Scenario& scenario);
  TransferTimes transfers(const Scenario& scenario);
  UnbucketedStates& unbucketed(const Scenario& scenario, StatePlaces places);

  std::shared_ptr<Known> known_;
};

}  // namespace sim
