// Times operations alone, as the executor runs them: through Device::run, on operands that rotate through
// memory as a model's layers do.
#pragma once
#include <cstddef>
#include <span>
#include <stop_token>
#include <vector>

#include "runtime/arena.h"
#include "runtime/device.h"
#include "runtime/single_operation.h"

namespace runtime {

// Operands of an operation rotate through memory, as a model's layers do, and small and large models differ
// in which cache they still find their weights in. So each operation is timed over two working sets: one that
// stays in the last cache, of this size at most, and one that no cache holds.
inline constexpr sim::Bytes kCachedRotation{64 << 20};

struct Timing {
  double median = 0, least = 0, mean = 0;  // seconds
  double spread = 0;                       // (90th percentile - 10th) / median
  sim::Bytes working_set;  // of time_uncached(): what it went through before the same operands came again
};

// How long one operation may be timed, warm-up not counted, and how often: `fewest` times however long it
// takes.
struct SampleLength {
  double seconds = 0.03;
  std::size_t most = 30, fewest = 3;
};

// What an operation is run with: a step of AdamW; of ranks that divide sequences or the vocabulary, the first
// one's part, which is as much work as the operation's dimensions say.
RunSettings settings_to_time(const sim::Operation& operation);

class Stopwatch {
 public:
  // `memory` is what operands may take of the device; `rotation`: what they go through that are to be found
  // in a cache. `stored`: of most operands. Memory is filled with normal random values: on zeros, GPUs draw
  // less power and are faster.
  Stopwatch(Device& device, sim::Bytes memory, sim::Bytes rotation, sim::DType stored,
            SampleLength length = {});

  // What operands may take.
  sim::Bytes working_set() const { return arena_.size(); }
  // What time_uncached() asks of memory.
  static sim::Bytes uncached_memory(const SingleOperation& single);

  // Where the device replays work, these two time runs in a row that are replayed, as those of a step or a
  // token are: neither a kernel's start nor the look at the clock is a part of it. Elsewhere each run alone.
  //
  // Operands rotate through `rotation`; each copy has been used before it is timed.
  Timing time_cached(const SingleOperation& single);
  // Each run has operands that were last touched when the whole arena was gone through since; replayed, when
  // as many other copies were as the arena holds, at most kMostReplayed.
  Timing time_uncached(const SingleOperation& single);

  // Seconds a run where many follow each other without a look at them in between: one by one, or noted once
  // and replayed (Device::can_replay). Operands rotate as in time_cached().
  Timing time_in_a_row(const SingleOperation& single, std::size_t runs, bool replayed);

  // Seconds a round where these follow each other round after round, replayed where the device can. Operands
  // of all rotate through as much as those of one do in time_cached().
  Timing time_in_turn(std::span<const SingleOperation> turn);

  // Runs without a pause for that long: seconds of each, in batches that are looked at together.
  std::vector<double> time_for(const SingleOperation& single, double seconds, const std::stop_token& stop);

 private:
  static constexpr std::size_t kMostReplayed = 128;

  double run_once(std::size_t turn, std::size_t in_a_row = 1);  // seconds of one
  std::size_t runs_between_looks(std::size_t first);
  Timing repeat(std::size_t most, std::size_t first);
  Timing repeat_in_a_row(std::size_t runs, bool replayed);
  // How many runs of bound_ take so long: from `least` to all that are worth it.
  std::size_t runs_of(double seconds, std::size_t least);
  void bind(const SingleOperation& single, sim::Bytes offset, sim::Bytes room, std::size_t most, bool filled);
  void fill(const SingleOperation& single, sim::DType dtype, const BoundOperand& operand);
  void fill_with_template(std::byte* to, std::size_t bytes, sim::DType dtype);

  Device& device_;
  Arena arena_;
  sim::Bytes rotation_;
  sim::DType stored_;
  SampleLength length_;
  sim::Bytes cursor_;  // where time_uncached() goes on
  std::vector<std::byte> template_, bf16_template_, f16_template_, fp8_template_;
  std::vector<BoundOperand> operands_;
  std::vector<BoundOperation> bound_;
};

}  // namespace runtime
