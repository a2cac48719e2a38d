// When each stage of a pipeline has run the passes of a step: exact, from what a pass takes as a whole.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
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

struct TransferTimes {
  ActionTime send_forward, send_backward, receive_forward, receive_backward;
  bool in_order = false;  // sends stand in the compute stream
};

// Where a stage's streams stand after its last pass.
struct StageEnd {
  Seconds compute, collectives, sends, host;
};

// A pipeline that was run, and what its duration is made of: with passes that take somewhat longer it takes
// longer by as much as those of them on its longest path.
struct PipelineRun {
  std::vector<StageEnd> ends;
  std::vector<Seconds> last_began;      // by stage and chunk: when the pass that ends its gradients began
  std::vector<Seconds> first_backward;  // by stage
  // By stage and chunk, how many passes of each sort, in the order of ChunkPasses, lie on the longest path.
  std::vector<std::array<double, 8>> on_path;
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
  PipelineRun run(const std::vector<const ChunkPasses*>& passes, const TransferTimes& transfers) const;

 private:
  enum class Kind : std::uint8_t { receive_forward, receive_backward, work, send_forward, send_backward };
  struct Event {
    Kind kind{};
    std::uint8_t pass = 0;  // which of ChunkPasses
    bool reduces = false;   // its gradients are complete
    std::int16_t stage = 0;
    std::int32_t at = 0;  // stage and chunk; of a transfer, the message
  };
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
  PipelineRun run(const std::vector<const ChunkPasses*>& passes, const TransferTimes& transfers) const;

 private:
  std::unique_ptr<SlotOrder> shorter_,
      longer_;       // shorter: where there are more micro-batches than longer has
  double more_ = 0;  // groups beyond longer
};

// As many micro-batches as show all that happens with more.
std::int32_t enough_micro_batches(const std::string& schedule, std::int32_t stages,
                                  std::int32_t micro_batches);

}  // namespace sim
