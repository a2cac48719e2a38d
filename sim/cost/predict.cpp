#include "sim/cost/predict.h"

#include <algorithm>
#include <functional>
#include <future>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "sim/cost/generation_prices.h"
#include "sim/cost/priced_plan.h"
#include "sim/cost/static_batch.h"
#include "sim/cost/stragglers.h"
#include "sim/plan/device_memory.h"
#include "sim/plan/programs.h"
#include "sim/plan/ranks.h"
#include "sim/report/memory_report.h"

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

// Which row each operation of each priced block belongs to, for all programs alike: those of a phase with one
// id are one row.
class RowNumbers {
 public:
  RowNumbers(const Plan& plan, const std::vector<PricedBlock>& blocks) {
    std::map<std::pair<Phase, std::string_view>, std::size_t> known;
    std::map<std::pair<Phase, BlockId>, std::size_t> same;  // block with other variables
    for (const PricedBlock& b : blocks) {
      const auto [it, added] = same.try_emplace({b.phase, b.block}, numbers_.size());
      of_block_.push_back(it->second);
      if (!added) continue;
      std::vector<std::size_t>& of_block = numbers_.emplace_back();
      for (const Operation& op : plan.blocks[static_cast<std::size_t>(b.block)].operations)
        of_block.push_back(known.try_emplace({b.phase, op.id}, known.size()).first->second);
    }
    count_ = known.size();
  }
  const std::vector<std::size_t>& of_block(std::size_t block) const { return numbers_[of_block_[block]]; }
  std::size_t count() const { return count_; }

 private:
  std::vector<std::size_t> of_block_;  // of priced blocks
  std::vector<std::vector<std::size_t>> numbers_;
  std::size_t count_ = 0;
};

void add_rows(const Plan& plan, const std::vector<PricedBlock>& blocks, const RowNumbers& numbers,
              const std::vector<BlockUse>& uses, std::int32_t rank, std::vector<Row>& all) {
  constexpr auto kNone = static_cast<std::size_t>(-1);
  std::vector<Row> rows;
  std::vector<Seconds> longest;  // of the occurrences that a row's bound stands for
  std::vector<std::size_t> row_of(numbers.count(), kNone);
  for (std::size_t used = 0; used < blocks.size(); ++used) {
    const PricedBlock& b = blocks[used];
    const BlockUse& use = uses[used];
    if (use.count == 0) continue;
    const auto& operations = plan.blocks[static_cast<std::size_t>(b.block)].operations;
    const auto n = static_cast<double>(use.count);
    for (std::size_t i = 0; i < operations.size(); ++i) {
      std::size_t& index = row_of[numbers.of_block(used)[i]];
      if (index == kNone) {
        index = rows.size();
        Row& row = rows.emplace_back();
        row.id = operations[i].id;
        row.phase = b.phase;
        row.rank = rank;
        row.kind = operations[i].kind;
        row.start = use.first_start + b.duration;
        if (b.operations[i].is_epilogue) row.fused_into = operations[i - 1].id;
        longest.emplace_back();
      }
      const Work& work = b.operations[i].work;
      // What a neighbour's kernel does is as certain, and bound by the same, as that kernel.
      const bool is_epilogue = b.operations[i].is_epilogue;
      Price price = b.operations[i].price;
      if (is_epilogue) price.provenance = b.operations[i - 1].price.provenance;
      if (is_epilogue) price.bound = b.operations[i - 1].price.bound;
      Row& row = rows[index];
      row.count += use.count;
      row.start = std::min(row.start, use.first_start + b.operations[i].start);
      row.duration += price.seconds * n + use.waited;
      row.low += price.low * n + use.waited_low;
      row.high += price.high * n + use.waited_high;
      row.flops += work.flops * n;
      row.model_flops += work.model_flops * n;
      row.memory += work.memory() * use.count;
      row.network += work.network * use.count;
      row.provenance = std::max(row.provenance, price.provenance);  // the least certain of its parts
      if (price.seconds * n >= longest[index]) {
        longest[index] = price.seconds * n;
        row.bound = price.bound;
      }
    }
  }
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return rows[a].start < rows[b].start; });
  for (const std::size_t i : order) all.push_back(std::move(rows[i]));
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

// All ranks of a stage do the same: the first stands for them.
std::int32_t rank_of(const Plan& plan, std::size_t program) {
  return static_cast<std::int32_t>(program) * rank_strides(plan.scenario.strategy).pipeline;
}

struct MemoryOfStages {
  std::vector<MemoryLine> ledger;
  std::optional<MemoryPlan> fullest;
};

MemoryOfStages plan_memory_of_stages(const Plan& plan) {
  MemoryOfStages of_stages;
  const bool offloads =
      std::any_of(plan.buffers.begin(), plan.buffers.end(), [](const Buffer& b) { return b.on_host; });
  const bool lists = looks_at_instances(plan.scenario.implementation.memory);
  const Addresses addresses = plan.ranks == 1 ? Addresses::assigned
                              : lists         ? Addresses::none
                                              : Addresses::unlisted;
  plan_memory_of_all(plan, addresses, [&](MemoryPlan memory) {
    const std::int32_t rank = rank_of(plan, memory.program);
    for (MemoryLine& line : memory_ledger(plan, memory, rank)) of_stages.ledger.push_back(std::move(line));
    if (offloads)
      of_stages.ledger.push_back(
          {std::string(kHostMemory), rank, plan_host_memory(plan, memory.program).live_peak});
    if (!of_stages.fullest || memory.arena > of_stages.fullest->arena) of_stages.fullest = std::move(memory);
  });
  if (addresses == Addresses::unlisted)
    of_stages.fullest = plan_memory(plan, of_stages.fullest->program, Addresses::none);
  return of_stages;
}

StepTime step_of_slowest(const Plan& plan, const Hardware& hardware, const PricedPlan& priced) {
  const double longer = 1 + waiting_over_mean(plan.scenario, hardware);
  return {priced.expected.duration * longer, priced.low.duration * longer, priced.high.duration * longer};
}

}  // namespace

namespace {

Report report_of(const Plan& plan, const Hardware& hardware, const Calibration* calibration) {
  Report report;
  report.source.kind = ReportKind::predicted;
  report.source.scenario = plan.scenario;
  report.source.scenario.hardware = hardware;
  report.source.device =
      (hardware.display_name.empty() ? hardware.name : hardware.display_name) + " (predicted)";
  if (calibration) report.source.calibration = calibration->device + ", " + calibration->date;
  return report;
}

// Tokens whose actions are written down where there are many: the first and the last, and as many in between
// as a timeline has room for.
std::vector<std::int64_t> shown_tokens(const Scenario& scenario) {
  const auto actions = static_cast<std::size_t>(scenario.model.num_hidden_layers) + 2;
  const auto most = static_cast<std::int64_t>(std::max<std::size_t>(8, kTimelinePoints / actions));
  const std::int64_t last = scenario.workload.max_new_tokens - 1;
  std::vector<std::int64_t> shown{0, 1};
  for (std::int64_t i = 1; i <= most; ++i) shown.push_back(2 + (last - 2) * i / most);
  return shown;
}

Report predict_generation(const Scenario& scenario, const Calibration* calibration) {
  GenerationPlan generation = make_generation_blocks(scenario);
  const std::vector<std::int64_t> shown = shown_tokens(scenario);
  Program program{.role = "target", .actions = {}, .sections = {}};
  for (const std::int64_t token : shown) append_token(generation, token, program);
  generation.plan.programs.push_back(std::move(program));
  const Plan& plan = generation.plan;
  const PricedGeneration priced = price_generation(generation, shown, scenario.hardware, calibration);

  Report report = report_of(plan, scenario.hardware, calibration);
  report.step_time = priced.duration;
  report.step_low = priced.low;
  report.step_high = priced.high;
  std::vector<BlockUse> uses(priced.counts.size());
  for (std::size_t b = 0; b < uses.size(); ++b) {
    uses[b].count = priced.counts[b];
    uses[b].first_start = priced.first_starts[b];
  }
  add_rows(plan, priced.shown.blocks, RowNumbers(plan, priced.shown.blocks), uses, rank_of(plan, 0),
           report.rows);
  MemoryOfStages memory = plan_memory_of_stages(plan);
  report.memory = std::move(memory.ledger);
  report.memory_timeline = memory_over_time(plan, *memory.fullest, priced.shown, kTimelinePoints);
  for (std::size_t t = 0; t < priced.tokens.size(); ++t)
    report.tokens.push_back(
        {.index = static_cast<std::int64_t>(t), .token = -1, .text = "", .duration = priced.tokens[t]});
  if (is_served(scenario)) set_engine_results(calibration, report);
  return report;
}

}  // namespace

Report predict(const Plan& plan, const Hardware& hardware, const Calibration* calibration) {
  // Memory does not depend on time: where there are many stages, both are found at once.
  constexpr std::size_t kManyStages = 4;
  std::future<MemoryOfStages> memory_of_stages =
      std::async(plan.programs.size() >= kManyStages ? std::launch::async : std::launch::deferred,
                 plan_memory_of_stages, std::cref(plan));
  Report report = report_of(plan, hardware, calibration);
  const PricedPlan priced = price_plan(plan, hardware, calibration);
  const StepTime step = step_of_slowest(plan, hardware, priced);
  report.step_time = step.seconds;
  report.step_low = step.low;
  report.step_high = step.high;
  report.waiting_for_slowest = step.seconds - priced.expected.duration;

  const RowNumbers numbers(plan, priced.blocks);
  for (std::size_t p = 0; p < plan.programs.size(); ++p) {
    const std::vector<BlockUse> uses = block_uses(plan, priced, p);
    add_rows(plan, priced.blocks, numbers, uses, rank_of(plan, p), report.rows);
  }
  MemoryOfStages memory = memory_of_stages.get();
  report.memory = std::move(memory.ledger);
  report.memory_timeline = memory_over_time(plan, *memory.fullest, priced, kTimelinePoints);
  if (plan.scenario.workload.task == Task::generate)
    report.tokens = token_durations(plan.programs.front(), priced.expected.programs.front());
  if (is_served(report.source.scenario)) set_engine_results(calibration, report);
  return report;
}

StepTime predict_step(const Plan& plan, const Hardware& hardware, const Calibration* calibration) {
  return step_of_slowest(plan, hardware, price_plan(plan, hardware, calibration));
}

Report predict(const Scenario& scenario, const Calibration* calibration) {
  constexpr std::int64_t kManyTokens = 256;
  require_valid(scenario);
  if (scenario.workload.task == Task::generate && scenario.workload.max_new_tokens >= kManyTokens)
    return predict_generation(scenario, calibration);
  return predict(make_plan(scenario), scenario.hardware, calibration);
}

}  // namespace sim
