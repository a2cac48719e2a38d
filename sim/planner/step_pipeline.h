// Time and memory of the strategies that differ in their states alone: passes strung together by a schedule,
// with what each of the states exchanges beside them.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

#include "sim/planner/schedule_facts.h"
#include "sim/planner/step_states.h"

namespace sim {

class StepPipeline;

// Compute and memory of passes over the pieces of one model, for one number of stages and for schedules that
// split backward alike.
class StepPasses {
 public:
  // Refers to all of these but transfers and software. `upstream`: memory for passes.
  StepPasses(BlockTimes& blocks, const ComputeTimes& compute, const PassMemory& memory,
             StageNumbers& stage_numbers, const TransferTimes& transfers, const StepSoftware& software,
             std::pmr::memory_resource* upstream)
      : blocks_(blocks),
        compute_(compute),
        memory_(memory),
        stage_numbers_(stage_numbers),
        transfers_(transfers),
        software_(software),
        passes_memory_(std::make_unique<std::pmr::monotonic_buffer_resource>(upstream)) {}

 private:
  friend class StepPipeline;
  struct Cut {
    explicit Cut(std::pmr::memory_resource* of_passes) : passes(of_passes), exchanging(of_passes) {}
    Pieces pieces;
    std::vector<PieceMemory> memory;  // of distinct ones
    // Passes over all distinct pieces, and their times, which are listed by the number of units gathered
    // ahead. The map's key is what passes depend on: PassKind::code() and PassTimer::exchange().
    struct Passes {
      std::vector<PricedPass> priced;
      std::vector<const PassTime*> times;
    };
    std::pmr::map<std::pair<unsigned, int>, Passes> passes;
    // The key: the number of what is exchanged beside passes, and how many units are gathered ahead.
    std::pmr::map<std::pair<int, int>, std::pmr::vector<ChunkPasses>> exchanging;
  };
  Cut::Passes& priced(Cut& cut, const PassTimer& timer, const PassKind& kind);
  const PassTime* passes_of(Cut& cut, const PassTimer& timer, PassKind kind, int ahead);
  Cut& cut(const Scenario& scenario);

  BlockTimes& blocks_;
  const ComputeTimes& compute_;
  const PassMemory& memory_;
  StageNumbers& stage_numbers_;
  TransferTimes transfers_;
  StepSoftware software_;
  // Passes with exchanges, which are many and go together.
  std::unique_ptr<std::pmr::monotonic_buffer_resource> passes_memory_;
  std::map<std::pair<std::int32_t, BackwardParts>, Cut> cuts_;  // by pieces and schedule's parts
  std::vector<PipelinePasses> runs_;  // of what was asked for; other pipelines reuse the rest
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
  PipelineMemory::Bounds memory_bounds(const Scenario& scenario, const StepStates& states) const;
  Seconds time(const Scenario& scenario, const StepStates& states);
  // The same in two parts, since several runs of passes beside each other take little longer than one. ask()
  // returns a number, the same for states that are exchanged alike; waiting() of them wait for run_asked().
  std::size_t ask(const Scenario& scenario, const StepStates& states);
  std::size_t waiting() const { return asked_.size(); }
  void run_asked();
  Seconds time(const Scenario& scenario, const StepStates& states, std::size_t asked);
  // Lower bounds of time(). The first holds for all states. The second, for these states, takes longer to
  // find and is at least as high: it counts what each pass exchanges, whatever goes on before and after it.
  Seconds least_time() const { return least_ * slowest_over_mean_; }
  Seconds least_time(const Scenario& scenario, const StepStates& states);

 private:
  // Stages that have the same pieces: one stands for them.
  struct Kind {
    std::vector<std::size_t> chunks;  // distinct pieces
    StageUnits units;
    std::size_t number = 0;  // of these
  };
  void find_kinds();
  const StageStates& states_of(std::size_t kind, const UnitCounts& units, const Scenario& scenario,
                               const StepStates& states) const;
  PassTimer timer(const Scenario& scenario, const StepStates* states) const;
  Seconds least_of_passes(const Scenario& scenario, const StepStates* states);
  std::span<const ChunkPasses> exchanging(const Scenario& scenario, const StepStates& states, int ahead);
  // With those of all kinds.
  const EndsOfStages& ends_of(const Scenario& scenario, const StepStates& states) const;
  std::vector<const Piece*> pieces_of(const Kind& kind) const;
  Seconds slower_beside(Seconds exchanged, Seconds compute) const;

  StepPasses& passes_;
  StepPasses::Cut& cut_;
  const ScheduleFacts& facts_;
  double slowest_over_mean_ = 1;  // a step of the slowest rank over one of mean ranks
  std::size_t chunks_ = 1;
  int most_ahead_ = 0;  // of a pass's units, that can be gathered ahead of one
  std::vector<Kind> kinds_;
  std::vector<std::size_t> kind_of_stage_;
  PipelineMemory memory_;              // of these kinds
  std::vector<std::size_t> piece_of_;  // of each stage's chunks
  // Numbers of what is exchanged with so many units ahead, or -1; and where streams of stages of each kind
  // stand at the latest after their passes, one exchange after the other.
  std::vector<std::int32_t> numbered_;
  std::vector<StageEnd> ends_;
  std::vector<std::size_t> asked_;   // of these
  Seconds least_;                    // of a stage with the least before and after it
  std::vector<Seconds> least_with_;  // the same with what is exchanged, by its number
};

}  // namespace sim
