#include "sim/serving/static_batch.h"

#include <algorithm>
#include <cmath>

#include "sim/cost/network.h"

namespace sim {
namespace {

constexpr double kSendError = 0.5;

class Batch {
 public:
  Batch(const IterationCost& cost, const Scenario& s)
      : cost_(cost),
        serving_(cost.serving()),
        stages_(s.strategy.pipeline_parallel),
        tensor_parallel_(s.strategy.tensor_parallel),
        batch_(s.workload.batch_size),
        prompt_(s.workload.prompt_length),
        new_tokens_(s.workload.max_new_tokens),
        hidden_(s.model.hidden_size),
        stage_layers_(std::ceil(cost.num_layers() / stages_)) {}

  CostBreakdown prefill() const {
    if (serving_.prompt_token_by_token) return decode_over(1, prompt_);
    if (stages_ == 1) return cost_.iteration(prompt_of(static_cast<double>(batch_), d(prompt_), d(prompt_)));
    if (serving_.pipeline_chunk > 0 && prompt_ > serving_.pipeline_chunk) return chunked_prefill();
    const std::int64_t m = pipeline_micro_batches(batch_, prompt_, stages_, serving_.pipeline_tokens);
    const double sequences = static_cast<double>(batch_) / static_cast<double>(m);
    const Iteration pass = prompt_of(sequences, d(prompt_), d(prompt_));
    CostBreakdown time = stage(pass, sequences * d(prompt_)) * (stages_ + d(m) - 1);
    time += cost_.head(sequences) * d(m);
    return time;
  }

  // Mean over the steps from one length of the cache to another: Simpson's rule, as attention is nearly
  // linear.
  CostBreakdown mean_decode(double from, double to) const {
    CostBreakdown mean = decode(from) * (1.0 / 6);
    mean += decode((from + to) / 2) * (4.0 / 6);
    mean += decode(to) * (1.0 / 6);
    return mean;
  }

  CostBreakdown later_token() const {
    if (serving_.attends_to_whole_cache) return decode(d(prompt_ + new_tokens_));
    return mean_decode(d(prompt_) + 1, d(prompt_ + std::max<std::int64_t>(1, new_tokens_ - 1)));
  }

 private:
  static double d(std::int64_t n) { return static_cast<double>(n); }
  static Iteration prompt_of(double sequences, double tokens, double context) {
    return {.prompts = {{.sequences = sequences, .tokens = tokens, .context = context}}};
  }

  CostBreakdown decode_over(std::int64_t from, std::int64_t count) const {
    return mean_decode(d(from), d(from + count - 1)) * d(count);
  }

  // One pass of a micro-batch through a stage, and on to the next.
  CostBreakdown stage(const Iteration& pass, double tokens) const {
    CostBreakdown time = cost_.with_host(cost_.layers(pass, stage_layers_), pass, stage_layers_);
    const double bytes = 2 * tokens * d(hidden_) / tensor_parallel_;
    const CollectiveShape send{CollectiveOperation::send_receive, bytes, 2, 1};
    time.add(CostKind::collectives,
             multi_node_time(cost_.hardware(), cost_.hardware().node_link, send) + serving_.stage_overhead,
             kSendError);
    return time;
  }

  CostBreakdown chunked_prefill() const {
    const std::int64_t chunks = (prompt_ + serving_.pipeline_chunk - 1) / serving_.pipeline_chunk;
    const double tokens = d(prompt_) / d(chunks);
    // A stage's chunks one after the other; the last chunk then passes the other stages.
    CostBreakdown time, last;
    for (std::int64_t i = 1; i <= chunks; ++i) {
      last = stage(prompt_of(d(batch_), tokens, tokens * d(i)), d(batch_) * tokens);
      time += last;
    }
    time += last * (stages_ - 1);
    time += cost_.head(d(batch_));
    return time;
  }

  CostBreakdown decode(double context) const {
    if (stages_ == 1)
      return cost_.iteration({.decode_sequences = d(batch_), .decode_context = context, .prompts = {}});
    const std::int64_t m = pipeline_micro_batches(batch_, 1, stages_, serving_.pipeline_tokens);
    const double sequences = d(batch_) / d(m);
    const Iteration pass{.decode_sequences = sequences, .decode_context = context, .prompts = {}};
    CostBreakdown time = stage(pass, sequences) * d(std::max<std::int64_t>(m, stages_));
    time += cost_.head(sequences) * d(m);
    return time;
  }

  const IterationCost& cost_;
  const ServingImplementation& serving_;
  int stages_;
  int tensor_parallel_;
  std::int64_t batch_, prompt_, new_tokens_, hidden_;
  double stage_layers_;
};

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
  StaticBatchTimes times{.first_token = batch.prefill(), .later_token = batch.later_token(), .total = {}};
  times.total = times.first_token;
  times.total += times.later_token * static_cast<double>(scenario.workload.max_new_tokens - 1);
  times.total.add(CostKind::host, cost.serving().request_overhead, 0.5);
  return times;
}

}  // namespace sim
