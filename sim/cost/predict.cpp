#include "sim/cost/predict.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace sim {
namespace {

constexpr std::size_t kTimelinePoints = 2000;  // more than a wide window has columns

struct PricedOperation {
  Work work;
  Price price;
};

// A block with one set of variables, and how often a program runs it.
struct PricedBlock {
  BlockId block = 0;
  Phase phase{};
  Variables variables;
  std::vector<PricedOperation> operations;
  Seconds duration, low, high;
  std::int64_t count = 0;
  Seconds first_start;
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

class Pricer {
 public:
  Pricer(const Plan& plan, const Hardware& hardware, const Calibration* calibration)
      : plan_(plan), hardware_(hardware), calibration_(calibration), operations_(plan.blocks.size()) {
    for (std::size_t b = 0; b < plan.blocks.size(); ++b)
      operations_[b].resize(plan.blocks[b].operations.size());
  }

  PricedBlock block(const Action& a) {
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

 private:
  PricedOperation operation(std::size_t block, std::size_t index, const Variables& variables) {
    const Operation& op = plan_.blocks[block].operations[index];
    const Variables v = relevant(plan_, op, variables);
    auto& known = operations_[block][index];
    // Actions that follow each other resemble each other.
    if (!known || known->first != v) {
      const Work work = work_of(plan_, op, v);
      const Group* group = op.group >= 0 ? &plan_.groups[static_cast<std::size_t>(op.group)] : nullptr;
      known.emplace(v, PricedOperation{work, price(work, op, v, hardware_, calibration_, group)});
    }
    return known->second;
  }

  const Plan& plan_;
  const Hardware& hardware_;
  const Calibration* calibration_;
  std::vector<std::vector<std::optional<std::pair<Variables, PricedOperation>>>>
      operations_;  // the last found
};

// A program run in one stream: every action begins when the one before it ends.
struct Run {
  std::vector<PricedBlock> blocks;
  std::vector<std::size_t> block_of_action;  // index into blocks
  std::vector<Seconds> start;                // of each action, and at the end the duration
  Seconds low, high;
};

Run run(const Plan& plan, const Program& program, Pricer& pricer) {
  Run r;
  r.block_of_action.reserve(program.actions.size());
  r.start.reserve(program.actions.size() + 1);
  std::map<std::tuple<BlockId, Phase, Variables>, std::size_t> index;
  std::vector<std::size_t> last(plan.blocks.size(), static_cast<std::size_t>(-1));
  Seconds now;
  for (const Action& a : program.actions) {
    std::size_t& recent = last[static_cast<std::size_t>(a.block)];
    const bool again = recent < r.blocks.size() && r.blocks[recent].phase == a.phase &&
                       r.blocks[recent].variables == a.variables;
    if (!again) {
      const auto [it, added] = index.try_emplace({a.block, a.phase, a.variables}, r.blocks.size());
      if (added) {
        r.blocks.push_back(pricer.block(a));
        r.blocks.back().first_start = now;
      }
      recent = it->second;
    }
    PricedBlock& b = r.blocks[recent];
    ++b.count;
    r.block_of_action.push_back(recent);
    r.start.push_back(now);
    now += b.duration;
    r.low += b.low;
    r.high += b.high;
  }
  r.start.push_back(now);
  return r;
}

std::vector<Row> rows_of(const Plan& plan, const Run& run, std::int32_t rank) {
  std::vector<Row> rows;
  std::vector<Seconds> longest;  // of the occurrences that a row's bound stands for
  std::map<std::pair<Phase, std::string>, std::size_t> index;
  std::map<std::pair<Phase, BlockId>, std::vector<std::size_t>> rows_of_block;
  for (const PricedBlock& b : run.blocks) {
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
        row.start = b.first_start + b.duration;
        rows.push_back(std::move(row));
        longest.emplace_back();
      }
    Seconds start = b.first_start;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const auto& [work, price] = b.operations[i];
      const auto n = static_cast<double>(b.count);
      Row& row = rows[row_of[i]];
      row.count += b.count;
      row.start = std::min(row.start, start);
      row.duration += price.seconds * n;
      row.low += price.low * n;
      row.high += price.high * n;
      row.flops += work.flops * n;
      row.model_flops += work.model_flops * n;
      row.memory += work.memory() * b.count;
      row.network += work.network * b.count;
      row.provenance = std::max(row.provenance, price.provenance);  // the least certain of its parts
      if (price.seconds * n > longest[row_of[i]]) {
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

std::vector<MemoryTimePoint> timeline(const Plan& plan, const MemoryPlan& memory, const Run& run) {
  const std::vector<OpTime> times = action_times(plan, memory.program);
  std::vector<MemoryTimePoint> points;
  for (const MemoryPoint& p : memory_timeline(plan, memory, kTimelinePoints)) {
    const auto action =
        static_cast<std::size_t>(std::upper_bound(times.begin(), times.end(), p.time) - times.begin()) - 1;
    const PricedBlock& b = run.blocks[run.block_of_action[action]];
    Seconds time = run.start[action];
    for (OpTime i = 0; i < p.time - times[action]; ++i)
      time += b.operations[static_cast<std::size_t>(i)].price.seconds;
    points.push_back({time, p.bytes});
  }
  return points;
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
  for (std::size_t p = 0; p < plan.programs.size(); ++p) {
    const auto rank = static_cast<std::int32_t>(p);
    const Program& program = plan.programs[p];
    const Run r = run(plan, program, pricer);
    const MemoryPlan memory = plan_memory(plan, p);
    for (Row& row : rows_of(plan, r, rank)) report.rows.push_back(std::move(row));
    for (MemoryLine& line : ledger(memory, rank)) report.memory.push_back(std::move(line));
    // The slowest role decides; of several, the first one's memory is drawn.
    report.step_time = std::max(report.step_time, r.start.back());
    report.step_low = std::max(report.step_low, r.low);
    report.step_high = std::max(report.step_high, r.high);
    if (p > 0) continue;
    report.memory_timeline = timeline(plan, memory, r);
    if (plan.scenario.workload.task == Task::generate)
      for (std::size_t t = 0; t < program.sections.size(); ++t)
        report.tokens.push_back(
            {.index = static_cast<std::int64_t>(t),
             .token = -1,
             .text = "",
             .duration = r.start[program.sections[t].end] - r.start[program.sections[t].begin]});
  }
  return report;
}

Report predict(const Scenario& scenario, const Calibration* calibration) {
  return predict(make_plan(scenario), scenario.hardware, calibration);
}

}  // namespace sim
