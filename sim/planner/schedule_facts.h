// What follows from a schedule alone, found once for a whole search.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "sim/planner/in_flight.h"
#include "sim/planner/schedule_clock.h"

namespace sim {

// A schedule with all that follows from it alone. May be asked by several threads at a time.
class ScheduleFacts {
 public:
  ScheduleFacts(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                std::int32_t micro_batches);
  Schedule placement;                    // without slots
  std::vector<StageInFlight> in_flight;  // of each stage
  std::vector<bool> within_before;       // of each stage, whether within() the one before
  // Made when it is first asked for: of many schedules no candidate fits, or all are beaten.
  const ScheduleClock& clock() const;

 private:
  std::string schedule_;
  std::int32_t chunks_;
  mutable std::once_flag made_;
  mutable std::optional<ScheduleClock> clock_;
};

// The schedules that a search has met, for all of its threads.
class Schedules {
 public:
  const ScheduleFacts& of(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                          std::int32_t micro_batches);

 private:
  struct Known {
    std::once_flag made;
    std::unique_ptr<ScheduleFacts> facts;
  };
  std::mutex mutex_;
  std::map<std::tuple<std::string, std::int32_t, std::int32_t, std::int32_t>, Known> known_;
};

}  // namespace sim
