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
  PipelineRun run(std::span<const ChunkPasses> passes, std::span<const std::size_t> piece_of,
                  const TransferTimes& transfers) const;
  // ends[run * stages + stage]
  void run(std::span<const PipelinePasses> runs, std::span<const std::size_t> piece_of,
           const TransferTimes& transfers, std::vector<StageEnd>& ends) const;
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
  // As much longer as the groups beyond longer_ take.
  void go_on(StageEnd& end, const StageEnd& less) const;

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
