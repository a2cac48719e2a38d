// Tables of generation and serving: latencies of a batch, tokens a second, the most that an engine can do.
#include <algorithm>
#include <cmath>

#include "sim/cost/iteration_cost.h"
#include "sim/cost/static_batch.h"
#include "sim/format.h"
#include "sim/serving/engine_limits.h"
#include "sim/serving/simulation.h"
#include "sim/validate/inference_row.h"
#include "sim/validate/row_reader.h"

namespace sim {
namespace {

constexpr double kMillisecond = 1e-3, kGiga = 1e9, kPercent = 100;

// Wider bands than those of single kernels: for an engine whose profile is a neighbour's, and for lengths
// that the row does not give. Releases of one engine differ by some percent where nothing in its profile
// does.
constexpr double kOtherEngine = 0.5, kOtherLengths = 0.3, kOtherRelease = 0.08;

class Predictions {
 public:
  Predictions(double band) : band_(band) {}

  void time(std::string_view column, Seconds t) { add(column, t.value / kMillisecond); }
  void rate(std::string_view column, double value) { add(column, value); }
  std::vector<Prediction> take() { return std::move(list_); }

 private:
  void add(std::string_view column, double value) {
    list_.push_back({column, value, value / band_, value * band_});
  }
  double band_;
  std::vector<Prediction> list_;
};

double widened(double band, const InferenceCase& c) {
  double squares = std::pow(band - 1, 2) + kOtherRelease * kOtherRelease;
  if (c.nearest_engine) squares += kOtherEngine * kOtherEngine;
  if (c.assumed_lengths) squares += kOtherLengths * kOtherLengths;
  return 1 + std::sqrt(squares);
}

std::vector<Prediction> predict_batch(const InferenceCase& c) {
  const Scenario& s = c.scenario;
  const IterationCost cost(s, c.calibration ? &*c.calibration : nullptr);
  const StaticBatchTimes times = static_batch_times(cost, s);
  const auto d = [](std::int64_t n) { return static_cast<double>(n); };
  const double tokens = d(s.workload.batch_size) * d(s.workload.max_new_tokens);
  Predictions p(widened(times.total.band(), c));
  const double rate = tokens / times.total.total().value;
  p.rate("decode_tok_s", rate);
  p.time("total_latency_ms", times.total.total());
  p.time("prefill_ms", times.first_token.total());
  p.time("ttft_ms", times.first_token.total());
  p.time("tpot_ms", times.later_token.total());
  p.rate("total_output_tok_s", rate * c.replicas);
  p.rate("tok_s_per_gpu", rate / (s.strategy.tensor_parallel * s.strategy.pipeline_parallel));
  const double bandwidth = d(engine_memory(s).streamed_weights.value) * rate / d(s.workload.batch_size);
  p.rate("achieved_bandwidth_gbps", bandwidth / kGiga);
  p.rate("mbu", kPercent * bandwidth / s.hardware.memory_bandwidth.value);
  return p.take();
}

// Requests that trtllm-bench sends for lengths (NVIDIA/TensorRT-LLM, docs perf-overview.md); others send
// about as many tokens.
std::int64_t benchmark_requests(std::int64_t prompt, std::int64_t output) {
  if (prompt + output <= 256) return 30000;
  if (prompt + output <= 2500) return 3000;
  return prompt + output <= 6000 ? 1500 : 1000;
}

// A measured run did fit. Where the estimate of its memory says no, the estimate is off by a little.
SchedulerLimits limits_of(const Scenario& s) {
  constexpr double kUnsureMemory = 1.25;
  try {
    return engine_limits(s);
  } catch (const std::invalid_argument&) {
    Scenario roomier = s;
    roomier.hardware.memory.value =
        std::llround(kUnsureMemory * static_cast<double>(s.hardware.memory.value));
    return engine_limits(roomier);
  }
}

Traffic traffic_of(const InferenceCase& c) {
  const Workload& w = c.scenario.workload;
  const ServedRequest request{.prompt = w.prompt_length, .output = w.max_new_tokens};
  Traffic traffic;
  if (c.load == Load::rate) {
    constexpr Seconds kDuration{600};
    traffic.arrivals = poisson_arrivals(*c.requests_per_second / c.replicas, kDuration, request, 0);
    return traffic;
  }
  constexpr std::int64_t kRounds = 10;  // requests of each client
  const std::int64_t clients = std::max<std::int64_t>(1, w.batch_size / c.replicas);
  const bool saturated = c.load == Load::saturated;
  if (!saturated) traffic.most_at_a_time = clients;
  const std::int64_t requests =
      saturated ? benchmark_requests(w.prompt_length, w.max_new_tokens) / c.replicas : kRounds * clients;
  traffic.arrivals.assign(static_cast<std::size_t>(requests), {{}, request});
  return traffic;
}

std::vector<Prediction> predict_traffic(const InferenceCase& c) {
  const Scenario& s = c.scenario;
  const IterationCost cost(s, c.calibration ? &*c.calibration : nullptr);
  const SchedulerLimits limits = limits_of(s);
  const bool saturated = c.load == Load::saturated;
  const Simulation run =
      simulate(traffic_of(c), limits, [&](const Iteration& i) { return cost.iteration(i); });
  std::vector<Seconds> ttft, tpot, latency;
  for (const RequestTimes& r : run.requests) {
    ttft.push_back(r.ttft());
    tpot.push_back(r.tpot());
    latency.push_back(r.latency());
  }
  Predictions p(widened(run.busy.band(), c));
  const double rate = run.output_per_second();
  if (!saturated) p.rate("decode_tok_s", rate * c.replicas);
  p.time("total_latency_ms", percentile(latency, 0.5));
  p.time("ttft_ms", percentile(ttft, 0.5));
  p.time("tpot_ms", percentile(tpot, 0.5));
  p.rate("total_output_tok_s", rate * c.replicas);
  p.rate("tok_s_per_gpu", rate / (s.strategy.tensor_parallel * s.strategy.pipeline_parallel));
  return p.take();
}

// Caches and what a run adds are estimates, but weights are exact: without room for weights nothing ran.
void require_room_for_weights(const Scenario& s) {
  const Bytes weights = engine_memory(s).weights;
  if (weights > s.hardware.memory)
    throw CannotPredict("does not fit: the weights, " + format(weights) +
                        " a device, are more than its memory, " + format(s.hardware.memory));
}

std::vector<Prediction> predict(const TableRow& row) {
  const InferenceCase c = inference_case(row);
  try {
    require_room_for_weights(c.scenario);
    return c.load == Load::batch ? predict_batch(c) : predict_traffic(c);
  } catch (const std::invalid_argument& problem) {
    throw CannotPredict(problem.what());
  }
}

}  // namespace

RowReader inference_rows() {
  return {.what = "inference",
          .needs = {"model_name", "gpu", "precision_weights", "framework", "batch", "input_len"},
          .measured = {{"decode_tok_s", true},
                       {"total_latency_ms"},
                       {"prefill_ms"},
                       {"ttft_ms"},
                       {"tpot_ms"},
                       {"total_output_tok_s", true},
                       {"tok_s_per_gpu", true},
                       {"achieved_bandwidth_gbps", true},
                       {"mbu", true}},
          .predict = predict};
}

}  // namespace sim
