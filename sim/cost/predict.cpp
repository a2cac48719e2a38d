#include "sim/cost/predict.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "sim/cost/priced_plan.h"

namespace sim {
namespace {

constexpr std::size_t kTimelinePoints = 2000;  // more than a wide window has columns

// What a program did with a block.
struct BlockUse {
  std::int64_t count = 0;
  Seconds first_start;
  Seconds waited, waited_low, waited_high;  // of receives
};

std::vector<BlockUse> block_uses(const Plan& plan, const PricedPlan& priced, std::size_t program) {
  std::vector<BlockUse> uses(priced.blocks.size());
  const auto& actions = plan.programs[program].actions;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    BlockUse& use = uses[priced.block_of[program][i]];
    if (use.count++ == 0) use.first_start = priced.expected.programs[program].start[i];
    if (actions[i].peer < 0 || actions[i].stream == kSendStream) continue;
    const auto waited = [&](const Execution& e) {
      return e.programs[program].end[i] - e.programs[program].start[i];
    };
    use.waited += waited(priced.expected);
    use.waited_low += waited(priced.low);
    use.waited_high += waited(priced.high);
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

  const PricedPlan priced = price_plan(plan, hardware, calibration);
  report.step_time = priced.expected.duration;
  report.step_low = priced.low.duration;
  report.step_high = priced.high.duration;

  // All ranks of a stage do the same: the first stands for them.
  const std::int32_t ranks_of_stage = plan.ranks / static_cast<std::int32_t>(plan.programs.size());
  const auto rank_of = [&](std::size_t program) {
    return static_cast<std::int32_t>(program) * ranks_of_stage;
  };
  for (std::size_t p = 0; p < plan.programs.size(); ++p) {
    const std::vector<BlockUse> uses = block_uses(plan, priced, p);
    for (Row& row : rows_of(plan, priced.blocks, uses, rank_of(p))) report.rows.push_back(std::move(row));
  }
  std::optional<MemoryPlan> fullest;
  plan_memory_of_all(plan, plan.ranks > 1 ? Addresses::none : Addresses::assigned, [&](MemoryPlan memory) {
    for (MemoryLine& line : ledger(memory, rank_of(memory.program))) report.memory.push_back(std::move(line));
    if (!fullest || memory.arena > fullest->arena) fullest = std::move(memory);
  });
  report.memory_timeline = memory_over_time(plan, *fullest, priced, kTimelinePoints);
  if (plan.scenario.workload.task == Task::generate)
    report.tokens = token_durations(plan.programs.front(), priced.expected.programs.front());
  return report;
}

StepTime predict_step(const Plan& plan, const Hardware& hardware, const Calibration* calibration) {
  const PricedPlan priced = price_plan(plan, hardware, calibration);
  return {priced.expected.duration, priced.low.duration, priced.high.duration};
}

Report predict(const Scenario& scenario, const Calibration* calibration) {
  return predict(make_plan(scenario), scenario.hardware, calibration);
}

}  // namespace sim
