#include "sim/planner/schedule_clock.h"

#include <algorithm>
#include <array>

namespace sim {

namespace {

// Micro-batches that the pattern of a schedule repeats itself after.
std::int32_t group_of(const std::string& schedule, std::int32_t stages) {
  return placement_of(schedule) == Placement::two_directions ? 2 * stages : stages;
}
// Groups that fill the pipeline; with one more it does what it goes on doing.
std::int32_t groups_of(const std::string& schedule) {
  const bool fills_twice = schedule == "zb-h2" || placement_of(schedule) == Placement::v;
  return fills_twice ? 3 : 2;
}

}  // namespace

std::int32_t enough_micro_batches(const std::string& schedule, std::int32_t stages,
                                  std::int32_t micro_batches) {
  if (schedule == "gpipe") return micro_batches;  // all are in flight
  const std::int32_t group = group_of(schedule, stages);
  return std::min(micro_batches, (groups_of(schedule) + 1) * group + micro_batches % group);
}

ScheduleClock::ScheduleClock(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                             std::int32_t micro_batches)
    : schedule_(schedule), stages_(stages), chunks_(chunks), micro_batches_(micro_batches) {
  const std::int32_t group = group_of(schedule, stages);
  const std::int32_t shorter = groups_of(schedule) * group + micro_batches % group, longer = shorter + group;
  const auto order = [&](std::int32_t m) {
    return std::make_unique<SlotOrder>(make_schedule(schedule, stages, chunks, m));
  };
  longer_ = order(std::min(micro_batches, longer));
  if (micro_batches <= longer) return;
  shorter_ = order(shorter);
  more_ = (micro_batches - longer) / group;
}

const SlotOrder& ScheduleClock::whole() const {
  if (!shorter_) return *longer_;
  std::call_once(made_whole_, [&] {
    whole_ = std::make_unique<SlotOrder>(make_schedule(schedule_, stages_, chunks_, micro_batches_));
  });
  return *whole_;
}

const ScheduleClock::UnitOrders& ScheduleClock::unit_orders() const {
  constexpr std::int32_t kMoreGroups = 2;  // than fill the pipeline
  std::call_once(made_unit_orders_, [&] {
    const std::int32_t group = group_of(schedule_, stages_);
    const std::int32_t shorter = (groups_of(schedule_) + kMoreGroups) * group + micro_batches_ % group,
                       longer = shorter + group;
    if (micro_batches_ <= shorter + longer) return;
    const auto order = [&](std::int32_t m) {
      return std::make_unique<SlotOrder>(make_schedule(schedule_, stages_, chunks_, m));
    };
    unit_orders_ = {order(shorter), order(longer), static_cast<double>((micro_batches_ - longer) / group)};
  });
  return unit_orders_;
}

bool ScheduleClock::goes_on(const std::vector<DeviceClock>& shorter, const std::vector<DeviceClock>& longer,
                            double more) {
  constexpr double kNegligible = 0.001;  // of a step
  Seconds least{1e30}, most, end;
  for (std::size_t i = 0; i < longer.size(); ++i) {
    const Seconds grew = longer[i].free(kComputeStream) - shorter[i].free(kComputeStream);
    least = std::min(least, grew);
    most = std::max(most, grew);
    end = std::max(end, longer[i].end() + grew * more);
  }
  if ((most - least) * more > end * kNegligible) return false;
  for (std::size_t i = 0; i < longer.size(); ++i) {
    const Seconds behind = longer[i].free(kComputeStream) - longer[i].host();
    const Seconds catches_up = longer[i].host() - shorter[i].host() - least;
    // A host that is behind compute may come to be ahead of it.
    if (catches_up * more > std::max(behind, end * kNegligible)) return false;
  }
  return true;
}

PipelineRun ScheduleClock::run(std::span<const ChunkPasses> passes, std::span<const std::size_t> piece_of,
                               const TransferTimes& transfers) const {
  PipelineRun run = longer_->run(passes, piece_of, transfers);
  if (!shorter_) return run;
  const PipelineRun less = shorter_->run(passes, piece_of, transfers);
  const auto grow = [this](auto& value, const auto& before) { value += (value - before) * more_; };
  for (std::size_t i = 0; i < run.ends.size(); ++i) go_on(run.ends[i], less.ends[i]);
  for (std::size_t i = 0; i < run.last_began.size(); ++i) {
    grow(run.last_began[i], less.last_began[i]);
    for (std::size_t pass = 0; pass < run.on_path[i].size(); ++pass)
      grow(run.on_path[i][pass], less.on_path[i][pass]);
    for (std::size_t pass = 0; pass < kPasses.size(); ++pass)
      grow(run.followed[i][pass], less.followed[i][pass]);
  }
  return run;
}

void ScheduleClock::run(std::span<const PipelinePasses> runs, std::span<const std::size_t> piece_of,
                        const TransferTimes& transfers, std::vector<StageEnd>& ends) const {
  const std::array<const SlotOrder*, 2> orders{longer_.get(), shorter_.get()};
  SlotOrder::run({orders.data(), shorter_ ? orders.size() : 1}, runs, piece_of, transfers, ends);
  if (!shorter_) return;
  const auto stages = static_cast<std::size_t>(stages_);
  for (std::size_t run = 0; run < runs.size(); ++run)
    for (std::size_t i = 0; i < stages; ++i) {
      StageEnd& end = ends[run * stages + i];
      end = ends[2 * run * stages + i];
      go_on(end, ends[(2 * run + 1) * stages + i]);
    }
  ends.resize(runs.size() * stages);
}

void ScheduleClock::go_on(StageEnd& end, const StageEnd& less) const {
  for (Seconds StageEnd::*t : {&StageEnd::compute, &StageEnd::collectives, &StageEnd::sends, &StageEnd::host})
    end.*t += (end.*t - less.*t) * more_;
}

}  // namespace sim
