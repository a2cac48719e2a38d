// Runs of a schedule with whatever passes take.
#pragma once
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "sim/cost/execution.h"
#include "sim/planner/lanes.h"
#include "sim/planner/pass_timer.h"
#include "sim/planner/slot_events.h"

namespace sim {

// Passes over a piece, in the order of kPassKinds; null where the schedule has none.
using ChunkPasses = std::array<const PassTime*, kPassKinds.size()>;

struct TransferTimes {
  ActionTime send_forward, send_backward, receive_forward, receive_backward;
  bool in_order = false;  // sends stand in the compute stream
};

// Where a stage's streams stand, after its last pass or before its first.
struct StageEnd {
  Seconds compute, collectives, sends, host;
};

// One of several runs of a pipeline.
struct PipelinePasses {
  std::span<const ChunkPasses> passes = {};  // of distinct pieces
  std::vector<StageEnd> begin = {};          // of stages
  // By stage and chunk: the earliest end of the first forward pass, because of parameters that are gathered
  // from the beginning of the step on. Empty: none are.
  std::vector<Seconds> first_forward = {};
};

class SlotOrder {
 public:
  explicit SlotOrder(SlotEvents events) : events_(std::move(events)) {}
  // Finds where stages end in several runs beside each other: ends[run * stages + stage].
  // piece_of[stage * chunks + chunk]: whose passes these are. `hosts`: they decide when work starts.
  void run(std::span<const PipelinePasses> runs, std::span<const std::size_t> piece_of,
           const TransferTimes& transfers, bool hosts, std::vector<StageEnd>& ends) const;

 private:
  template <bool kHost>
  struct Machine;
  template <bool kHost>
  void run_some(std::span<const PipelinePasses> runs, std::span<const std::size_t> piece_of,
                const TransferTimes& transfers, StageEnd* ends) const;
  template <bool kHost>
  void repeat_group(Machine<kHost>& machine, const TransferTimes& transfers) const;
  template <bool kHost>
  void run_events(const SlotSegment& segment, Machine<kHost>& machine, const TransferTimes& transfers) const;
  void run_segment(const SlotSegment& segment, Machine<false>& machine, const TransferTimes& transfers) const;
  void run_segment(const SlotSegment& segment, Machine<true>& machine, const TransferTimes& transfers) const;

  SlotEvents events_;
};

}  // namespace sim
