#include "sim/cost/exposure.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace sim {
namespace {

struct Interval {
  Seconds start, end;
  Seconds overlap(const Interval& other) const {
    return std::max(Seconds{}, std::min(end, other.end) - std::max(start, other.start));
  }
};

Interval interval(const PricedPlan& priced, std::size_t program, std::size_t action) {
  const ExecutedProgram& executed = priced.expected.programs[program];
  return {executed.start[action], executed.end[action]};
}

}  // namespace

Exposure::Exposure(const Plan& plan, const PricedPlan& priced, SendsCount sends)
    : plan_(plan), priced_(priced), uses_(plan.programs.size(), std::vector<Use>(priced.blocks.size())) {
  for (std::size_t p = 0; p < plan.programs.size(); ++p) {
    for (std::size_t i = 0; i < actions(p).size(); ++i) {
      ++use(p, i).count;
      use(p, i).stream = actions(p)[i].stream;
    }
    beside_compute(p);
  }
  if (sends == SendsCount::with_their_receiver) awaited_sends();
}

Seconds Exposure::of(std::size_t program, std::size_t block, std::size_t index) const {
  const PricedBlock& priced = priced_.blocks[block];
  const Seconds alone = priced.operations[index].price.seconds;
  const Use& use = uses_[program][block];
  if (use.stream == kComputeStream) {
    // Nothing else computes at that time, except the operation that this one runs beside.
    const Operation& op = plan_.block(priced.block).operations[index];
    return op.beside_next ? std::max(Seconds{}, alone - priced.operations[index + 1].price.seconds) : alone;
  }
  // Each operation's share of its block's exposed time is its share of the block's duration.
  if (use.count == 0 || !(priced.duration.value > 0)) return {};
  return use.exposed * (alone / priced.duration / static_cast<double>(use.count));
}

// The part of a collective that stays exposed: no compute hides it, and no awaited transfer overlaps it. That
// overlap counts for the transfer.
void Exposure::beside_compute(std::size_t program) {
  std::vector<Interval> occupied;
  for (std::size_t i = 0; i < actions(program).size(); ++i)
    if (actions(program)[i].stream == kComputeStream) occupied.push_back(interval(priced_, program, i));
  auto from = occupied.begin();
  for (std::size_t i = 0; i < actions(program).size(); ++i) {
    if (actions(program)[i].stream != kCollectiveStream) continue;
    const Interval exchange = interval(priced_, program, i);
    Seconds open = exchange.end - exchange.start;
    if (plan_.scenario.hardware.is_cpu) {  // its cores either compute or copy what is exchanged
      use(program, i).exposed += open;
      continue;
    }
    while (from != occupied.end() && from->end <= exchange.start) ++from;
    for (auto c = from; c != occupied.end() && c->start < exchange.end; ++c)
      open = open - exchange.overlap(*c);
    use(program, i).exposed += open;
  }
}

void Exposure::awaited_sends() {
  using Meeting = std::tuple<std::size_t, bool, std::int32_t, std::int32_t>;  // receiver and what it gets
  const auto meeting = [](std::size_t receiver, const Action& a) {
    return Meeting(receiver, a.phase == Phase::forward, a.chunk, a.micro_batch);
  };
  std::map<Meeting, Interval> waits;
  for (std::size_t p = 0; p < plan_.programs.size(); ++p)
    for (std::size_t i = 0; i < actions(p).size(); ++i)
      if (const Action& a = actions(p)[i]; a.peer >= 0 && a.stream != kSendStream)
        waits[meeting(p, a)] = interval(priced_, p, i);
  for (std::size_t p = 0; p < plan_.programs.size(); ++p)
    for (std::size_t i = 0; i < actions(p).size(); ++i)
      if (const Action& a = actions(p)[i]; a.peer >= 0 && a.stream == kSendStream)
        use(p, i).exposed +=
            interval(priced_, p, i).overlap(waits[meeting(static_cast<std::size_t>(a.peer), a)]);
}

}  // namespace sim
