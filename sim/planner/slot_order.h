// A schedule as a list of what happens in an order in which nothing waits for what comes later, and runs of
// it with whatever passes take.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/cost/execution.h"
#include "sim/plan/schedule.h"
#include "sim/planner/lanes.h"
#include "sim/planner/pass_timer.h"

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
  // By stage and chunk, what ends the first forward pass at the earliest: parameters that are gathered from
  // the beginning of the step on. Empty: none are.
  std::vector<Seconds> first_forward = {};
};

class SlotOrder {
 public:
  explicit SlotOrder(const Schedule& schedule);
  // What stages end with, in several runs beside each other: ends[run * stages + stage].
  // piece_of[stage * chunks + chunk]: whose passes these are. `hosts`: decide when anything begins.
  void run(std::span<const PipelinePasses> runs, std::span<const std::size_t> piece_of,
           const TransferTimes& transfers, bool hosts, std::vector<StageEnd>& ends) const;

 private:
  struct Event {
    std::uint8_t kind = 0;  // of its pass, among kinds_
    bool forward = false;
    bool reads_ahead = false;               // PassKind's
    bool with_next = false;                 // sends when the next one has ended, too
    std::int32_t stage = 0, at = 0;         // `at`: stage and chunk
    std::int32_t received = -1, sent = -1;  // messages
  };
  template <bool kHost>
  struct Machine;
  template <bool kHost>
  void run_some(std::span<const PipelinePasses> runs, std::span<const std::size_t> piece_of,
                const TransferTimes& transfers, StageEnd* ends) const;
  template <bool kHost>
  void run_events(Machine<kHost>& machine, const TransferTimes& transfers) const;
  void run_machine(Machine<false>& machine, const TransferTimes& transfers) const;
  void run_machine(Machine<true>& machine, const TransferTimes& transfers) const;
  void share_messages();

  std::int32_t stages_ = 1, chunks_ = 1;
  std::size_t messages_ = 0;
  std::vector<Event> events_;
  std::vector<std::uint8_t> kinds_;  // that it has, of kPassKinds
};

}  // namespace sim
