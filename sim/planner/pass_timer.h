// What passes over a piece of the model take, with what is exchanged beside them, and what a stage does once
// a step.
#pragma once
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "sim/planner/pipeline_time.h"
#include "sim/planner/unit_steps.h"

namespace sim {

// What software does around passes.
struct StepSoftware {
  HostWork pass, gather;      // before a pass, and once after them all; before a gather
  Seconds before_first_pass;  // of the host, where that begins the step
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
  // The same as passes, for a host that is ahead of the device: those that are the same for all sizes of
  // buckets, and those that are for all numbers of units that are gathered ahead; the others as steps.
  struct Repeated {
    PassTime usual, last;  // of each micro-batch, and of the last one
  };
  struct Unbucketed {
    PassTime forward, first_forward;
    Repeated input;
  };
  void unbucketed(const Piece& piece, const ChunkPasses& plain, Unbucketed& into) const;
  struct Bucketed {
    Repeated weight;
    std::pmr::vector<DeviceStep> backward, last_backward;
  };
  // `same_layers`: of another piece that has the same; null: of none. `memory`: for steps.
  Bucketed bucketed(const Piece& piece, const ChunkPasses& plain, const Bucketed* same_layers,
                    std::pmr::memory_resource* memory) const;
  void with_exchanges(const Piece& piece, const ChunkPasses& plain, const Unbucketed& unbucketed,
                      const Bucketed& bucketed, ChunkPasses& into) const;
  // The same in closed form, exact where all exchanges but the first gather and the last reduction hide
  // behind compute, and units of a kind are alike. Under ZeRO 3, for pieces whose gathers hide.
  void with_hidden_exchanges(const Piece& piece, const ChunkPasses& plain, ChunkPasses& passes) const;

  // Gathers updated parameters from the beginning of the step on; their first forward pass waits for them.
  void gather_ahead(const Piece& piece, ChunkSteps& chunk, DeviceClock& clock) const;

  // Under ZeRO 3, whether each of these but for what begins a pass is there in time, whatever is reduced
  // before it.
  bool gathers_hide(const Piece& piece) const;
  // And the first of the next pass, which comes after what is still reduced then.
  static bool reductions_hide(const ChunkPasses& passes);

  bool gathers_ahead() const;
  // What a stage with these pieces reduces after its last pass, in the order of its messages.
  std::vector<ActionTime> reductions_after_passes(const std::vector<const Piece*>& pieces) const;
  // Until the first parameters are there that a forward pass gathers under ZeRO 3.
  Seconds first_gather(const Piece& piece) const;
  // What the host launches for it, and for those that are gathered ahead, before the first compute.
  Seconds launches_of_first_gathers(const Piece& piece) const;

 private:
  Reduce reduces_each() const;
  Reduce reduces_last() const;
  bool last_differs() const;
  // set(pass, reduce) sets a pass that reduces these gradients.
  template <class Set>
  void reducing(const PassTime& plain, bool has_gradients, Set set, PassTime& usual, PassTime& last) const;
  PassTime alone(std::vector<UnitStep>& steps) const;
  void begin_with_work(std::vector<UnitStep>& steps) const;
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
  // `plain` with what is exchanged, as `pass`.
  void hidden(const PassTime& plain, const Exchanged& sum, Seconds more_compute, PassTime& pass) const;
  void exchanging(std::span<const DeviceStep> steps, std::int32_t prefetch, const PassTime& plain,
                  PassTime& pass) const;

  const Scenario& scenario_;
  const Strategy& strategy_;
  const ComputeTimes& compute_;
  const StateTimes& states_;
  const StepSoftware& software_;
  UnitSteps units_;
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
