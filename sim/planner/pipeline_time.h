// When each stage of a pipeline has run the passes of a step: exact, from what a pass takes as a whole.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "sim/cost/execution.h"
#include "sim/plan/schedule.h"

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
  HostTime host{};
  HostWork work{};
};

// Passes through one chunk of a stage; of its first and last micro-batch some exchange more.
struct ChunkPasses {
  PassTime forward, backward, input, weight;
  PassTime first_forward, last_backward, last_input, last_weight;
};

struct StageTimes {
  std::vector<ChunkPasses> chunks;
  Seconds begin, host_begin;  // when the device and the host have done what comes before the first pass
};

struct TransferTimes {
  ActionTime send_forward, send_backward, receive_forward, receive_backward;
  bool in_order = false;  // sends stand in the compute stream
};

// Where a stage's streams stand after its last pass.
struct StageEnd {
  Seconds compute, collectives, sends, host;
};

// A schedule as a list of what happens in an order in which nothing waits for what comes later.
class SlotOrder {
 public:
  explicit SlotOrder(const Schedule& schedule);
  std::vector<StageEnd> run(const std::vector<StageTimes>& stages, const TransferTimes& transfers) const;

 private:
  enum class Kind : std::uint8_t { receive_forward, receive_backward, work, send_forward, send_backward };
  struct Event {
    Kind kind{};
    Pass pass{};
    bool first = false, last = false;  // of the chunk's passes in this direction
    std::int16_t stage = 0, chunk = 0;
    std::int32_t message = -1;  // that is sent or received
  };
  std::int32_t stages_ = 1;
  std::size_t messages_ = 0;
  std::vector<Event> events_;
};

// Schedules with orders that are kept. Where there are many micro-batches, the step grows by the same with
// each further group of them, and two shorter steps say by how much.
class PipelineClock {
 public:
  // As many micro-batches as show all that happens with more.
  static std::int32_t enough_micro_batches(const std::string& schedule, std::int32_t stages,
                                           std::int32_t micro_batches);

  std::vector<StageEnd> run(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                            std::int32_t micro_batches, const std::vector<StageTimes>& times,
                            const TransferTimes& transfers);

 private:
  const SlotOrder& order(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                         std::int32_t micro_batches);
  std::map<std::tuple<std::string, std::int32_t, std::int32_t, std::int32_t>, std::unique_ptr<SlotOrder>>
      orders_;
};

}  // namespace sim
