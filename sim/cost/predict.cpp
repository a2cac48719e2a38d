#include "sim/cost/predict.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "sim/cost/execution.h"
#include "sim/plan/ranks.h"

namespace sim {
namespace {

constexpr std::size_t kTimelinePoints = 2000;  // more than a wide window has columns

struct PricedOperation {
  Work work;
  Price price;
};

// A block with one set of variables.
struct PricedBlock {
  BlockId block = 0;
  Phase phase{};
  Variables variables;
  std::vector<PricedOperation> operations;
  Seconds duration, low, high;
};

// Which variables an operation's work depends on: the others are set alike, so that each price is found once.
Variables relevant(const Plan& plan, const Operation& op, Variables v) {
  const auto uses_kv_length = [](const Extent& e) { return e.kv_length > 0; };
  const bool kv_length = op.dims.heads > 0 || uses_kv_length(op.dims.rows) || uses_kv_length(op.dims.cols) ||
                         uses_kv_length(op.dims.inner) ||
                         std::any_of(op.operands.begin(), op.operands.end(), [&](const Operand& o) {
                           if (o.buffer == kNoBuffer) return false;
                           const auto& shape = plan.buffers[static_cast<std::size_t>(o.buffer)].shape;
                           return std::any_of(shape.begin(), shape.end(), uses_kv_length);
                         });
  if (!kv_length) v.kv_length = 0;
  return v;
}

// A step or a token comes back to the same weights after touching all that is live. Only samples that were
// timed here ask for it; plans that run here have one program.
Bytes working_set_of(const Plan& plan, const Calibration* calibration) {
  if (!calibration || calibration->samples.empty()) return {};
  return plan_memory(plan, 0, Addresses::none).live_peak;
}

class Pricer {
 public:
  Pricer(const Plan& plan, const Hardware& hardware, const Calibration* calibration)
      : plan_(plan),
        hardware_(hardware),
        calibration_(calibration),
        working_set_(working_set_of(plan, calibration)),
        operations_(plan.blocks.size()),
        recent_(plan.blocks.size(), static_cast<std::size_t>(-1)) {
    for (std::size_t b = 0; b < plan.blocks.size(); ++b)
      operations_[b].resize(plan.blocks[b].operations.size());
  }

  // Index into blocks(); programs of one plan share what is priced.
  std::size_t block(const Action& a) {
    std::size_t& recent = recent_[static_cast<std::size_t>(a.block)];
    const bool again = recent < blocks_.size() && blocks_[recent].phase == a.phase &&
                       blocks_[recent].variables == a.variables;
    if (again) return recent;
    const auto [it, added] = index_.try_emplace({a.block, a.phase, a.variables}, blocks_.size());
    if (added) blocks_.push_back(price_block(a));
    return recent = it->second;
  }
  const std::vector<PricedBlock>& blocks() const { return blocks_; }

 private:
  PricedBlock price_block(const Action& a) {
    PricedBlock priced;
    priced.block = a.block;
    priced.phase = a.phase;
    priced.variables = a.variables;
    const auto& operations = plan_.blocks[static_cast<std::size_t>(a.block)].operations;
    priced.operations.reserve(operations.size());
    for (std::size_t i = 0; i < operations.size(); ++i) {
      priced.operations.push_back(operation(static_cast<std::size_t>(a.block), i, a.variables));
      PricedOperation& op = priced.operations.back();
      // What is done a second time is not work that the mathematics needs.
      if (a.phase == Phase::recompute) op.work.model_flops = {};
      priced.duration += op.price.seconds;
      priced.low += op.price.low;
      priced.high += op.price.high;
    }
    return priced;
  }

  PricedOperation operation(std::size_t block, std::size_t index, const Variables& variables) {
    const Operation& op = plan_.blocks[block].operations[index];
    const Variables v = relevant(plan_, op, variables);
    auto& known = operations_[block][index];
    // Actions that follow each other resemble each other.
    if (!known || known->first != v) {
      const Work work = work_of(plan_, op, v);
      known.emplace(v, PricedOperation{work, price_of(work, op, v)});
    }
    return known->second;
  }

  Price price_of(const Work& work, const Operation& op, const Variables& v) const {
    if (op.group < 0) return price(work, op, v, hardware_, calibration_, nullptr, working_set_);
    Group group = plan_.groups[static_cast<std::size_t>(op.group)];
    // Two neighbours take part; the receiver's time is its waiting, which the execution finds.
    if (op.kind == OpKind::receive) return {{}, {}, {}, Bound::network, Provenance::datasheet};
    if (op.kind == OpKind::send) group.size = 2;
    return price(work, op, v, hardware_, calibration_, &group);
  }

  const Plan& plan_;
  const Hardware& hardware_;
  const Calibration* calibration_;
  Bytes working_set_;
  std::vector<std::vector<std::optional<std::pair<Variables, PricedOperation>>>>
      operations_;  // the last found
  std::vector<PricedBlock> blocks_;
  std::map<std::tuple<BlockId, Phase, Variables>, std::size_t> index_;
  std::vector<std::size_t> recent_;  // of each block, the last found
};

// All programs of a plan, run with the expected times and with those of the band's ends: errors of kernels on
// one machine go together.
struct Run {
  std::vector<std::vector<std::size_t>> blocks;  // of each program's actions, indices into Pricer::blocks()
  Execution expected, low, high;
};

Run run(const Plan& plan, Pricer& pricer) {
  Run r;
  for (const Program& program : plan.programs) {
    std::vector<std::size_t>& blocks = r.blocks.emplace_back();
    blocks.reserve(program.actions.size());
    for (const Action& a : program.actions) blocks.push_back(pricer.block(a));
  }
  const auto with = [&](Seconds PricedBlock::*duration) {
    std::vector<std::vector<Seconds>> durations;
    for (const auto& blocks : r.blocks) {
      std::vector<Seconds>& of_program = durations.emplace_back();
      of_program.reserve(blocks.size());
      for (const std::size_t b : blocks) of_program.push_back(pricer.blocks()[b].*duration);
    }
    return execute(plan, durations);
  };
  r.expected = with(&PricedBlock::duration);
  r.low = with(&PricedBlock::low);
  r.high = with(&PricedBlock::high);
  return r;
}

// What a program did with a block.
struct BlockUse {
  std::int64_t count = 0;
  Seconds first_start;
  Seconds waited, waited_low, waited_high;  // of receives
};

std::vector<BlockUse> block_uses(const Plan& plan, const Run& run, std::size_t program, std::size_t blocks) {
  std::vector<BlockUse> uses(blocks);
  const auto& actions = plan.programs[program].actions;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    BlockUse& use = uses[run.blocks[program][i]];
    if (use.count++ == 0) use.first_start = run.expected.programs[program].start[i];
    if (actions[i].peer < 0 || actions[i].stream == kSendStream) continue;
    const auto waited = [&](const Execution& e) {
      return e.programs[program].end[i] - e.programs[program].start[i];
    };
    use.waited += waited(run.expected);
    use.waited_low += waited(run.low);
    use.waited_high += waited(run.high);
  }
  return uses;
}

std::vector<Row> rows_of(const Plan& plan, const std::vector<PricedBlock>& blocks,
                         const std::vector<BlockUse>& uses, std::int32_t rank) {
  std::vector<Row> rows;
  std::vector<Seconds> longest;  // of the occurrences that a row's bound stands for
  std::map<std::pair<Phase, std::string>, std::size_t> index;
  std::map<std::pair<Phase, BlockId>, std::vector<std::size_t>> rows_of_block;
  for (std::size_t used = 0; used < blocks.size(); ++used) {
    const PricedBlock& b = blocks[used];
    const BlockUse& use = uses[used];
    if (use.count == 0) continue;
    const auto& operations = plan.blocks[static_cast<std::size_t>(b.block)].operations;
    std::vector<std::size_t>& row_of = rows_of_block[{b.phase, b.block}];
    if (row_of.empty())
      for (const Operation& op : operations) {
        const auto [it, added] = index.try_emplace({b.phase, op.id}, rows.size());
        row_of.push_back(it->second);
        if (!added) continue;
        Row row;
        row.id = op.id;
        row.phase = b.phase;
        row.rank = rank;
        row.kind = op.kind;
        row.start = use.first_start + b.duration;
        rows.push_back(std::move(row));
        longest.emplace_back();
      }
    Seconds start = use.first_start;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const auto& [work, price] = b.operations[i];
      const auto n = static_cast<double>(use.count);
      Row& row = rows[row_of[i]];
      row.count += use.count;
      row.start = std::min(row.start, start);
      row.duration += price.seconds * n + use.waited;
      row.low += price.low * n + use.waited_low;
      row.high += price.high * n + use.waited_high;
      row.flops += work.flops * n;
      row.model_flops += work.model_flops * n;
      row.memory += work.memory() * use.count;
      row.network += work.network * use.count;
      row.provenance = std::max(row.provenance, price.provenance);  // the least certain of its parts
      if (price.seconds * n >= longest[row_of[i]]) {
        longest[row_of[i]] = price.seconds * n;
        row.bound = price.bound;
      }
      start += price.seconds;
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.start < b.start; });
  return rows;
}

std::vector<MemoryLine> ledger(const MemoryPlan& memory, std::int32_t rank) {
  std::vector<MemoryLine> lines;
  for (int c = 0; c < kBufferClasses; ++c)
    if (const Bytes b = memory.at_peak[static_cast<std::size_t>(c)]; b.value > 0)
      lines.push_back({std::string(name(static_cast<BufferClass>(c))), rank, b});
  lines.push_back({"packing", rank, memory.arena - memory.live_peak});
  return lines;
}

std::vector<MemoryTimePoint> memory_over_time(const Plan& plan, const MemoryPlan& memory,
                                              const std::vector<PricedBlock>& blocks, const Run& run) {
  const std::vector<OpTime> times = action_times(plan, memory.program);
  std::vector<MemoryTimePoint> points;
  for (const MemoryPoint& p : memory_timeline(plan, memory, kTimelinePoints)) {
    const auto action =
        static_cast<std::size_t>(std::upper_bound(times.begin(), times.end(), p.time) - times.begin()) - 1;
    const PricedBlock& b = blocks[run.blocks[memory.program][action]];
    Seconds time = run.expected.programs[memory.program].start[action];
    for (OpTime i = 0; i < p.time - times[action]; ++i)
      time += b.operations[static_cast<std::size_t>(i)].price.seconds;
    // Streams run beside each other: of what the program names later, some begins earlier.
    if (!points.empty()) time = std::max(time, points.back().time);
    points.push_back({time, p.bytes});
  }
  return points;
}

std::vector<TokenResult> token_durations(const Program& program, const ExecutedProgram& executed) {
  std::vector<TokenResult> tokens;
  for (std::size_t t = 0; t < program.sections.size(); ++t) {
    const Section& section = program.sections[t];
    tokens.push_back({.index = static_cast<std::int64_t>(t),
                      .token = -1,
                      .text = "",
                      .duration = executed.end[section.end - 1] - executed.start[section.begin]});
  }
  return tokens;
}

}  // namespace

Report predict(const Plan& plan, const Hardware& hardware, const Calibration* calibration) {
  Report report;
  report.source.kind = ReportKind::predicted;
  report.source.scenario = plan.scenario;
  report.source.scenario.hardware = hardware;
  report.source.device =
      (hardware.display_name.empty() ? hardware.name : hardware.display_name) + " (predicted)";
  if (calibration) report.source.calibration = calibration->device + ", " + calibration->date;

  Pricer pricer(plan, hardware, calibration);
  const Run r = run(plan, pricer);
  report.step_time = r.expected.duration;
  report.step_low = r.low.duration;
  report.step_high = r.high.duration;

  // All ranks of a stage do the same: the first stands for them.
  const std::int32_t next_stage = rank_strides(plan.scenario.strategy).pipeline;
  const auto rank_of = [&](std::size_t program) { return static_cast<std::int32_t>(program) * next_stage; };
  for (std::size_t p = 0; p < plan.programs.size(); ++p) {
    const std::vector<BlockUse> uses = block_uses(plan, r, p, pricer.blocks().size());
    for (Row& row : rows_of(plan, pricer.blocks(), uses, rank_of(p))) report.rows.push_back(std::move(row));
  }
  std::optional<MemoryPlan> fullest;
  plan_memory_of_all(plan, plan.ranks > 1 ? Addresses::none : Addresses::assigned, [&](MemoryPlan memory) {
    for (MemoryLine& line : ledger(memory, rank_of(memory.program))) report.memory.push_back(std::move(line));
    if (!fullest || memory.arena > fullest->arena) fullest = std::move(memory);
  });
  report.memory_timeline = memory_over_time(plan, *fullest, pricer.blocks(), r);
  if (plan.scenario.workload.task == Task::generate)
    report.tokens = token_durations(plan.programs.front(), r.expected.programs.front());
  return report;
}

std::vector<TimelineSlot> pipeline_timeline(const Plan& plan, const Hardware& hardware,
                                            const Calibration* calibration) {
  Pricer pricer(plan, hardware, calibration);
  const Run r = run(plan, pricer);
  std::vector<TimelineSlot> slots;
  for (std::size_t p = 0; p < plan.programs.size(); ++p) {
    const std::vector<Action>& actions = plan.programs[p].actions;
    const ExecutedProgram& executed = r.expected.programs[p];
    bool continues = false;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const Action& a = actions[i];
      if (a.stream != kComputeStream) continue;
      if (a.peer >= 0) {  // waiting
        continues = false;
        continue;
      }
      const std::string& block = plan.blocks[static_cast<std::size_t>(a.block)].name;
      const TimelineSlot slot{.stage = static_cast<std::int32_t>(p),
                              .phase = a.phase == Phase::recompute ? Phase::backward : a.phase,
                              .inputs = block.find(".backward_input") != std::string::npos,
                              .weights = block.find(".backward_weight") != std::string::npos,
                              .micro_batch = a.micro_batch,
                              .chunk = a.chunk,
                              .start = executed.start[i],
                              .end = executed.end[i]};
      continues = continues && slots.back().phase == slot.phase && slots.back().weights == slot.weights &&
                  slots.back().micro_batch == slot.micro_batch && slots.back().chunk == slot.chunk;
      if (continues) {
        slots.back().end = slot.end;
        slots.back().inputs = slots.back().inputs || slot.inputs;  // head and embedding are of either
      } else {
        slots.push_back(slot);
      }
      continues = true;
    }
  }
  return slots;
}

Report predict(const Scenario& scenario, const Calibration* calibration) {
  return predict(make_plan(scenario), scenario.hardware, calibration);
}

}  // namespace sim
