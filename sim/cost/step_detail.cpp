#include "sim/cost/step_detail.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "sim/cost/priced_plan.h"

namespace sim {
namespace {

std::vector<TimelineSlot> slots_of(const Plan& plan, const PricedPlan& priced) {
  std::vector<TimelineSlot> slots;
  for (std::size_t p = 0; p < plan.programs.size(); ++p) {
    const std::vector<Action>& actions = plan.programs[p].actions;
    const ExecutedProgram& executed = priced.expected.programs[p];
    bool continues = false;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const Action& a = actions[i];
      if (a.stream != kComputeStream) continue;
      if (a.peer >= 0) {  // waiting
        continues = false;
        continue;
      }
      const bool again = a.phase == Phase::recompute;
      const BlockPass pass = plan.blocks[static_cast<std::size_t>(a.block)].pass;
      const TimelineSlot slot{.stage = static_cast<std::int32_t>(p),
                              .phase = again ? Phase::backward : a.phase,
                              .inputs = pass == BlockPass::backward_input,
                              .weights = pass == BlockPass::backward_weight,
                              .micro_batch = a.micro_batch,
                              .chunk = a.chunk,
                              .start = executed.start[i],
                              .end = executed.end[i],
                              .recompute = again ? executed.end[i] - executed.start[i] : Seconds{}};
      continues = continues && slots.back().phase == slot.phase && slots.back().weights == slot.weights &&
                  slots.back().micro_batch == slot.micro_batch && slots.back().chunk == slot.chunk;
      if (continues) {
        slots.back().end = slot.end;
        slots.back().recompute += slot.recompute;
        slots.back().inputs = slots.back().inputs || slot.inputs;  // head and embedding are of either
      } else {
        slots.push_back(slot);
      }
      continues = true;
    }
  }
  return slots;
}

struct Interval {
  Seconds start, end;
  Seconds overlap(const Interval& other) const {
    return std::max(Seconds{}, std::min(end, other.end) - std::max(start, other.start));
  }
};

// Per program and priced block: how long what it exchanges stands in the way.
class Exposure {
 public:
  Exposure(const Plan& plan, const PricedPlan& priced)
      : plan_(plan),
        priced_(priced),
        exposed_(plan.programs.size(), std::vector<Seconds>(priced.blocks.size())) {
    for (std::size_t p = 0; p < plan.programs.size(); ++p) beside_compute(p);
    waiting();
  }
  Seconds of(std::size_t program, std::size_t block) const { return exposed_[program][block]; }

 private:
  const std::vector<Action>& actions(std::size_t program) const { return plan_.programs[program].actions; }
  Interval interval(std::size_t program, std::size_t action) const {
    const ExecutedProgram& executed = priced_.expected.programs[program];
    return {executed.start[action], executed.end[action]};
  }

  // The part of the collective stream's actions that no computing hides.
  void beside_compute(std::size_t program) {
    std::vector<Interval> computing;
    for (std::size_t i = 0; i < actions(program).size(); ++i) {
      const Action& a = actions(program)[i];
      if (a.stream == kComputeStream && a.peer < 0) computing.push_back(interval(program, i));
    }
    auto from = computing.begin();
    for (std::size_t i = 0; i < actions(program).size(); ++i) {
      if (actions(program)[i].stream != kCollectiveStream) continue;
      const Interval exchange = interval(program, i);
      Seconds open = exchange.end - exchange.start;
      while (from != computing.end() && from->end <= exchange.start) ++from;
      for (auto c = from; c != computing.end() && c->start < exchange.end; ++c)
        open = open - exchange.overlap(*c);
      exposed_[program][priced_.block_of[program][i]] += open;
    }
  }

  // The part of sends that their receivers wait for.
  void waiting() {
    using Meeting = std::tuple<std::size_t, bool, std::int32_t, std::int32_t>;  // receiver and what it gets
    const auto meeting = [](std::size_t receiver, const Action& a) {
      return Meeting(receiver, a.phase == Phase::forward, a.chunk, a.micro_batch);
    };
    std::map<Meeting, Interval> waits;
    for (std::size_t p = 0; p < plan_.programs.size(); ++p)
      for (std::size_t i = 0; i < actions(p).size(); ++i)
        if (const Action& a = actions(p)[i]; a.peer >= 0 && a.stream != kSendStream)
          waits[meeting(p, a)] = interval(p, i);
    for (std::size_t p = 0; p < plan_.programs.size(); ++p)
      for (std::size_t i = 0; i < actions(p).size(); ++i)
        if (const Action& a = actions(p)[i]; a.peer >= 0 && a.stream == kSendStream)
          exposed_[p][priced_.block_of[p][i]] +=
              interval(p, i).overlap(waits[meeting(static_cast<std::size_t>(a.peer), a)]);
  }

  const Plan& plan_;
  const PricedPlan& priced_;
  std::vector<std::vector<Seconds>> exposed_;
};

std::vector<MessageTraffic> traffic_of(const Plan& plan, const PricedPlan& priced) {
  std::vector<MessageTraffic> traffic;
  const Exposure exposure(plan, priced);
  const std::vector<PricedBlock>& blocks = priced.blocks;
  for (std::size_t p = 0; p < plan.programs.size(); ++p) {
    std::vector<std::int64_t> uses(blocks.size());
    std::vector<std::int32_t> stream(blocks.size());
    for (std::size_t i = 0; i < priced.block_of[p].size(); ++i) {
      ++uses[priced.block_of[p][i]];
      stream[priced.block_of[p][i]] = plan.programs[p].actions[i].stream;
    }
    std::map<std::tuple<std::int32_t, OpKind, std::int64_t>, std::size_t> index;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      if (uses[b] == 0) continue;
      const auto& operations = plan.blocks[static_cast<std::size_t>(blocks[b].block)].operations;
      for (std::size_t i = 0; i < operations.size(); ++i) {
        const Operation& op = operations[i];
        if (op.group < 0 || op.kind == OpKind::receive) continue;
        const auto& [work, price, start, hidden, is_epilogue] = blocks[b].operations[i];
        const auto [it, added] = index.try_emplace({op.group, op.kind, work.network.value}, traffic.size());
        if (added)
          traffic.push_back({static_cast<std::int32_t>(p), op.group, op.kind, work.network, 0, {}, {}});
        MessageTraffic& t = traffic[it->second];
        const Seconds duration = price.seconds * static_cast<double>(uses[b]);
        t.messages += uses[b];
        t.duration += duration + hidden * static_cast<double>(uses[b]);
        // Inside a block of the compute stream nothing else computes but what it runs beside; elsewhere a
        // block's share is its time's.
        const double share = blocks[b].duration.value > 0 ? price.seconds / blocks[b].duration : 0;
        Seconds in_the_way = price.seconds;
        if (op.beside_next)
          in_the_way = std::max(Seconds{}, in_the_way - blocks[b].operations[i + 1].price.seconds);
        t.exposed += stream[b] == kComputeStream ? in_the_way * static_cast<double>(uses[b])
                                                 : exposure.of(p, b) * share;
      }
    }
  }
  return traffic;
}

}  // namespace

std::vector<TimelineSlot> pipeline_timeline(const Plan& plan, const Hardware& hardware,
                                            const Calibration* calibration) {
  return slots_of(plan, price_plan(plan, hardware, calibration));
}

StepDetail step_detail(const Plan& plan, const Hardware& hardware, const Calibration* calibration,
                       std::size_t memory_points) {
  const PricedPlan priced = price_plan(plan, hardware, calibration);
  StepDetail detail{slots_of(plan, priced), {}, {}, traffic_of(plan, priced)};
  std::size_t fullest = 0;
  Bytes peak;
  plan_memory_of_all(plan, Addresses::none, [&](const MemoryPlan& memory) {
    detail.memory.push_back(memory_over_time(plan, memory, priced, memory_points));
    if (memory.live_peak <= peak) return;
    peak = memory.live_peak;
    fullest = memory.program;
  });
  if (plan.scenario.workload.task == Task::train)
    detail.first_step = memory_over_time(plan, plan_memory(plan, fullest, Addresses::none, Step::first),
                                         priced, memory_points);
  return detail;
}

}  // namespace sim
