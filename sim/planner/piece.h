// Pieces of a model, as a pipeline cuts it, and what passes over them take and need.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/planner/pass_time.h"
#include "sim/planner/pipeline_time.h"
#include "sim/planner/unit_prices.h"

namespace sim {

// The units of one piece of the model, in the order of a forward pass.
struct Piece {
  struct Run {
    std::size_t kind = 0;  // of StepBlocks::kinds
    bool experts = false;
    std::int32_t layers = 0;
    bool operator==(const Run&) const = default;
  };
  bool first = false, last = false;  // has the embedding, the head
  std::vector<Run> runs;
  std::int32_t layers() const;
  bool operator==(const Piece&) const = default;
};

// All pieces of a scenario's model, as many as its pipeline has; of DualPipe's two copies, one.
std::vector<Piece> pieces_of(const Scenario& scenario, const std::vector<LayerKind>& kinds);

// What software does around passes.
struct StepSoftware {
  HostWork pass, around, gather;  // around: once a step, before all passes and after them
  Seconds before_first_pass;      // of the host, where that begins the step
  Interference interference;
};

// Whether gradients are reduced beside backward passes, not after them.
bool reduces_beside(const Scenario& scenario);

// Times of passes over pieces, with what each exchanges by the strategy's ZeRO stage.
class PassTimer {
 public:
  // Refers to all that it is given.
  PassTimer(const Scenario& scenario, const ComputeTimes& compute, const StateTimes& states,
            const StepSoftware& software);

  // Passes that exchange nothing, but for what all micro-batches do.
  ChunkPasses plain(const Piece& piece) const;
  // With what is gathered and reduced beside them, unit by unit.
  ChunkSteps steps(const Piece& piece) const;
  // Under ZeRO 3 a forward pass with what is gathered beside it: whatever is reduced, the same.
  PassTime gathering(const ChunkPasses& plain, const ChunkSteps& steps) const;
  // The same as passes; what it is given is of the same piece, but `steps` for any prefetch.
  ChunkPasses with_exchanges(const Piece& piece, const ChunkPasses& plain, const ChunkSteps& steps,
                             const PassTime& gathering) const;
  // The same in closed form, exact where all exchanges but the first gather and the last reduction hide
  // behind compute, and units of a kind are alike. Under ZeRO 3, for pieces whose gathers hide.
  ChunkPasses with_hidden_exchanges(const Piece& piece, const ChunkPasses& plain) const;

  // Gathers updated parameters from the beginning of the step on; their first forward pass waits for them.
  void gather_ahead(const Piece& piece, ChunkSteps& chunk, DeviceClock& clock) const;

  // Under ZeRO 3, whether each of these but for what begins a pass is there in time, whatever is reduced
  // before it.
  bool gathers_hide(const Piece& piece) const;
  // And the next pass's too.
  bool exchanges_hide(const Piece& piece, const ChunkPasses& passes) const;

  bool gathers_ahead() const;
  // What a stage with these pieces reduces after its last pass, in the order of its messages.
  std::vector<ActionTime> reductions_after_passes(const std::vector<const Piece*>& pieces) const;
  // Until the first parameters are there that a forward pass gathers under ZeRO 3.
  Seconds first_gather(const Piece& piece) const;
  // What the host launches for it, and for those that are gathered ahead, before the first compute.
  Seconds launches_of_first_gathers(const Piece& piece) const;

 private:
  enum class Reduce { none, each, last };
  std::vector<UnitStep> forward(const Piece& piece, const UnitTimes* gather) const;
  std::vector<UnitStep> backward(const Piece& piece, ActionTime LayerTimes::*pass, Reduce reduce) const;
  std::vector<UnitStep> weights(const Piece& piece, Reduce reduce) const;
  std::vector<UnitStep> with_work(std::vector<UnitStep> steps) const;
  const UnitTimes* reduced(Reduce reduce) const;
  bool defers_embedding() const;
  ActionTime begin_gradients(const Piece& piece) const;
  void add_slowdown(PassTime& pass, Seconds compute) const;
  // Of a piece's units, in a pass.
  struct Exchanged {
    Seconds gathers, first_gather;
    Seconds reductions, last_reduction, before_reductions;  // compute before the first of them ends
    Seconds launches;
  };
  void add_gathers(const Piece& piece, const UnitTimes& gather, bool forward, Exchanged& sum) const;
  void add_reductions(const Piece& piece, bool of_edges, bool of_layers, bool last, Exchanged& sum) const;
  PassTime hidden(const PassTime& plain, const Exchanged& sum, Seconds more_compute) const;
  PassTime exchanging(const std::vector<UnitStep>& steps, std::int32_t prefetch, const PassTime& plain) const;

  const Scenario& scenario_;
  const Strategy& strategy_;
  const ComputeTimes& compute_;
  const StateTimes& states_;
  const StepSoftware& software_;
};

// What a stage does once a step, before its first pass and after its last.
struct StageEnds {
  Seconds begin, host_begin;
  // From when compute and collectives are over to the end; from where the host is, the same, and its own
  // part.
  Seconds finish, finish_ahead, finish_launches;
};
// `units`: all of the stage's; `pieces`: as its chunks have them.
StageEnds stage_ends(const Scenario& scenario, const Piece& units, const std::vector<const Piece*>& pieces,
                     bool at_an_end, const StateTimes& states, const StepSoftware& software);

// The same with the stage's own clock, and its chunks' units; parameters that are gathered from the beginning
// of the step on are there for their first forward passes.
void begin_stage(const Scenario& scenario, const Piece& units, const StateTimes& states,
                 const StepSoftware& software, DeviceClock& clock);
void finish_stage(const Scenario& scenario, const Piece& units, const std::vector<const Piece*>& pieces,
                  bool at_an_end, const StateTimes& states, const StepSoftware& software, DeviceClock& clock);

}  // namespace sim
