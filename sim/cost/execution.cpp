#include "sim/cost/execution.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

namespace sim {
namespace {

// What actions of different programs meet by: what a send delivers is known by who receives it, for which
// micro-batch and chunk, forward or backward.
class Mailbox {
 public:
  explicit Mailbox(const Plan& plan) {
    if (plan.programs.size() < 2) return;
    for (const Program& p : plan.programs)
      for (const Action& a : p.actions)
        if (a.peer >= 0) {
          chunks_ = std::max(chunks_, static_cast<std::size_t>(a.chunk) + 1);
          micro_batches_ = std::max(micro_batches_, static_cast<std::size_t>(a.micro_batch) + 1);
        }
    arrival_.assign(plan.programs.size() * 2 * chunks_ * micro_batches_, Seconds{-1});
  }

  Seconds& arrival(std::size_t receiver, const Action& a) {
    const std::size_t direction = a.phase == Phase::forward ? 0 : 1;
    return arrival_[((receiver * 2 + direction) * chunks_ + static_cast<std::size_t>(a.chunk)) *
                        micro_batches_ +
                    static_cast<std::size_t>(a.micro_batch)];
  }

 private:
  std::size_t chunks_ = 1, micro_batches_ = 1;
  std::vector<Seconds> arrival_;  // negative: not sent yet
};

}  // namespace

Execution execute(const Plan& plan, const std::vector<std::vector<Seconds>>& durations) {
  Execution execution;
  const std::size_t programs = plan.programs.size();
  execution.programs.resize(programs);
  for (std::size_t p = 0; p < programs; ++p) {
    execution.programs[p].start.resize(durations[p].size());
    execution.programs[p].end.resize(durations[p].size());
  }
  Mailbox mailbox(plan);
  std::vector<std::array<Seconds, kStreams>> free(programs);
  std::vector<std::size_t> next(programs);

  const auto advance = [&](std::size_t p) {
    const std::vector<Action>& actions = plan.programs[p].actions;
    ExecutedProgram& e = execution.programs[p];
    const std::size_t begin = next[p];
    for (std::size_t& i = next[p]; i < actions.size(); ++i) {
      const Action& a = actions[i];
      Seconds& stream = free[p][static_cast<std::size_t>(a.stream)];
      Seconds start = stream;
      for (const std::int32_t wait : {a.wait, a.wait_also})
        if (wait >= 0) start = std::max(start, e.end[static_cast<std::size_t>(wait)]);
      Seconds end = start + durations[p][i];
      if (a.peer >= 0) {
        if (a.stream == kSendStream) {
          mailbox.arrival(static_cast<std::size_t>(a.peer), a) = end;
        } else {
          const Seconds arrival = mailbox.arrival(p, a);
          if (arrival.value < 0) return i > begin;
          end = std::max(start, arrival);
        }
      }
      e.start[i] = start;
      e.end[i] = stream = end;
    }
    return next[p] > begin;
  };

  bool moved = true;
  while (moved) {
    moved = false;
    for (std::size_t p = 0; p < programs; ++p) moved = advance(p) || moved;
  }
  for (std::size_t p = 0; p < programs; ++p) {
    if (next[p] < plan.programs[p].actions.size())
      throw std::logic_error(plan.programs[p].role + " waits for ever at action " + std::to_string(next[p]));
    for (const Seconds end : free[p]) execution.duration = std::max(execution.duration, end);
  }
  return execution;
}

}  // namespace sim
