// What follows from a schedule alone, found once for a whole search.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "sim/planner/in_flight.h"
#include "sim/planner/slot_order.h"

namespace sim {

// May be asked by several threads at a time.
class ScheduleFacts {
 public:
  // `begins_gradients`: as in_flight() has it.
  ScheduleFacts(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                std::int32_t micro_batches, bool begins_gradients);
  Schedule placement;  // without slots
  StagesInFlight in_flight;

  // As SlotOrder::run(). With many micro-batches the step grows by the same with each further group of them,
  // and two shorter steps say by how much. All micro-batches are run where a further group does not take what
  // the one before did.
  void run(std::span<const PipelinePasses> runs, std::span<const std::size_t> piece_of,
           const TransferTimes& transfers, bool hosts, std::vector<StageEnd>& ends) const;

 private:
  // Made when it is first asked for: of many schedules no candidate fits, or all are beaten.
  struct Order {
    std::int32_t micro_batches = 0;
    mutable std::once_flag made = {};
    mutable std::unique_ptr<SlotOrder> order = {};
  };
  const SlotOrder& made(const Order& order) const;

  std::string schedule_;
  std::int32_t chunks_;
  Order all_, longer_, shorter_;  // where all are no more than longer has, it has them
  double more_ = 0;               // groups beyond longer
};

// The schedules that a search has met, for all of its threads.
class Schedules {
 public:
  const ScheduleFacts& of(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                          std::int32_t micro_batches, bool begins_gradients);

 private:
  struct Known {
    std::once_flag made;
    std::unique_ptr<ScheduleFacts> facts;
  };
  std::mutex mutex_;
  std::map<std::tuple<std::string, std::int32_t, std::int32_t, std::int32_t, bool>, Known> known_;
};

}  // namespace sim
