#include "sim/planner/candidate_walk.h"

#include <algorithm>

namespace sim {

SpaceShape::SpaceShape(const SearchSpace& s) {
  const auto n = [](const auto& values) { return static_cast<std::int64_t>(values.size()); };
  layouts = n(s.devices) * n(s.global_batch_size) * n(s.rank_order) * n(s.tensor_parallel) *
            n(s.context_parallel) * n(s.expert_parallel) * n(s.expert_tensor_parallel) *
            n(s.context_parallel_comm) * n(s.sequence_parallel);
  passes = n(s.recompute) * n(s.offload_activations) * n(s.micro_batch_size);
  pipelines = n(s.pipeline_parallel) * n(s.schedule) * n(s.virtual_pipeline);
  states = n(s.zero_stage) * n(s.shard_group) * n(s.prefetch) * n(s.gradient_bucket) * n(s.offload_optimizer);
}

SpaceParts::SpaceParts(const SearchSpace& space, std::int64_t begin, std::int64_t end) {
  if (begin >= end) return;
  const std::int64_t each = SpaceShape(space).of_layout();
  first_ = begin / each;
  last_ = (end - 1) / each + 1;
}

struct CandidateWalk::Shared {
  const SearchSpace& space;
  const Calibration* calibration;
  std::int64_t begin, end;
  Estimator estimator;
};

CandidateWalk::CandidateWalk(const SearchSpace& space, const Calibration* calibration, std::int64_t begin,
                             std::int64_t end)
    : shared_(new Shared{space, calibration, begin, end, Estimator(space.base, calibration)}) {}
CandidateWalk::~CandidateWalk() = default;

void CandidateWalk::run(const SpaceParts& parts, std::int64_t part, const std::stop_token& stop,
                        Collector& collector) {
  const std::int64_t each = SpaceShape(shared_->space).of_layout();
  const std::int64_t first = std::max(shared_->begin, parts.layout(part) * each);
  const std::int64_t last = std::min(shared_->end, (parts.layout(part) + 1) * each);
  for (std::int64_t i = first; i < last && !stop.stop_requested(); ++i) {
    const Scenario s = candidate(shared_->space, i);
    const std::vector<Problem> problems = validate(s);
    if (!problems.empty()) {
      collector.refuse(collector.reason(problems[0].field), 1);
      continue;
    }
    const Estimate e = shared_->estimator.estimate(s.strategy, s.workload);
    if (!collector.asks_for_time(i, e.memory))
      collector.add_too_large(i, e.memory);
    else
      collector.add(i, s.strategy.devices(), tokens_of_step(s.workload), e);
  }
}

double tokens_of_step(const Workload& w) {
  return static_cast<double>(w.global_batch_size) * static_cast<double>(w.seq_len);
}

}  // namespace sim
