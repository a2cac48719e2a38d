#include "sim/planner/schedule_facts.h"

#include <algorithm>
#include <utility>

namespace sim {
namespace {

// Micro-batches that the pattern of a schedule repeats itself after.
std::int32_t group_of(const std::string& schedule, std::int32_t stages) {
  return placement_of(schedule) == Placement::two_directions ? 2 * stages : stages;
}

// As many micro-batches as show all that is in flight with more.
std::int32_t enough_micro_batches(const std::string& schedule, std::int32_t stages,
                                  std::int32_t micro_batches) {
  const std::int32_t filling = traits_of_schedule(schedule).filling, group = group_of(schedule, stages);
  return filling == 0 ? micro_batches
                      : std::min(micro_batches, (filling + 1) * group + micro_batches % group);
}

// Whether stages that ended so with a group of micro-batches more than before go on by as much with each
// further one. Clocks are the same functions of their times whatever the time is: what moved by the same
// everywhere does so for ever, and what is behind compute and falls further behind decides nothing. What is
// ahead of it does until compute has caught up, and then moves with it.
bool goes_on(std::span<const StageEnd> less, std::span<const StageEnd> more) {
  constexpr double kRounding = 1e-9;
  Seconds pace;
  for (std::size_t i = 0; i < more.size(); ++i) pace = std::max(pace, more[i].compute - less[i].compute);
  const Seconds rounding = pace * kRounding;
  for (std::size_t i = 0; i < more.size(); ++i) {
    if (pace - (more[i].compute - less[i].compute) > rounding) return false;
    for (const auto stream : {&StageEnd::collectives, &StageEnd::sends, &StageEnd::host}) {
      const Seconds gains = more[i].*stream - less[i].*stream - pace;
      if (gains > rounding || (more[i].*stream > more[i].compute && gains + rounding < Seconds{}))
        return false;
    }
  }
  return true;
}

}  // namespace

ScheduleFacts::ScheduleFacts(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                             std::int32_t micro_batches, bool begins_gradients)
    : placement{.stages = stages,
                .chunks = placement_of(schedule) == Placement::two_directions ? 2 : chunks,
                .micro_batches = micro_batches,
                .placement = placement_of(schedule)},
      in_flight(sim::in_flight(
          make_schedule(schedule, stages, chunks, enough_micro_batches(schedule, stages, micro_batches)),
          begins_gradients)),
      schedule_(schedule),
      chunks_(chunks) {
  // With all micro-batches in flight a step grows by the same with each, too.
  const std::int32_t group = group_of(schedule, stages),
                     filling = std::max(2, traits_of_schedule(schedule).filling);
  all_.micro_batches = micro_batches;
  shorter_.micro_batches = filling * group + micro_batches % group;
  longer_.micro_batches = shorter_.micro_batches + group;
  more_ = (micro_batches - longer_.micro_batches) / group;
}

const SlotOrder& ScheduleFacts::made(const Order& o) const {
  std::call_once(o.made, [&] {
    o.order =
        std::make_unique<SlotOrder>(make_schedule(schedule_, placement.stages, chunks_, o.micro_batches));
  });
  return *o.order;
}

void ScheduleFacts::run(std::span<const PipelinePasses> runs, std::span<const std::size_t> piece_of,
                        const TransferTimes& transfers, bool hosts, std::vector<StageEnd>& ends) const {
  if (all_.micro_batches <= longer_.micro_batches)
    return made(all_).run(runs, piece_of, transfers, hosts, ends);
  thread_local std::vector<StageEnd> less, all;
  made(longer_).run(runs, piece_of, transfers, hosts, ends);
  made(shorter_).run(runs, piece_of, transfers, hosts, less);
  const auto stages = static_cast<std::size_t>(placement.stages);
  bool has_all = false;  // several beside each other take as long as one
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const std::span<StageEnd> more(ends.data() + run * stages, stages);
    const std::span<const StageEnd> before(less.data() + run * stages, stages);
    if (!goes_on(before, more)) {
      if (!std::exchange(has_all, true)) made(all_).run(runs, piece_of, transfers, hosts, all);
      std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(run * stages), stages, more.begin());
      continue;
    }
    for (std::size_t i = 0; i < stages; ++i)
      for (const auto stream :
           {&StageEnd::compute, &StageEnd::collectives, &StageEnd::sends, &StageEnd::host})
        more[i].*stream += (more[i].*stream - before[i].*stream) * more_;
  }
}

const ScheduleFacts& Schedules::of(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                                   std::int32_t micro_batches, bool begins_gradients) {
  Known& known = [&]() -> Known& {
    const std::lock_guard lock(mutex_);
    return known_[{schedule, stages, chunks, micro_batches, begins_gradients}];
  }();
  std::call_once(known.made, [&] {
    known.facts = std::make_unique<ScheduleFacts>(schedule, stages, chunks, micro_batches, begins_gradients);
  });
  return *known.facts;
}

}  // namespace sim
