// When each stage of a pipeline has run the passes of a step: exact, from what a pass takes as a whole.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sim/cost/execution.h"
#include "sim/plan/schedule.h"
#include "sim/planner/pass_time.h"

namespace sim {

// A pass as a whole. It begins when its stage's compute stream is free, and leaves compute and collectives,
// each of which may have waited for either: sums and maxima, so that four numbers say all. Without exchange
// beside it, three of them say that nothing happens.
inline constexpr Seconds kNever{-1e30};
struct PassTime {
  Seconds duration;                            // of compute, from its own beginning
  Seconds compute_after_collectives = kNever;  // its end, from when earlier collectives end
  Seconds collectives_after_compute = kNever;  // the last collective's end, from its own beginning
  Seconds collectives{};                       // of all collectives one after the other
  // More of compute while earlier collectives still run: a share of the time that they take from its
  // beginning on, and at most.
  double slower = 0;
  Seconds most_slower{};
  HostTime host{};
  HostWork work{};
};

// Passes through one chunk of a stage; of its first and last micro-batch some exchange more.
struct ChunkPasses {
  PassTime forward, backward, input, weight;
  PassTime first_forward, last_backward, last_input, last_weight;
  ActionTime begin_gradients;  // before the first backward pass
};

// The same unit by unit.
struct ChunkSteps {
  std::array<std::vector<UnitStep>, 8> passes;  // in the order of kPasses
  std::int32_t prefetch = 0;
  std::vector<UnitStep>& of(PassTime ChunkPasses::*pass);
  const std::vector<UnitStep>& of(PassTime ChunkPasses::*pass) const;
};

struct TransferTimes {
  ActionTime send_forward, send_backward, receive_forward, receive_backward;
  bool in_order = false;  // sends stand in the compute stream
};

// Where a stage's streams stand, after its last pass or before its first.
struct StageEnd {
  Seconds compute, collectives, sends, host;
};

// Before the first pass of each stage; empty: at zero.
struct PipelineBegin {
  std::vector<StageEnd> stages;
  // By stage and chunk, what ends the first forward pass at the earliest: parameters that are gathered from
  // the beginning of the step on.
  std::vector<Seconds> first_forward;
};

// A pipeline that was run, and what its duration is made of: with passes that take somewhat longer it takes
// longer by as much as those of them on its longest path.
struct PipelineRun {
  std::vector<StageEnd> ends;
  std::vector<Seconds> last_began;      // by stage and chunk: when the pass that ends its gradients began
  std::vector<Seconds> first_backward;  // by stage
  // By stage and chunk, how many passes of each sort, in the order of kPasses, lie on the longest path, and
  // how often gradients begin there.
  std::vector<std::array<double, 9>> on_path;
  // Of these, how many the stage's next pass follows at once.
  std::vector<std::array<double, 8>> followed;
};

// A chunk's passes in the order of ChunkPasses.
inline constexpr std::array<PassTime ChunkPasses::*, 8> kPasses{
    &ChunkPasses::forward,    &ChunkPasses::backward,      &ChunkPasses::input,
    &ChunkPasses::weight,     &ChunkPasses::first_forward, &ChunkPasses::last_backward,
    &ChunkPasses::last_input, &ChunkPasses::last_weight};

// A schedule as a list of what happens in an order in which nothing waits for what comes later.
class SlotOrder {
 public:
  explicit SlotOrder(const Schedule& schedule);
  // passes[stage * chunks + chunk]
  PipelineRun run(const std::vector<const ChunkPasses*>& passes, const TransferTimes& transfers,
                  const PipelineBegin& begun = {}) const;
  // The same unit by unit; clocks[stage] go on from where they stand, and hosts do so much before a stage's
  // first pass.
  void run(const std::vector<const ChunkSteps*>& steps, const TransferTimes& transfers, Seconds host_first,
           std::vector<DeviceClock>& clocks) const;

 private:
  struct Event {
    std::uint8_t pass = 0;  // which of ChunkPasses
    bool forward = false;
    bool reduces = false;                   // its gradients are complete
    bool with_next = false;                 // sends when the next one has ended, too
    bool begins = false;                    // not the rest of the pass before
    bool begins_gradients = false;          // of its chunk
    bool begins_stage = false;              // the first of its stage
    std::int32_t stage = 0, at = 0;         // `at`: stage and chunk
    std::int32_t received = -1, sent = -1;  // messages
  };
  struct Clocks;
  template <bool kHost>
  void run_events(const std::vector<const PassTime*>& passes, const TransferTimes& transfers,
                  const std::vector<const ChunkPasses*>& chunks, const PipelineBegin& begun, Clocks& clocks,
                  PipelineRun& run) const;

  std::int32_t stages_ = 1, chunks_ = 1;
  std::size_t messages_ = 0;
  std::vector<Event> events_;
};

// What a schedule does with many micro-batches: the step grows by the same with each further group of them,
// and two shorter steps say by how much.
class ScheduleClock {
 public:
  ScheduleClock(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                std::int32_t micro_batches);
  PipelineRun run(const std::vector<const ChunkPasses*>& passes, const TransferTimes& transfers,
                  const PipelineBegin& begun = {}) const;
  // begin() gives clocks of all stages, set going. A host that launches late, or is waited for, takes longer
  // to do the same with each further group: more of them are run, and all where they still differ or are no
  // more than those of both runs.
  template <class Begin>
  std::vector<DeviceClock> run(const std::vector<const ChunkSteps*>& steps, const TransferTimes& transfers,
                               Seconds host_first, Begin begin) const {
    const auto run_order = [&](const SlotOrder& order) {
      std::vector<DeviceClock> clocks = begin();
      order.run(steps, transfers, host_first, clocks);
      return clocks;
    };
    const UnitOrders& orders = unit_orders();
    if (!orders.shorter) return run_order(whole());
    std::vector<DeviceClock> clocks = run_order(*orders.longer);
    const std::vector<DeviceClock> less = run_order(*orders.shorter);
    if (!goes_on(less, clocks, orders.more)) return run_order(whole());
    for (std::size_t i = 0; i < clocks.size(); ++i) clocks[i].go_on(less[i], orders.more);
    return clocks;
  }

 private:
  struct UnitOrders {
    std::unique_ptr<SlotOrder> shorter, longer;  // null: there are too few micro-batches
    double more = 0;
  };
  const UnitOrders& unit_orders() const;
  // Whether with `more` groups of micro-batches all stages grow by the same each, to the end.
  static bool goes_on(const std::vector<DeviceClock>& shorter, const std::vector<DeviceClock>& longer,
                      double more);
  const SlotOrder& whole() const;

  std::string schedule_;
  std::int32_t stages_, chunks_, micro_batches_;
  std::unique_ptr<SlotOrder> shorter_,
      longer_;       // shorter: where there are more micro-batches than longer has
  double more_ = 0;  // groups beyond longer
  mutable std::once_flag made_unit_orders_, made_whole_;
  mutable UnitOrders unit_orders_;
  mutable std::unique_ptr<SlotOrder> whole_;  // with all micro-batches, where longer has fewer
};

// As many micro-batches as show all that happens with more.
std::int32_t enough_micro_batches(const std::string& schedule, std::int32_t stages,
                                  std::int32_t micro_batches);

}  // namespace sim
