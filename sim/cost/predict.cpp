#include "sim/cost/predict.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <future>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "sim/cost/exposure.h"
#include "sim/cost/priced_plan.h"
#include "sim/cost/static_batch.h"
#include "sim/cost/stragglers.h"
#include "sim/plan/device_memory.h"
#include "sim/plan/programs.h"
#include "sim/plan/ranks.h"
#include "sim/report/memory_report.h"

namespace sim {
namespace {

#ifdef __EMSCRIPTEN__  // a browser page has one thread, so std::async would wait forever for another
constexpr auto kAtOnce = std::launch::deferred;
#else
constexpr auto kAtOnce = std::launch::async;
#endif
constexpr std::size_t kTimelinePoints = 2000;  // more than a wide window has columns

// How much a program used a block.
struct BlockUse {
  double count = 0;
  Seconds first_start;
  Seconds waited, waited_low, waited_high;  // by receives
};

// `times`: how many similar actions each action stands for; 1 where it is empty.
std::vector<BlockUse> block_uses(const Plan& plan, const PricedPlan& priced, std::size_t program,
                                 const std::vector<double>& times = {}) {
  std::vector<BlockUse> uses(priced.blocks.size());
  const auto& actions = plan.programs[program].actions;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    BlockUse& use = uses[priced.block_of[program][i]];
    const double n = times.empty() ? 1 : times[i];
    if (use.count == 0) use.first_start = priced.expected.programs[program].start[i];
    use.count += n;
    if (actions[i].peer < 0 || actions[i].stream == kSendStream) continue;
    const auto waited = [&](const Execution& e) {
      return (e.programs[program].end[i] - e.programs[program].start[i]) * n;
    };
    use.waited += waited(priced.expected);
    use.waited_low += waited(priced.low);
    use.waited_high += waited(priced.high);
  }
  return uses;
}

// The row to which each operation of each priced block belongs, the same for all programs. Operations of one
// phase with the same id share a row.
class RowNumbers {
 public:
  RowNumbers(const Plan& plan, const std::vector<PricedBlock>& blocks) {
    std::map<std::pair<Phase, std::string_view>, std::size_t> known;
    std::map<std::pair<Phase, BlockId>, std::size_t> same;  // the same block may occur with other variables
    for (const PricedBlock& b : blocks) {
      const auto [it, added] = same.try_emplace({b.phase, b.block}, numbers_.size());
      of_block_.push_back(it->second);
      if (!added) continue;
      std::vector<std::size_t>& of_block = numbers_.emplace_back();
      for (const Operation& op : plan.block(b.block).operations)
        of_block.push_back(known.try_emplace({b.phase, op.id}, known.size()).first->second);
    }
    count_ = known.size();
  }
  const std::vector<std::size_t>& of_block(std::size_t block) const { return numbers_[of_block_[block]]; }
  std::size_t count() const { return count_; }

 private:
  std::vector<std::size_t> of_block_;  // for each priced block
  std::vector<std::vector<std::size_t>> numbers_;
  std::size_t count_ = 0;
};

Bytes times(Bytes bytes, double n) {
  return {std::llround(static_cast<double>(bytes.value) * n)};
}

// All ranks of a stage do the same, so the first stands for them.
std::int32_t rank_of(const Plan& plan, std::size_t program) {
  return static_cast<std::int32_t>(program) * rank_strides(plan.scenario.strategy).pipeline;
}

void add_rows(const Plan& plan, const PricedPlan& priced, const RowNumbers& numbers,
              const std::vector<BlockUse>& uses, const Exposure& exposure, std::size_t program,
              std::vector<Row>& all) {
  const std::vector<PricedBlock>& blocks = priced.blocks;
  constexpr auto kNone = static_cast<std::size_t>(-1);
  std::vector<Row> rows;
  std::vector<Seconds> longest;  // for each row, the longest occurrence, whose bound the row takes
  std::vector<double> counts;
  std::vector<std::size_t> row_of(numbers.count(), kNone);
  for (std::size_t used = 0; used < blocks.size(); ++used) {
    const PricedBlock& b = blocks[used];
    const BlockUse& use = uses[used];
    if (use.count == 0) continue;
    const auto& operations = plan.block(b.block).operations;
    const double n = use.count;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const std::size_t kernel =
          static_cast<std::size_t>(static_cast<std::ptrdiff_t>(i) + b.operations[i].kernel);
      std::size_t& index = row_of[numbers.of_block(used)[i]];
      if (index == kNone) {
        index = rows.size();
        Row& row = rows.emplace_back();
        row.id = operations[i].id;
        row.phase = b.phase;
        row.rank = rank_of(plan, program);
        row.kind = operations[i].kind;
        row.start = use.first_start + b.duration;
        if (kernel != i) row.fused_into = operations[kernel].id;
        longest.emplace_back();
        counts.push_back(0);
      }
      const Work& work = b.operations[i].work;
      // Work that a neighbour's kernel does has the provenance and the bound of that kernel.
      Price price = b.operations[i].price;
      price.provenance = b.operations[kernel].price.provenance;
      price.bound = b.operations[kernel].price.bound;
      Row& row = rows[index];
      counts[index] += n;
      row.count = std::llround(counts[index]);
      row.start = std::min(row.start, use.first_start + b.operations[i].start);
      row.duration += price.seconds * n + use.waited;
      row.low += price.low * n + use.waited_low;
      row.high += price.high * n + use.waited_high;
      row.flops += work.flops * n;
      row.model_flops += work.model_flops * n;
      row.memory += times(work.memory(), n);
      row.network += times(work.network, n);
      if (info(row.kind).family == Family::communication && row.kind != OpKind::receive)
        row.exposed = row.exposed.value_or(Seconds{}) + exposure.of(program, used, i) * n;
      row.provenance = std::max(row.provenance, price.provenance);  // as certain as the least certain part
      if (price.seconds * n >= longest[index]) {
        longest[index] = price.seconds * n;
        row.bound = price.bound;
      }
    }
  }
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return rows[i].start; });
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

struct MemoryOfStages {
  std::vector<MemoryLine> ledger;
  std::optional<MemoryPlan> fullest;
};

MemoryOfStages plan_memory_of_stages(const Plan& plan) {
  MemoryOfStages of_stages;
  const bool offloads = std::ranges::any_of(plan.buffers, [](const Buffer& b) { return b.on_host; });
  const bool lists = looks_at_instances(plan.scenario.implementation.memory);
  // Ranks on this machine's processor place their buffers as its run does.
  const bool placed = plan.ranks == 1 || plan.scenario.hardware.is_cpu;
  const Addresses addresses = placed ? Addresses::assigned : lists ? Addresses::none : Addresses::unlisted;
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

Report report_of(const Plan& plan, const Hardware& hardware, const Calibration* calibration) {
  Report report;
  report.source.kind = ReportKind::predicted;
  report.source.scenario = plan.scenario;
  report.source.scenario.hardware = hardware;
  report.source.device =
      (hardware.display_name.empty() ? hardware.name : hardware.display_name) + " (predicted)";
  if (calibration) {
    report.source.calibration = calibration->device + ", " + calibration->date;
    report.source.slowdown = calibration->slowdown;
  }
  return report;
}

// Tokens whose actions are recorded where there are many tokens: the first, the last, and as many in between
// as a timeline has room for.
std::vector<std::int64_t> shown_tokens(const Scenario& scenario) {
  const auto actions = static_cast<std::size_t>(scenario.model.num_hidden_layers) + 2;
  const std::int64_t last = scenario.workload.max_new_tokens - 1;
  const auto most =
      std::min(last - 2, static_cast<std::int64_t>(std::max<std::size_t>(8, kTimelinePoints / actions)));
  std::vector<std::int64_t> shown{0, 1};
  for (std::int64_t i = 1; i <= most; ++i) shown.push_back(2 + (last - 2) * i / most);
  return shown;
}

// Adds the time of the tokens between those shown. Prices change slowly with the length, so each token lies
// on the line between its neighbours. Later actions are shifted. Returns how long each token takes.
struct TokensBetween {
  std::vector<Seconds> durations;
  Seconds shift;  // of the last token
};
TokensBetween add_tokens_between(const std::vector<Section>& sections, const std::vector<std::int64_t>& shown,
                                 ExecutedProgram& times) {
  std::vector<Seconds> tokens;
  Seconds shift, last_period, last_end;
  for (std::size_t k = 0; k < sections.size(); ++k) {
    const auto [name, begin, end] = sections[k];
    const Seconds duration = times.end[end - 1] - times.start[begin];
    const Seconds period = times.end[end - 1] - last_end;
    last_end = times.end[end - 1];
    const std::int64_t first = static_cast<std::int64_t>(tokens.size()), between = shown[k] - first;
    const Seconds last = tokens.empty() ? Seconds{} : tokens.back();
    for (std::int64_t i = 1; i <= between; ++i) {
      const double share = static_cast<double>(i) / static_cast<double>(between + 1);
      tokens.push_back(last * (1 - share) + duration * share);
      shift += last_period * (1 - share) + period * share;
    }
    for (std::size_t a = begin; a < end; ++a) {
      times.start[a] += shift;
      times.end[a] += shift;
    }
    tokens.push_back(duration);
    last_period = period;
  }
  return {std::move(tokens), shift};
}

// Does the same for all programs. Returns the tokens of the first program.
std::vector<Seconds> add_tokens_between(const Plan& plan, const std::vector<std::int64_t>& shown,
                                        Execution& execution) {
  std::vector<Seconds> tokens;
  Seconds latest;
  for (std::size_t p = 0; p < plan.programs.size(); ++p) {
    TokensBetween between = add_tokens_between(plan.programs[p].sections, shown, execution.programs[p]);
    latest = std::max(latest, between.shift);
    if (p == 0) tokens = std::move(between.durations);
  }
  execution.duration += latest;
  return tokens;
}

// Each token shown also stands for half of the tokens between it and each of its neighbours.
std::vector<BlockUse> uses_of_all_tokens(const Plan& plan, const PricedPlan& priced,
                                         const std::vector<std::int64_t>& shown, std::size_t program) {
  const std::vector<Section>& sections = plan.programs[program].sections;
  std::vector<double> times(plan.programs[program].actions.size());
  for (std::size_t k = 0; k < sections.size(); ++k) {
    const std::int64_t before = k > 0 ? shown[k - 1] : shown[k] - 1;
    const std::int64_t after = k + 1 < shown.size() ? shown[k + 1] : shown[k] + 1;
    std::fill(times.begin() + static_cast<std::ptrdiff_t>(sections[k].begin),
              times.begin() + static_cast<std::ptrdiff_t>(sections[k].end),
              static_cast<double>(after - before) / 2);
  }
  return block_uses(plan, priced, program, times);
}

// The band of a step whose operations were timed one by one on the machine that runs it, where it runs them
// one after the other. Errors of different kinds are independent. Within a kind, all operations timed at
// their very shape share one error: what a step does to such kernels. An operation predicted from samples of
// other shapes has an error of its own, as large as that of a sample left out. The uncertainty of the
// machine's pace is added to these.
void set_band_of_samples(const Calibration* calibration, Report& report) {
  if (!calibration || calibration->samples.empty()) return;
  struct Side {
    std::map<OpKind, double> alike;
    double squares = 0;  // of operations with independent errors

    void add(const Row& row, Seconds error) {
      if (row.provenance == Provenance::interpolated)
        squares += error.value * error.value;
      else
        alike[row.kind] += error.value;
    }
    Seconds with(double more) const {
      double all = squares + more * more;
      for (const auto& [kind, error] : alike) all += error * error;
      return {std::sqrt(all)};
    }
  };
  Side below, above;
  for (const Row& row : report.rows) {
    if (row.rank != report.rows.front().rank) return;
    below.add(row, row.duration - row.low);
    above.add(row, row.high - row.duration);
  }
  const double of_machine = calibration->slowdown.error * report.step_time.value;
  report.step_low = std::max(report.step_low, report.step_time - below.with(of_machine));
  report.step_high = std::min(report.step_high, report.step_time + above.with(of_machine));
}

// Adds what follows from the times of a plan's programs. `uses_of(p)`: how program p used the blocks.
template <class UsesOf>
void add_parts(const Plan& plan, const Calibration* calibration, const PricedPlan& priced, UsesOf uses_of,
               MemoryOfStages memory, Report& report) {
  const StepTime step = step_of_slowest(plan, report.source.scenario.hardware, priced);
  report.step_time = step.seconds;
  report.step_low = step.low;
  report.step_high = step.high;
  report.waiting_for_slowest = step.seconds - priced.expected.duration;
  const RowNumbers numbers(plan, priced.blocks);
  const Exposure exposure(plan, priced, SendsCount::not_at_all);
  for (std::size_t p = 0; p < plan.programs.size(); ++p)
    add_rows(plan, priced, numbers, uses_of(p), exposure, p, report.rows);
  set_band_of_samples(calibration, report);
  report.memory = std::move(memory.ledger);
  report.memory_timeline = memory_over_time(plan, *memory.fullest, priced, kTimelinePoints);
  if (is_served(report.source.scenario)) set_engine_results(calibration, report);
}

Report predict_priced(const Plan& plan, const Hardware& hardware, const Calibration* calibration,
                      const PricedPlan& priced, MemoryOfStages memory) {
  Report report = report_of(plan, hardware, calibration);
  if (plan.scenario.workload.task == Task::generate)
    report.tokens = token_durations(plan.programs.front(), priced.expected.programs.front());
  const auto uses_of = [&](std::size_t program) { return block_uses(plan, priced, program); };
  add_parts(plan, calibration, priced, uses_of, std::move(memory), report);
  return report;
}

Report predict_generation(const Scenario& scenario, const Calibration* calibration) {
  GenerationPlan generation = make_generation_blocks(scenario);
  const std::vector<std::int64_t> shown = shown_tokens(scenario);
  generation.plan.programs = generation_programs(scenario);
  for (const std::int64_t token : shown) append_token(generation, token, generation.plan.programs);
  const Plan& plan = generation.plan;
  PricedPlan priced = price_plan(plan, scenario.hardware, calibration);

  Report report = report_of(plan, scenario.hardware, calibration);
  for (const Seconds duration : add_tokens_between(plan, shown, priced.expected))
    report.tokens.push_back({.index = static_cast<std::int64_t>(report.tokens.size()),
                             .token = -1,
                             .text = "",
                             .duration = duration});
  for (Execution* end : {&priced.low, &priced.high}) add_tokens_between(plan, shown, *end);
  const auto uses_of = [&](std::size_t program) { return uses_of_all_tokens(plan, priced, shown, program); };
  add_parts(plan, calibration, priced, uses_of, plan_memory_of_stages(plan), report);
  return report;
}

}  // namespace

Report predict(const Plan& plan, const Hardware& hardware, const Calibration* calibration) {
  // Memory does not depend on time, so with many stages both are computed at once.
  constexpr std::size_t kManyStages = 4;
  std::future<MemoryOfStages> memory =
      std::async(plan.programs.size() >= kManyStages ? kAtOnce : std::launch::deferred, plan_memory_of_stages,
                 std::cref(plan));
  const PricedPlan priced = price_plan(plan, hardware, calibration);
  return predict_priced(plan, hardware, calibration, priced, memory.get());
}

Report predict(const Plan& plan, const Hardware& hardware, const Calibration* calibration,
               const PricedPlan& priced) {
  return predict_priced(plan, hardware, calibration, priced, plan_memory_of_stages(plan));
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
