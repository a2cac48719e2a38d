// A plan with the time of everything in it: each block priced once per distinct set of variables, and its
// programs run with those times.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sim/cost/execution.h"
#include "sim/cost/software.h"
#include "sim/plan/memory.h"

namespace sim {

// A block with one set of variables.
struct PricedBlock {
  BlockId block = 0;
  Phase phase{};
  Variables variables;
  std::vector<PricedOperation> operations;
  Seconds duration, low, high;
  HostTime host, host_low, host_high;
};

// Prices blocks, each operation once per set of the variables that it depends on. Keeps references to its
// arguments, which must outlive it.
class BlockPricer {
 public:
  BlockPricer(const Plan& plan, const Hardware& hardware, const Calibration* calibration);
  PricedBlock price(BlockId block, Phase phase, const Variables& variables);
  // The same without its band and its operations.
  struct Expected {
    Seconds duration;
    HostTime host;
  };
  Expected expected(BlockId block, Phase phase, const Variables& variables);
  // One operation of a block alone.
  PricedOperation operation(std::size_t block, std::size_t index, const Variables& variables);
  // Takes in blocks added to the plan since; none of their operations is fused with the next.
  void add_new_blocks();
  // The variables that a block's work depends on; the others are 0, so that each price is found once.
  Variables relevant(BlockId block, const Variables& variables) const {
    const auto b = static_cast<std::size_t>(block);
    return relevant(of_length_[b] != nullptr, accumulates_[b], variables);
  }

 private:
  // For a block whose work depends on the length of keys and values: which operations depend on it, and the
  // last price found of each.
  struct OfLength {
    std::vector<bool> needs_length;
    std::vector<std::optional<std::pair<Variables, PricedOperation>>> operations;
  };
  static Variables relevant(bool length, bool accumulates, Variables v) {
    if (!length) v.kv_length = 0;
    v.begins_gradients = v.begins_gradients && accumulates;
    return v;
  }
  bool is_pair(std::size_t block, std::size_t index) const {
    return block < pairs_.size() && index < pairs_[block].size() && pairs_[block][index];
  }
  void price_operations(BlockId id, Phase phase, const Variables& variables,
                        std::vector<PricedOperation>& priced);
  HostTime host_of(BlockId id, const std::vector<PricedOperation>& operations, Seconds Price::*which,
                   double factor) const;
  PricedOperation priced(std::size_t index_of_block, std::size_t index, const Variables& v) const;

  const Plan& plan_;
  const Hardware& hardware_;
  const Calibration* calibration_;
  Bytes working_set_;
  std::vector<std::vector<bool>> pairs_;              // fusable_pairs()
  std::vector<std::unique_ptr<OfLength>> of_length_;  // by block; null where its work does not depend on it
  std::vector<bool> accumulates_;                     // by block: whether it may begin gradients
  std::vector<PricedOperation> of_expected_;          // scratch of expected(), which returns none
};

// Programs run three times: with the expected times and with all times at either end of their bands, since
// errors of kernels on one machine go together.
struct PricedPlan {
  std::vector<PricedBlock> blocks;
  std::vector<std::vector<std::size_t>> block_of;  // of each program's actions, indices into blocks
  Execution expected, low, high;

  const PricedBlock& block(std::size_t program, std::size_t action) const {
    return blocks[block_of[program][action]];
  }
};
// Bytes that a training step or a token touches before it comes back to the same weights: all live memory. Of
// a generation's cache, which fills as it goes on, half of the places of new tokens count, the average. Only
// the plan's first program counts. Zero where the calibration has no timed samples: only samples need it.
Bytes working_set_of(const Plan& plan, const Calibration* calibration);
PricedPlan price_plan(const Plan& plan, const Hardware& hardware, const Calibration* calibration);

// When the operations of a program begin. Keeps a reference to `priced`, which must outlive it.
class OperationClock {
 public:
  OperationClock(const Plan& plan, const PricedPlan& priced, std::size_t program);
  // Quick where times are asked for in their order.
  Seconds at(OpTime t);

 private:
  std::vector<OpTime> action_times_;
  std::size_t action_ = 0;  // of the last call of at()
  const PricedPlan& priced_;
  std::size_t program_;
};

// memory_timeline() with times of the step's clock: at most about `most_points` points, at least a few for
// each micro-batch.
std::vector<MemoryTimePoint> memory_over_time(const Plan& plan, const MemoryPlan& memory,
                                              const PricedPlan& priced, std::size_t most_points);

}  // namespace sim
