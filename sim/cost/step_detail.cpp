#include "sim/cost/step_detail.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "sim/cost/exposure.h"
#include "sim/cost/priced_plan.h"
#include "sim/plan/schedule_closed_forms.h"

namespace sim {
namespace {

std::vector<TimelineSlot> slots_of(const Plan& plan, const PricedPlan& priced) {
  std::vector<TimelineSlot> slots;
  std::vector<RanAction> times;
  for (std::size_t p = 0; p < plan.programs.size(); ++p) {
    const ExecutedProgram& executed = priced.expected.programs[p];
    times.clear();
    for (std::size_t i = 0; i < plan.programs[p].actions.size(); ++i)
      times.push_back({i, executed.start[i], executed.end[i]});
    const std::vector<TimelineSlot> of_program = timeline_of(plan, p, times);
    slots.insert(slots.end(), of_program.begin(), of_program.end());
  }
  return slots;
}

std::vector<MessageTraffic> traffic_of(const Plan& plan, const PricedPlan& priced) {
  std::vector<MessageTraffic> traffic;
  const Exposure exposure(plan, priced, SendsCount::with_their_receiver);
  const std::vector<PricedBlock>& blocks = priced.blocks;
  for (std::size_t p = 0; p < plan.programs.size(); ++p) {
    std::vector<std::int64_t> uses(blocks.size());
    for (const std::size_t block : priced.block_of[p]) ++uses[block];
    std::map<std::tuple<std::int32_t, OpKind, std::int64_t>, std::size_t> index;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      if (uses[b] == 0) continue;
      const auto& operations = plan.block(blocks[b].block).operations;
      for (std::size_t i = 0; i < operations.size(); ++i) {
        const Operation& op = operations[i];
        if (op.group < 0 || op.kind == OpKind::receive) continue;
        const auto& [work, price, start, hidden, kernel] = blocks[b].operations[i];
        const auto [it, added] = index.try_emplace({op.group, op.kind, work.network.value}, traffic.size());
        if (added)
          traffic.push_back({static_cast<std::int32_t>(p), op.group, op.kind, work.network, 0, {}, {}});
        MessageTraffic& t = traffic[it->second];
        const Seconds duration = price.seconds * static_cast<double>(uses[b]);
        t.messages += uses[b];
        t.duration += duration + hidden * static_cast<double>(uses[b]);
        t.exposed += exposure.of(p, b, i) * static_cast<double>(uses[b]);
      }
    }
  }
  return traffic;
}

std::size_t count_operations(const Plan& plan) {
  std::size_t count = 0;
  for (const Program& program : plan.programs)
    for (const Action& action : program.actions) count += plan.block(action.block).operations.size();
  return count;
}

OperationTimeline predicted_operations(const Plan& plan, const PricedPlan& priced, std::size_t program) {
  std::vector<RanOperation> times;
  const ExecutedProgram& executed = priced.expected.programs[program];
  for (std::size_t a = 0; a < plan.programs[program].actions.size(); ++a) {
    const std::vector<PricedOperation>& operations = priced.block(program, a).operations;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      // The host or a collective may make an action longer than its operations. This shows as gaps.
      const Seconds start = std::min(executed.start[a] + operations[i].start, executed.end[a]);
      times.push_back({a, i, start, std::min(start + operations[i].price.seconds, executed.end[a])});
    }
  }
  return operations_of(plan, program, times);
}

}  // namespace

OperationTimeline operations_of(const Plan& plan, std::size_t program, std::span<const RanOperation> times) {
  OperationTimeline timeline;
  std::map<std::pair<std::size_t, Phase>, std::int32_t> first_name;  // by block and phase
  for (const RanOperation& time : times) {
    const Action& a = plan.programs[program].actions[time.action];
    const Block& block = plan.block(a.block);
    const auto [name, is_new] = first_name.try_emplace({static_cast<std::size_t>(a.block), a.phase},
                                                       static_cast<std::int32_t>(timeline.names.size()));
    if (is_new)
      for (const Operation& operation : block.operations) timeline.names.push_back({operation.id, a.phase});
    if (block.operations[time.operation].kind == OpKind::receive) continue;
    timeline.spans.push_back({name->second + static_cast<std::int32_t>(time.operation), a.layer,
                              a.micro_batch, a.stream, time.start, time.end});
  }
  return timeline;
}

std::vector<TimelineSlot> timeline_of(const Plan& plan, std::size_t program,
                                      std::span<const RanAction> times) {
  std::vector<TimelineSlot> slots;
  bool continues = false;
  for (const RanAction& time : times) {
    const Action& a = plan.programs[program].actions[time.action];
    if (a.stream != kComputeStream) continue;
    if (a.peer >= 0) {  // waiting
      continues = false;
      continue;
    }
    const bool again = a.phase == Phase::recompute;
    const BlockPass pass = plan.block(a.block).pass;
    const TimelineSlot slot{.stage = static_cast<std::int32_t>(program),
                            .phase = again ? Phase::backward : a.phase,
                            .inputs = pass == BlockPass::backward_input,
                            .weights = pass == BlockPass::backward_weight,
                            .micro_batch = a.micro_batch,
                            .chunk = a.chunk,
                            .start = time.start,
                            .end = time.end,
                            .recompute = again ? time.end - time.start : Seconds{}};
    continues = continues && slots.back().phase == slot.phase && slots.back().weights == slot.weights &&
                slots.back().micro_batch == slot.micro_batch && slots.back().chunk == slot.chunk;
    if (continues) {
      slots.back().end = slot.end;
      slots.back().recompute += slot.recompute;
      slots.back().inputs = slots.back().inputs || slot.inputs;  // head and embedding are of either kind
    } else {
      slots.push_back(slot);
    }
    continues = true;
  }
  return slots;
}

std::optional<Seconds> closed_form_bubble(std::span<const TimelineSlot> timeline, std::string_view schedule) {
  int stages = 0, chunks = 0, micro_batches = 0;
  PassTimes mean;
  for (const TimelineSlot& slot : timeline) {
    if (slot.phase == Phase::optimizer) continue;
    stages = std::max(stages, slot.stage + 1);
    chunks = std::max(chunks, slot.chunk + 1);
    micro_batches = std::max(micro_batches, slot.micro_batch + 1);
    (slot.phase == Phase::forward ? mean.forward
     : slot.weights               ? mean.backward_weight
                                  : mean.backward_input) += slot.end - slot.start;
  }
  if (stages == 0) return std::nullopt;
  for (Seconds* sum : {&mean.forward, &mean.backward_input, &mean.backward_weight})
    *sum = *sum * (1 / (static_cast<double>(stages) * micro_batches));
  return closed_form_bubble(schedule, stages, chunks, micro_batches, mean);
}

StepDetail step_detail(const Plan& plan, const Hardware& hardware, const Calibration* calibration,
                       std::size_t memory_points, std::size_t most_operations) {
  const PricedPlan priced = price_plan(plan, hardware, calibration);
  StepDetail detail{slots_of(plan, priced), {}, {}, traffic_of(plan, priced), {}};
  if (count_operations(plan) <= most_operations)
    for (std::size_t p = 0; p < plan.programs.size(); ++p)
      detail.operations.push_back(predicted_operations(plan, priced, p));
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
