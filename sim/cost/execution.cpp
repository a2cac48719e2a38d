#include "sim/cost/execution.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace sim {
namespace {

// Where actions of different programs meet. What a send delivers is identified by its receiver, micro-batch
// and chunk, and by forward or backward. While a model generates, new tokens take the backward direction.
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

  void send(std::size_t sender, const Action& a, Seconds end) {
    arrival(sender, static_cast<std::size_t>(a.peer), a) = end;
  }
  // When the data that an action receives arrives; negative where it has not been sent. The entry is cleared,
  // because the next token's data uses the same one.
  Seconds take(std::size_t receiver, const Action& a) {
    return std::exchange(arrival(static_cast<std::size_t>(a.peer), receiver, a), Seconds{-1});
  }

 private:
  Seconds& arrival(std::size_t sender, std::size_t receiver, const Action& a) {
    const bool trains = a.phase != Phase::prefill && a.phase != Phase::decode;
    const std::size_t direction = (trains ? a.phase == Phase::forward : sender < receiver) ? 0 : 1;
    return arrival_[((receiver * 2 + direction) * chunks_ + static_cast<std::size_t>(a.chunk)) *
                        micro_batches_ +
                    static_cast<std::size_t>(a.micro_batch)];
  }

  std::size_t chunks_ = 1, micro_batches_ = 1;
  std::vector<Seconds> arrival_;  // negative: not sent yet
};

}  // namespace

void SharedDevice::exchange(Seconds start, Seconds end) {
  if (slowdown_ <= 1 || end <= start) return;
  // Collectives follow each other in their stream.
  if (!busy_.empty() && start <= busy_.back().end)
    busy_.back().end = std::max(busy_.back().end, end);
  else
    busy_.push_back({start, end});
}

Seconds SharedDevice::done_beside_exchanges(Seconds start, Seconds work) {
  while (first_ < busy_.size() && busy_[first_].end <= start) ++first_;
  Seconds now = start;
  for (std::size_t i = first_; i < busy_.size() && work.value > 0; ++i) {
    const Seconds alone = std::max(Seconds{}, busy_[i].start - now);
    if (work <= alone) break;
    work = work - alone;
    now = std::max(now, busy_[i].start);
    const Seconds shared = std::min(work * slowdown_, busy_[i].end - now);
    work = work - shared * (1 / slowdown_);
    now += shared;
  }
  return now + work;
}

Execution execute(const Plan& plan, const std::vector<std::vector<ActionTime>>& times,
                  bool transfers_in_order, Interference interference) {
  Execution execution;
  const std::size_t programs = plan.programs.size();
  execution.programs.resize(programs);
  for (std::size_t p = 0; p < programs; ++p) {
    execution.programs[p].start.resize(times[p].size());
    execution.programs[p].end.resize(times[p].size());
  }
  Mailbox mailbox(plan);
  std::vector<DeviceClock> clocks(programs, DeviceClock(interference, transfers_in_order));
  std::vector<std::size_t> next(programs);

  const auto advance = [&](std::size_t p) {
    const std::vector<Action>& actions = plan.programs[p].actions;
    ExecutedProgram& e = execution.programs[p];
    const std::size_t begin = next[p];
    for (std::size_t& i = next[p]; i < actions.size(); ++i) {
      const Action& a = actions[i];
      const bool sends = a.peer >= 0 && a.stream == kSendStream, receives = a.peer >= 0 && !sends;
      Seconds ready;
      for (const std::int32_t wait : {a.wait, a.wait_also})
        if (wait >= 0) ready = std::max(ready, e.end[static_cast<std::size_t>(wait)]);
      DeviceClock::Span span;
      if (receives) {
        const Seconds arrival = mailbox.take(p, a);
        if (arrival.value < 0) return i > begin;
        span = clocks[p].receive(times[p][i], ready, arrival);
      } else if (sends) {
        span = clocks[p].send(times[p][i], ready);
        mailbox.send(p, a, span.end);
      } else {
        span = clocks[p].run(a.stream, times[p][i], ready);
      }
      e.start[i] = span.start;
      e.end[i] = span.end;
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
    execution.duration = std::max(execution.duration, clocks[p].end());
  }
  return execution;
}

}  // namespace sim
