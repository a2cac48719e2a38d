// What follows from a schedule alone, found once for a whole search.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

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

  // Made at the first call: many schedules never need it, since no candidate fits or all are beaten.
  const SlotOrder& order() const;

 private:
  std::string schedule_;
  std::int32_t chunks_;
  mutable std::once_flag made_;
  mutable std::unique_ptr<SlotOrder> order_;
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
