#include "sim/planner/schedule_clock.h"

#include <algorithm>
#include <array>

namespace sim {

namespace {

// Micro-batches that the pattern of a schedule repeats itself after.
std::int32_t group_of(const std::string& schedule, std::int32_t stages) {
  return placement_of(schedule) == Placement::two_directions ? 2 * stages : stages;
}

}  // namespace

std::int32_t enough_micro_batches(const std::string& schedule, std::int32_t stages,
                                  std::int32_t micro_batches) {
  const std::int32_t filling = traits_of_schedule(schedule).filling, group = group_of(schedule, stages);
  return filling == 0 ? micro_batches
                      : std::min(micro_batches, (filling + 1) * group + micro_batches % group);
}

ScheduleClock::ScheduleClock(const std::string& schedule, std::int32_t stages, std::int32_t chunks,
                             std::int32_t micro_batches)
    : schedule_(schedule), stages_(stages), chunks_(chunks), micro_batches_(micro_batches) {
  const std::int32_t group = group_of(schedule, stages);
  // With all micro-batches in flight a step grows by the same with each, too.
  const std::int32_t filling = std::max(2, traits_of_schedule(schedule).filling);
  const std::int32_t shorter = filling * group + micro_batches % group, longer = shorter + group;
  const auto order = [&](std::int32_t m) {
    return std::make_unique<SlotOrder>(make_schedule(schedule, stages, chunks, m));
  };
  longer_ = order(std::min(micro_batches, longer));
  if (micro_batches <= longer) return;
  shorter_ = order(shorter);
  more_ = (micro_batches - longer) / group;
}

const SlotOrder& ScheduleClock::whole() const {
  std::call_once(made_whole_, [&] {
    whole_ = std::make_unique<SlotOrder>(make_schedule(schedule_, stages_, chunks_, micro_batches_));
  });
  return *whole_;
}

namespace {

// Whether stages that ended so with a group of micro-batches more than before go on by as much with each
// further one. Clocks are the same functions of their times whatever the time is: what moved by the same
// everywhere does so for ever, and what falls behind compute decides nothing that it does not decide now.
bool goes_on(std::span<const StageEnd> less, std::span<const StageEnd> more) {
  constexpr double kRounding = 1e-9;
  Seconds pace;
  for (std::size_t i = 0; i < more.size(); ++i) pace = std::max(pace, more[i].compute - less[i].compute);
  const Seconds rounding = pace * kRounding;
  for (std::size_t i = 0; i < more.size(); ++i) {
    if (pace - (more[i].compute - less[i].compute) > rounding) return false;
    for (const auto stream : {&StageEnd::collectives, &StageEnd::sends, &StageEnd::host})
      if (more[i].*stream - less[i].*stream - pace > rounding) return false;
  }
  return true;
}

}  // namespace

void ScheduleClock::run(std::span<const PipelinePasses> runs, std::span<const std::size_t> piece_of,
                        const TransferTimes& transfers, bool hosts, std::vector<StageEnd>& ends) const {
  longer_->run(runs, piece_of, transfers, hosts, ends);
  if (!shorter_) return;
  thread_local std::vector<StageEnd> less, all;
  shorter_->run(runs, piece_of, transfers, hosts, less);
  const auto stages = static_cast<std::size_t>(stages_);
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const std::span<StageEnd> more(ends.data() + run * stages, stages);
    const std::span<const StageEnd> before(less.data() + run * stages, stages);
    if (!goes_on(before, more)) {
      whole().run(runs.subspan(run, 1), piece_of, transfers, hosts, all);
      std::copy(all.begin(), all.end(), more.begin());
      continue;
    }
    for (std::size_t i = 0; i < stages; ++i)
      for (const auto stream :
           {&StageEnd::compute, &StageEnd::collectives, &StageEnd::sends, &StageEnd::host})
        more[i].*stream += (more[i].*stream - before[i].*stream) * more_;
  }
}

}  // namespace sim
