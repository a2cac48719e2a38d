// When each stage of a pipeline has run the passes of a step with many micro-batches.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "sim/planner/slot_order.h"

namespace sim {

// What a schedule does with many micro-batches: the step grows by the same with each further group of them,
// and two shorter steps say by how much.
class ScheduleClock {
 public:
  ScheduleClock(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                std::int32_t micro_batches);
  // As SlotOrder::run(). All micro-batches are run where a further group does not take what the one before
  // did.
  void run(std::span<const PipelinePasses> runs, std::span<const std::size_t> piece_of,
           const TransferTimes& transfers, bool hosts, std::vector<StageEnd>& ends) const;

 private:
  const SlotOrder& whole() const;

  std::string schedule_;
  std::int32_t stages_, chunks_, micro_batches_;
  std::unique_ptr<SlotOrder> shorter_,
      longer_;       // shorter: where there are more micro-batches than longer has
  double more_ = 0;  // groups beyond longer
  mutable std::once_flag made_whole_;
  mutable std::unique_ptr<SlotOrder> whole_;  // with all micro-batches, where longer has fewer
};

// As many micro-batches as show all that happens with more.
std::int32_t enough_micro_batches(const std::string& schedule, std::int32_t stages,
                                  std::int32_t micro_batches);

}  // namespace sim
