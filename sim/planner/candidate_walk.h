// Walks all candidates of a space in order. Those that contradict themselves are refused in bulk; the others
// are estimated, and what neighbours have in common is found once.
#pragma once
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string_view>

#include "sim/planner/collector.h"
#include "sim/planner/step_estimator.h"

namespace sim {

// The field of a candidate whose value means the same as 0, where the space tries 0 too: an expert over as
// many devices as a layer, or states over all ranks. Such candidates are refused by that field, so that a
// strategy is found once. Empty: there is no such field.
std::string_view said_twice(const SearchSpace& space, const Strategy& strategy);

// A space's fields are listed in four groups, of which each needs those before it: how layers are divided,
// what a pass over them is, how passes are strung together, where states lie.
// index = ((layout passes + pass) pipelines + pipeline) states + state.
struct SpaceShape {
  explicit SpaceShape(const SearchSpace& space);
  std::int64_t layouts, passes, pipelines, states;
  std::int64_t of_layout() const { return passes * pipelines * states; }
};

class CandidateWalk {
 public:
  // Walks the candidates in [begin, end). Refers to the space and the calibration; walks on several threads
  // may share what they find of schedules.
  CandidateWalk(const SearchSpace& space, const Calibration* calibration, std::int64_t begin,
                std::int64_t end, std::shared_ptr<Schedules> schedules);
  ~CandidateWalk();

  // All candidates of a layout, unless the search is stopped. Layouts are numbered as they lie in the space.
  void run(std::int64_t layout, const std::stop_token& stop, Collector& collector);

 private:
  class Layout;
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

double tokens_of_step(const Workload& workload);

}  // namespace sim
