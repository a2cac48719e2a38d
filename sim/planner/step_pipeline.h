// Time and memory of the strategies that differ in their states alone: passes strung together by a schedule,
// with what each of the states exchanges beside them.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/planner/schedule_facts.h"
#include "sim/planner/step_states.h"

namespace sim {

// A schedule that splits backward passes as this one does: the same blocks are run.
std::string schedule_of_parts(const std::string& schedule);

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
  // Passes whose exchanges hide behind compute but for the first and the last of them; whether they do, in
  // the pass and in what comes after it.
  struct Hidden {
    explicit Hidden(std::pmr::memory_resource* memory) : passes(memory) {}
    std::pmr::vector<ChunkPasses> passes;
    bool hide = true, reductions_hide = true;
  };
  // Pieces that differ, and which of them each piece is.
  struct Cut {
    explicit Cut(std::pmr::memory_resource* passes_memory)
        : hidden(passes_memory),
          unbucketed(passes_memory),
          bucketed(passes_memory),
          exchanging(passes_memory) {}
    std::vector<Piece> distinct;
    std::vector<std::size_t> of_piece;
    std::vector<std::size_t> same_layers;  // of each, the first that has the same
    std::vector<ChunkPasses> plain;
    std::vector<PieceMemory> memory;
    std::pmr::map<int, Hidden> hidden;
    // By what is exchanged beside passes (buckets aside: UnbucketedStates::exchanges) and the number of units
    // that are gathered ahead.
    std::pmr::map<std::pair<int, int>, std::pmr::vector<PassTimer::Unbucketed>> unbucketed;
    std::pmr::map<int, std::pmr::vector<PassTimer::Bucketed>> bucketed;
    std::pmr::map<std::pair<int, int>, std::pmr::vector<ChunkPasses>> exchanging;
  };
  Cut& cut(const Scenario& scenario);

  BlockTimes& blocks_;
  const ComputeTimes& compute_;
  const PassMemory& memory_;
  StageNumbers& stage_numbers_;
  TransferTimes transfers_;
  StepSoftware software_;
  // Of passes with exchanges, which are many and go together.
  std::unique_ptr<std::pmr::monotonic_buffer_resource> passes_memory_;
  std::map<std::pair<std::int32_t, std::string>, Cut> cuts_;  // by pieces and schedule's parts
  std::vector<PipelinePasses> runs_;  // of what was asked for; more are used again by other pipelines
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
  Seconds time(const Scenario& scenario, const StepStates& states);
  // The same in two parts, for several runs of passes beside each other take little longer than one. What is
  // asked for has a number, the same for states that are exchanged alike; so many wait for run_asked().
  std::size_t ask(const Scenario& scenario, const StepStates& states);
  std::size_t waiting() const { return asked_.size(); }
  void run_asked();
  Seconds time(const Scenario& scenario, const StepStates& states, std::size_t asked);
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
    Seconds begin;
    Seconds least;             // without what is done once, of mean ranks; zero: not asked for
    std::size_t least_of = 0;  // the kind that it is of
    bool by_units = false;     // it is run unit by unit
    bool asked = false;        // its passes are run
    bool ends = false;         // are known
    // With exchanges, where they were found; of Cut.
    std::span<const ChunkPasses> passes = {};
  };
  // Where streams stand after the last pass; the last of all stages of a kind.
  struct Ends {
    Seconds device, host, sends;
  };
  enum class Bound { no, yes };  // whether its least time is asked for
  void find_kinds();
  void find_fullest();
  std::size_t exchanged(const Scenario& scenario, const StepStates& states, Bound bound);
  // The number of what is exchanged with so many units ahead, or find()'s.
  template <class Find>
  std::size_t number_of(int exchange, int ahead, Find find);
  Ends* ends_of(std::size_t exchanged) { return ends_.data() + exchanged * kinds_.size(); }
  Seconds least_of_compute() const;
  Exchanged hide_exchanges(const Scenario& scenario, const StepStates& states, const PassTimer& timer,
                           const StepPasses::Hidden* hidden, Bound bound);
  const StepPasses::Hidden& hidden_of(const Scenario& scenario, const StepStates& states,
                                      const PassTimer& timer);
  bool needs_units(const Scenario& scenario, std::span<const ChunkPasses> passes, bool hide) const;
  bool begins_gradients_for_long(std::span<const ChunkPasses> passes) const;
  Seconds longer_with_gathers_ahead(const Scenario& scenario, const StepStates& states,
                                    std::span<const ChunkPasses> passes, Seconds begin) const;
  struct OfMicroBatch;
  OfMicroBatch of_micro_batch(const Kind& kind, std::span<const ChunkPasses> passes) const;
  Ends ends_of_hidden(const Kind& kind, std::span<const ChunkPasses> passes, Seconds longer, bool each) const;
  void find_least(std::span<const ChunkPasses> passes, int zero_stage, Exchanged& found) const;
  std::span<const ChunkPasses> exchanging(const Scenario& scenario, const StepStates& states);
  // With those of all kinds.
  const EndsOfStages& ends_of(const Scenario& scenario, const StepStates& states) const;
  Seconds begin_of(const Scenario& scenario, const StepStates& states, const Kind& kind) const;
  Piece all_units(const StageUnits& units) const;
  std::vector<const Piece*> pieces_of(const Kind& kind) const;
  Seconds run_units(const Scenario& scenario, const StepStates& states);
  void execute();
  Seconds longer_with(std::span<const ChunkPasses> passes, bool gathers) const;
  static bool exchanges_hide(const ChunkPasses& passes, const ChunkPasses& plain, double room);
  Seconds slower_beside(Seconds exchanged, Seconds compute) const;
  bool host_keeps_up(std::span<const ChunkPasses> passes) const;

  StepPasses& passes_;
  StepPasses::Cut& cut_;
  const ScheduleFacts& facts_;
  double slowest_over_mean_ = 1;  // a step of the slowest rank over one of mean ranks
  std::size_t chunks_ = 1;
  int most_ahead_ = 0;  // of a pass's units, that can be gathered ahead of one
  std::vector<Kind> kinds_;
  std::vector<std::size_t> kind_of_stage_;
  PipelineMemory memory_;              // of stages that may be fullest
  std::vector<std::size_t> numbers_;   // of their units
  std::vector<std::size_t> piece_of_;  // of each stage's chunks
  // Numbers of what is exchanged, with units ahead (0 where nothing is gathered): of each
  // StepStates::exchange() the last that was met, and before it others.
  struct Numbered {
    int ahead = 0;
    std::size_t number = 0;
    std::int32_t before = -1;
  };
  std::vector<Numbered> numbered_;
  std::vector<std::int32_t> last_numbered_;
  std::vector<Exchanged> exchanged_;  // by number
  std::vector<Ends> ends_;            // of kinds, one exchange after the other
  std::vector<std::size_t> asked_;    // of these
  std::optional<PipelineRun> plain_;  // without exchanges
  Seconds longest_;                   // its last stage's compute
  Seconds least_;                     // of a stage with the least before and after it
  // By distinct piece, as PipelineRun has them.
  std::vector<std::array<double, 9>> on_path_;
  std::vector<std::array<double, 8>> followed_;
};

}  // namespace sim
