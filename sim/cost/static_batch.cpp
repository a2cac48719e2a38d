#include "sim/cost/static_batch.h"

#include <algorithm>
#include <cmath>

#include "sim/cost/network.h"

namespace sim {
namespace {

double d(std::int64_t n) {
  return static_cast<double>(n);
}

Iteration prompt_of(double sequences, double tokens, double context) {
  return {.prompts = {{.sequences = sequences, .tokens = tokens, .context = context}}};
}

// The passes of a static batch on one of the stages.
class Batch {
 public:
  Batch(const IterationCost& cost, const Scenario& s)
      : cost_(cost),
        serving_(cost.serving()),
        workload_(s.workload),
        stages_(s.strategy.pipeline_parallel),
        sent_token_(2 * d(s.model.hidden_size) / s.strategy.tensor_parallel),
        stage_layers_(std::ceil(cost.num_layers() / stages_)) {}

  std::vector<EnginePass> first_token() const {
    const std::int64_t batch = workload_.batch_size, prompt = workload_.prompt_length;
    if (serving_.prompt_token_by_token) return mean_decode(1, d(prompt), d(prompt));
    if (stages_ == 1) return {cost_.whole(prompt_of(d(batch), d(prompt), d(prompt)))};
    if (serving_.pipeline_chunk > 0 && prompt > serving_.pipeline_chunk) return chunked_prompt();
    const std::int64_t m = pipeline_micro_batches(batch, prompt, stages_, serving_.pipeline_tokens);
    const double sequences = d(batch) / d(m);
    return stages(prompt_of(sequences, d(prompt), d(prompt)), sequences, m, m + stages_ - 1);
  }

  // An average token after the first.
  std::vector<EnginePass> later_token() const {
    const double prompt = d(workload_.prompt_length), tokens = d(workload_.max_new_tokens);
    if (serving_.attends_to_whole_cache) return decode(prompt + tokens);
    return mean_decode(prompt + 1, prompt + std::max(1.0, tokens - 1), 1);
  }

 private:
  // The mean over the steps from one length of the cache to another, weighted by `times`. It uses Simpson's
  // rule, since attention is nearly linear.
  std::vector<EnginePass> mean_decode(double from, double to, double times) const {
    std::vector<EnginePass> passes;
    const auto add = [&](double context, double share) {
      for (EnginePass& pass : decode(context)) {
        pass.times *= share * times;
        pass.waits *= share * times;
        passes.push_back(std::move(pass));
      }
    };
    add(from, 1.0 / 6);
    add((from + to) / 2, 4.0 / 6);
    add(to, 1.0 / 6);
    return passes;
  }

  // One pass of a micro-batch through a stage, and on to the next.
  EnginePass stage(const Iteration& iteration, double tokens) const {
    const CollectiveShape send{CollectiveOperation::send_receive, sent_token_ * tokens, 2, 1};
    return {.iteration = iteration,
            .layers = stage_layers_,
            .ends = false,
            .sent = collective_by_formula(cost_.hardware(), cost_.hardware().node_link, send) +
                    serving_.stage_overhead};
  }

  // Micro-batches through all stages, in this many `passes` one after the other.
  std::vector<EnginePass> stages(const Iteration& iteration, double sequences, std::int64_t micro_batches,
                                 std::int64_t passes) const {
    const double tokens =
        iteration.prompts.empty() ? sequences : sequences * iteration.prompts.front().tokens;
    EnginePass layers = stage(iteration, tokens);
    layers.times = d(micro_batches);
    layers.waits = d(passes - micro_batches);
    EnginePass ends{.iteration = iteration, .sampled = sequences};
    ends.times = d(micro_batches);
    return {std::move(layers), std::move(ends)};
  }

  // A stage's chunks run one after the other. Then the last chunk passes the other stages.
  std::vector<EnginePass> chunked_prompt() const {
    const std::int64_t prompt = workload_.prompt_length;
    const std::int64_t chunks = (prompt + serving_.pipeline_chunk - 1) / serving_.pipeline_chunk;
    const double tokens = d(prompt) / d(chunks), sequences = d(workload_.batch_size);
    std::vector<EnginePass> passes;
    for (std::int64_t i = 1; i <= chunks; ++i)
      passes.push_back(stage(prompt_of(sequences, tokens, tokens * d(i)), sequences * tokens));
    passes.back().waits = d(stages_ - 1);
    passes.push_back({.iteration = passes.back().iteration, .sampled = sequences});
    return passes;
  }

  std::vector<EnginePass> decode(double context) const {
    const std::int64_t batch = workload_.batch_size;
    const std::int64_t m = pipeline_micro_batches(batch, 1, stages_, serving_.pipeline_tokens);
    const double sequences = d(batch) / d(m);
    // An engine without a cache reads the whole sequence again.
    Iteration iteration{.decode_sequences = sequences, .decode_context = context, .prompts = {}};
    if (!workload_.kv_cache) iteration = prompt_of(sequences, context, context);
    if (stages_ == 1) return {cost_.whole(iteration)};
    return stages(iteration, sequences, m, std::max<std::int64_t>(m, stages_));
  }

  const IterationCost& cost_;
  const ServingImplementation& serving_;
  const Workload& workload_;
  int stages_;
  double sent_token_;  // bytes
  double stage_layers_;
};

CostBreakdown total(const IterationCost& cost, const std::vector<EnginePass>& passes) {
  CostBreakdown sum;
  for (const EnginePass& pass : passes) sum += cost.cost(pass) * (pass.times + pass.waits);
  return sum;
}

}  // namespace

std::int64_t pipeline_micro_batches(std::int64_t batch, std::int64_t tokens, int stages,
                                    std::int64_t most_tokens) {
  if (most_tokens <= 0 || stages <= 1) return 1;
  std::int64_t of_each = batch;
  if (of_each % stages == 0) of_each /= stages;
  while (of_each * tokens > most_tokens && of_each % 2 == 0) of_each /= 2;
  return batch / of_each;
}

StaticBatchTimes static_batch_times(const IterationCost& cost, const Scenario& scenario) {
  const Batch batch(cost, scenario);
  StaticBatchTimes times{.first_token = total(cost, batch.first_token()),
                         .later_token = total(cost, batch.later_token()),
                         .total = {}};
  times.total = times.first_token;
  times.total += times.later_token * d(scenario.workload.max_new_tokens - 1);
  times.total.add(CostKind::host, cost.serving().request_overhead, kEstimateError);
  return times;
}

void set_engine_results(const Calibration* calibration, Report& report) {
  const Scenario& s = report.source.scenario;
  const IterationCost cost(s, calibration);
  const Batch batch(cost, s);
  const StaticBatchTimes times = static_batch_times(cost, s);
  EngineRows first(Phase::prefill), later(Phase::decode);
  for (const EnginePass& pass : batch.first_token()) cost.add_rows(pass, 1, first);
  const std::int64_t more = s.workload.max_new_tokens - 1;
  if (more > 0)
    for (const EnginePass& pass : batch.later_token()) cost.add_rows(pass, d(more), later);
  first.add_other("engine.request", OpKind::host_read, 1,
                  with_error(cost.serving().request_overhead, kEstimateError, Bound::launch));
  report.rows = first.take({});
  for (Row& row : later.take(times.first_token.total())) report.rows.push_back(std::move(row));

  const Seconds whole = times.total.total();
  const double longer = whole / report.step_time;
  for (MemoryTimePoint& point : report.memory_timeline) point.time = point.time * longer;
  report.step_time = whole;
  report.step_low = whole * (1 / times.total.band());
  report.step_high = whole * times.total.band();
  for (TokenResult& token : report.tokens)
    token.duration = (token.index == 0 ? times.first_token : times.later_token).total();
}

}  // namespace sim
