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

// The operands of an operation rotate through memory, as those of a model's layers do. Small models find
// their weights in a cache, large ones do not. So each operation is timed over two working sets: one that
// stays in the last cache, of at most this size, and one that no cache holds.
inline constexpr sim::Bytes kCachedRotation{64 << 20};

struct Timing {
  double median = 0, least = 0, mean = 0;  // seconds
  double spread = 0;                       // (90th percentile - 10th) / median
  sim::Bytes working_set;  // time_uncached(): bytes touched before the same operands are used again
};

// How long one operation may be timed, warm-up not counted, and how often: `fewest` times however long it
// takes.
struct SampleLength {
  double seconds = 0.03;
  std::size_t most = 30, fewest = 3;
};

// The settings to run an operation with: a step of AdamW. Where ranks divide sequences or the vocabulary, the
// settings name the first rank's part, which is as much work as the operation's dimensions say.
RunSettings settings_to_time(const sim::Operation& operation);

class Stopwatch {
 public:
  // `memory`: bytes that operands may take on the device. `rotation`: bytes that cached operands rotate
  // through. `stored`: the type of most operands. Memory is filled with normal random values, because GPUs
  // draw less power on zeros and are faster.
  Stopwatch(Device& device, sim::Bytes memory, sim::Bytes rotation, sim::DType stored,
            SampleLength length = {});

  // The memory that operands may take.
  sim::Bytes working_set() const { return arena_.size(); }
  // The memory that time_uncached() needs for `single`.
  static sim::Bytes uncached_memory(const SingleOperation& single);

  // If the device replays work, these two time many replayed runs in a row, as in a step or a token. The time
  // then excludes a kernel's start and the reading of the clock. Otherwise each run is timed alone.
  //
  // Operands rotate through `rotation`; each copy has been used before it is timed.
  Timing time_cached(const SingleOperation& single);
  // The whole arena was touched between two uses of a run's operands. In replays only as many other copies
  // were touched as run in a row: at most kMostReplayed, and at most what the arena holds.
  Timing time_uncached(const SingleOperation& single);

  // Seconds per run where many follow each other and the clock is read only around all of them. They run one
  // by one, or are captured and replayed (Device::can_replay). Operands rotate as in time_cached().
  Timing time_in_a_row(const SingleOperation& single, std::size_t runs, bool replayed);

  // Seconds per round where these operations run in turn, round after round, replayed where the device can.
  // All operands together rotate through as much memory as one operation's do in time_cached().
  Timing time_in_turn(std::span<const SingleOperation> turn);

  // Runs without a pause for that long. Gives seconds per run, one number for each batch of runs.
  std::vector<double> time_for(const SingleOperation& single, double seconds, const std::stop_token& stop);

 private:
  static constexpr std::size_t kMostReplayed = 128;

  double run_once(std::size_t turn, std::size_t in_a_row = 1);  // seconds per run
  std::size_t runs_between_looks(std::size_t first);
  Timing repeat(std::size_t most, std::size_t first);
  Timing repeat_in_a_row(std::size_t runs, bool replayed);
  // How many runs of bound_ take `seconds` together: at least `least`, at most kMostReplayed.
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
