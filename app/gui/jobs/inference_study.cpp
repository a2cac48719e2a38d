#include "app/gui/jobs/inference_study.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <stdexcept>

#include "sim/cost/predict.h"
#include "sim/format.h"
#include "sim/plan/legality.h"
#include "sim/scenario/preset.h"
#include "sim/serving/speculative.h"

namespace app::gui {
namespace {

constexpr const char* kUsualEngine = "vllm_0.14";
constexpr std::int64_t kMostBatch = 1024;

double d(std::int64_t n) {
  return static_cast<double>(n);
}

std::int64_t or_else(std::int64_t chosen, std::int64_t otherwise) {
  return chosen > 0 ? chosen : otherwise;
}

bool weights_fit(const sim::Scenario& scenario) {
  return sim::engine_memory(scenario).cache_tokens > 0;
}

// FLOPs and bytes that the plan's operations of a phase take on a device.
struct PhaseWork {
  double flops = 0, bytes = 0;
};
PhaseWork work_of(const sim::Report& report, sim::Phase phase, double steps) {
  PhaseWork work;
  for (const sim::Row& row : report.rows) {
    if (row.rank != 0 || row.phase != phase) continue;
    work.flops += row.flops.value / steps;
    work.bytes += d(row.memory.value) / steps;
  }
  return work;
}

PhaseStudy phase_study(const sim::Scenario& s, const sim::CostBreakdown& time, const PhaseWork& work) {
  PhaseStudy study{.time = time};
  const sim::Seconds total = time.total();
  const double arithmetic = work.flops / s.hardware.peak_for(s.workload.dtype).value;
  const double memory = work.bytes / s.hardware.memory_bandwidth.value;
  study.of_peak = arithmetic / total.value;
  study.of_bandwidth = memory / total.value;
  const auto part = [&](sim::CostKind kind) { return time.parts[kind].expected.value; };
  const double host = part(sim::CostKind::small_kernels) + part(sim::CostKind::host);
  const double network = part(sim::CostKind::collectives);
  const double longest = std::max({arithmetic, memory, host, network});
  study.bound = longest == arithmetic ? sim::Bound::compute
                : longest == memory   ? sim::Bound::memory
                : longest == host     ? sim::Bound::launch
                                      : sim::Bound::network;
  return study;
}

// Long enough for the cache to show, as far as the model goes.
std::int64_t usual_context(const sim::Scenario& s) {
  constexpr std::int64_t kUsual = 8192;
  const std::int64_t asked = s.workload.prompt_length + s.workload.max_new_tokens;
  return std::max(asked, std::min(kUsual, s.model.max_position_embeddings));
}

CacheStudy cache_study(const sim::Scenario& s, const sim::EngineMemory& memory,
                       const InferenceChoices& choices) {
  const sim::ServingImplementation& serving = *s.implementation.serving;
  CacheStudy study;
  study.sequences = or_else(choices.sequences, s.workload.batch_size);
  study.longest = std::max<std::int64_t>(2, or_else(choices.context, usual_context(s)));
  study.block = serving.kv_block;
  study.weights = d(memory.weights.value);
  study.reserved = d(serving.reserved.value);
  study.device = d(s.hardware.memory.value);
  study.limit = study.weights + study.reserved + memory.cache_tokens * memory.cache_of_token;
  // Layers with a window do not grow beyond it: the bytes of so many tokens, by the plan.
  const auto bytes_of = [&](std::int64_t tokens) {
    sim::Scenario of = s;
    of.workload.prompt_length = std::max<std::int64_t>(1, tokens - 1);
    of.workload.max_new_tokens = 1;
    return sim::engine_memory(of).cache_of_token * d(std::max<std::int64_t>(2, tokens));
  };
  constexpr int kPoints = 24;
  const double whole = bytes_of(study.longest);
  for (int i = 0; i <= kPoints; ++i) {
    const std::int64_t tokens = study.longest * i / kPoints;
    const double used = tokens < 2 ? 0 : bytes_of(tokens);
    const std::int64_t in_blocks =
        study.block > 0 ? (tokens + study.block - 1) / study.block * study.block : study.longest;
    const double a_token = tokens > 0 ? used / d(tokens) : 0;
    study.points.push_back({.tokens = d(tokens),
                            .used = used * d(study.sequences),
                            .paged = a_token * d(in_blocks) * d(study.sequences),
                            .contiguous = whole * d(study.sequences)});
  }
  const double room = study.limit - study.weights - study.reserved;
  if (room <= 0) return study;
  for (std::size_t i = 1; i < study.points.size() && !study.full_at; ++i) {
    const CachePoint &before = study.points[i - 1], &after = study.points[i];
    if (after.paged > room)
      study.full_at = before.tokens +
                      (after.tokens - before.tokens) * (room - before.paged) / (after.paged - before.paged);
  }
  return study;
}

RateCurve rate_curve(const sim::IterationCost& cost, const sim::Scenario& s, double cache_tokens,
                     std::int64_t context) {
  RateCurve curve{context, {}};
  for (std::int64_t batch = 1; batch <= kMostBatch; batch *= 2) {
    const sim::Seconds tpot =
        cost.iteration({.decode_sequences = d(batch), .decode_context = d(context), .prompts = {}}).total();
    curve.points.push_back({.batch = batch,
                            .tpot = tpot,
                            .per_user = 1 / tpot.value,
                            .per_device = d(batch) / tpot.value / s.strategy.tensor_parallel,
                            .fits = d(batch * context) <= cache_tokens});
  }
  return curve;
}

// Requests a second at which reading prompts and decoding take all of the engine's time.
double most_per_second(const sim::IterationCost& cost, const sim::SchedulerLimits& limits,
                       std::int64_t prompt, std::int64_t output) {
  const double length = d(prompt + output);
  const double batch =
      std::clamp(d(limits.blocks * limits.block_tokens) / length, 1.0, d(limits.max_sequences));
  const sim::Seconds step =
      cost.iteration({.decode_sequences = batch, .decode_context = d(prompt) + d(output) / 2, .prompts = {}})
          .total();
  // As many prompts as fill a step.
  const double together = std::max(1.0, std::floor(d(limits.max_tokens) / d(prompt)));
  const sim::Seconds read =
      cost.iteration({.prompts = {{.sequences = together, .tokens = d(prompt), .context = d(prompt)}}})
          .total();
  return 1 / (read.value / together + step.value * d(output) / batch);
}

TrafficStudy traffic_study(const sim::IterationCost& cost, const sim::Scenario& scenario,
                           const InferenceChoices& choices) {
  TrafficStudy study;
  sim::Scenario s = scenario;
  study.prompt = s.workload.prompt_length = or_else(choices.prompt, s.workload.prompt_length);
  study.output = s.workload.max_new_tokens = or_else(choices.output, s.workload.max_new_tokens);
  try {
    const sim::SchedulerLimits limits = sim::engine_limits(s);
    study.blocks = limits.blocks;
    study.max_sequences = limits.max_sequences;
    study.most_per_second = most_per_second(cost, limits, study.prompt, study.output);
    constexpr double kUsualLoad = 0.7;
    study.requests_per_second =
        choices.requests_per_second > 0 ? choices.requests_per_second : kUsualLoad * study.most_per_second;
    // Enough requests for the 99th percentile, and long enough that the first have left.
    constexpr double kRequests = 500, kLeast = 20, kMost = 1800;
    const sim::Seconds duration{std::clamp(kRequests / study.requests_per_second, kLeast, kMost)};
    sim::Traffic traffic;
    traffic.arrivals =
        sim::poisson_arrivals(study.requests_per_second, duration,
                              {.prompt = study.prompt, .output = std::max<std::int64_t>(1, study.output)}, 1);
    study.run = sim::simulate(traffic, limits, [&](const sim::Iteration& i) { return cost.iteration(i); });
    std::vector<sim::Seconds> ttft, tpot;
    for (const sim::RequestTimes& request : study.run.requests) {
      ttft.push_back(request.ttft());
      tpot.push_back(request.tpot());
    }
    if (ttft.empty()) throw std::invalid_argument("no request arrives in " + sim::format(duration));
    for (std::size_t i = 0; i < kShares.size(); ++i) {
      study.ttft[i] = sim::percentile(ttft, kShares[i]);
      study.tpot[i] = sim::percentile(tpot, kShares[i]);
    }
  } catch (const std::invalid_argument& problem) {
    study.refusal = problem.what();
  }
  return study;
}

// A draft of another model, or one layer of the same: what heads that predict further tokens cost.
sim::Scenario draft_of(const sim::Scenario& s, const std::string& draft) {
  sim::Scenario scenario = s;
  if (!draft.empty()) {
    scenario.model = sim::load_model_preset(draft);
    scenario.strategy = {};
    return scenario;
  }
  scenario.model.num_hidden_layers = 1;
  scenario.model.moe.first_k_dense_replace = 0;
  scenario.model.num_nextn_predict_layers = 0;
  return scenario;
}

}  // namespace

double SpeculationStudy::speedup(double acceptance, std::int64_t length) const {
  return sim::speculative_speedup(acceptance, length, draft_step / plain_step,
                                  verify[static_cast<std::size_t>(length - 1)] / plain_step);
}

std::int64_t SpeculationStudy::best_length(double acceptance) const {
  std::int64_t best = 1;
  for (std::int64_t length = 2; length <= kLongestDraft; ++length)
    if (speedup(acceptance, length) > speedup(acceptance, best)) best = length;
  return best;
}

std::string engine_of(const sim::Scenario& scenario, const std::string& chosen) {
  if (scenario.implementation.serving) return scenario.implementation.name;
  return chosen.empty() ? kUsualEngine : chosen;
}

sim::Scenario as_served(const sim::Scenario& scenario, const std::string& chosen) {
  sim::Scenario s = scenario;
  if (!s.implementation.serving)
    s.implementation = sim::load_implementation_preset(engine_of(scenario, chosen));
  s.workload.kv_cache = true;  // engines always keep one
  if (s.workload.task == sim::Task::generate) return s;
  sim::Workload& w = s.workload;
  w.task = sim::Task::generate;
  // A question and an answer of usual lengths, or what the model has positions for.
  constexpr std::int64_t kPrompt = 1024, kAnswer = 256;
  const std::int64_t room = std::max<std::int64_t>(2, s.model.max_position_embeddings);
  w.prompt_length = std::min(kPrompt, room * 3 / 4);
  w.max_new_tokens = std::min(kAnswer, room - w.prompt_length);
  w.batch_size = 16;
  const int tensor_parallel = s.strategy.tensor_parallel;
  s.strategy = {};
  s.strategy.tensor_parallel = tensor_parallel;
  constexpr int kMostDevices = 64;
  while (s.strategy.tensor_parallel < kMostDevices && sim::validate(s).empty() && !weights_fit(s)) {
    sim::Scenario wider = s;
    wider.strategy.tensor_parallel *= 2;
    if (!sim::validate(wider).empty()) break;
    s = std::move(wider);
  }
  return s;
}

SpeculationStudy InferenceStudies::speculation(const std::string& draft, double sequences, double context) {
  SpeculationStudy study;
  study.draft = draft.empty() ? "one layer of the model" : draft;
  study.sequences = sequences;
  try {
    if (!draft_ || draft_name_ != draft) {
      draft_ = std::make_unique<sim::IterationCost>(draft_of(scenario_, draft), calibration_.get());
      draft_name_ = draft;
    }
  } catch (const std::exception& problem) {
    study.refusal = problem.what();
    return study;
  }
  sim::Iteration step{.decode_sequences = sequences, .decode_context = context, .prompts = {}};
  study.draft_step = draft_->iteration(step).total();
  study.plain_step = cost_->iteration(step).total();
  for (std::int64_t length = 1; length <= kLongestDraft; ++length) {
    step.decode_tokens = d(length + 1);
    study.verify.push_back(cost_->iteration(step).total());
  }
  return study;
}

InferenceStudy InferenceStudies::study(const InferenceQuestion& question) {
  InferenceStudy study;
  study.scenario = as_served(question.scenario, question.choices.engine);
  const sim::Scenario& s = study.scenario;
  if (const auto problems = sim::validate(s); !problems.empty())
    throw std::invalid_argument(problems.front().field + " " + problems.front().message);
  const sim::Calibration* calibration = question.calibration.get();
  if (!cost_ || !(scenario_ == s) || calibration_ != question.calibration) {
    scenario_ = s;
    calibration_ = question.calibration;
    cost_ = std::make_unique<sim::IterationCost>(s, calibration);
    draft_.reset();
  }
  study.served = sim::served_batch(s, calibration);
  const sim::Report report = sim::predict(s, calibration);
  study.prefill = phase_study(s, study.served->times.first_token, work_of(report, sim::Phase::prefill, 1));
  study.decode =
      phase_study(s, study.served->times.later_token,
                  work_of(report, sim::Phase::decode, std::max(1.0, d(s.workload.max_new_tokens) - 1)));
  study.cache = cache_study(s, study.served->memory, question.choices);
  const std::int64_t context = or_else(question.choices.context, usual_context(s));
  study.rates.push_back(rate_curve(*cost_, s, study.served->memory.cache_tokens, context));
  for (std::int64_t other = 1024; other <= std::max<std::int64_t>(context, 32768); other *= 8)
    if (other != context && other <= s.model.max_position_embeddings)
      study.rates.push_back(rate_curve(*cost_, s, study.served->memory.cache_tokens, other));
  study.speculation = speculation(question.choices.draft, d(study.cache.sequences), d(context));
  study.traffic = traffic_study(*cost_, s, question.choices);
  return study;
}

}  // namespace app::gui
