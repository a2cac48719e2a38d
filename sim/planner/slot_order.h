// A schedule as a list of what happens in an order in which nothing waits for what comes later, and runs of
// it with whatever passes take.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sim/cost/execution.h"
#include "sim/plan/schedule.h"
#include "sim/planner/pipeline_time.h"

namespace sim {

struct Lanes;

class SlotOrder {
 public:
  explicit SlotOrder(const Schedule& schedule);
  // piece_of[stage * chunks + chunk]: whose passes these are. Hosts begin at zero, as all streams do.
  PipelineRun run(std::span<const ChunkPasses> passes, std::span<const std::size_t> piece_of,
                  const TransferTimes& transfers) const;
  // Of several runs in each of some orders of the same pipeline, what stages end with:
  // ends[(run * orders + order) * stages + stage]. Hosts wait before a pass in all of the runs, or in none.
  static void run(std::span<const SlotOrder* const> orders, std::span<const PipelinePasses> runs,
                  std::span<const std::size_t> piece_of, const TransferTimes& transfers,
                  std::vector<StageEnd>& ends);
  // Unit by unit; clocks[stage] go on from where they stand, and hosts do so much before a stage's first
  // pass.
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
  template <class Time>
  struct Machine;
  template <class Time>
  static Machine<Time>& machine(std::span<const PipelinePasses> runs, std::span<const std::size_t> piece_of);
  template <class Time, bool kHost, class Observer>
  void run_events(Machine<Time>& machine, const TransferTimes& transfers, Observer& observer) const;
  void run_lanes(Machine<Lanes>& machine, const TransferTimes& transfers) const;
  void run_lanes_after_hosts(Machine<Lanes>& machine, const TransferTimes& transfers) const;
  void share_messages();

  std::int32_t stages_ = 1, chunks_ = 1;
  std::size_t messages_ = 0;
  std::vector<Event> events_;
};

}  // namespace sim
