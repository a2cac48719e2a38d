#include "app/cli/predict_serving.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/cli/progress.h"
#include "app/cli/report_output.h"
#include "app/cli/text_table.h"
#include "sim/format.h"
#include "sim/plan/legality.h"
#include "sim/serving/served_batch.h"
#include "sim/serving/simulation.h"

namespace app::cli {

namespace {

constexpr int kServingSchemaVersion = 1;
constexpr double kMillisecond = 1e-3, kMinute = 60, kPercent = 100;

class Metrics {
 public:
  void time(std::string key, std::string label, sim::Seconds t, double band = 1) {
    add(key + "_ms", std::move(label), t.value / kMillisecond, sim::format(t));
    if (band <= 1) return;
    add(key + "_low_ms", "", t.value / band / kMillisecond, "");
    add(key + "_high_ms", "", t.value * band / kMillisecond, "");
  }
  void number(std::string key, std::string label, double value, std::string text) {
    add(std::move(key), std::move(label), value, std::move(text));
  }
  void add(const std::vector<Metric>& further) { list_.insert(list_.end(), further.begin(), further.end()); }
  const std::vector<Metric>& list() const { return list_; }

 private:
  void add(std::string key, std::string label, double value, std::string text) {
    list_.push_back({std::move(key), std::move(label), value, std::move(text)});
  }
  std::vector<Metric> list_;
};

void add_memory(Metrics& m, const sim::EngineMemory& memory, double requests_that_fit) {
  m.number("weights_bytes_per_device", "weights a device", static_cast<double>(memory.weights.value),
           sim::format(memory.weights));
  m.number("kv_bytes_per_token_and_device", "KV cache of a token, a device", memory.cache_of_token,
           sim::format(sim::Bytes{static_cast<std::int64_t>(memory.cache_of_token)}));
  m.number("kv_cache_tokens", "tokens that the KV cache holds", memory.cache_tokens,
           sim::format_count(static_cast<std::int64_t>(memory.cache_tokens)));
  m.number("requests_that_fit", "requests of this length at a time", requests_that_fit,
           sim::format_count(static_cast<std::int64_t>(requests_that_fit)));
}

// The prediction, and the reason why there is none: empty where it fits.
struct Served {
  Metrics metrics;
  std::string problem;
};

std::string problem_of(const sim::Scenario& s, const sim::ServedBatch& served) {
  if (sim::fits(served, s)) return {};
  if (served.memory.weights > s.hardware.memory)
    return fmt::format("the weights, {} a device, do not fit its memory, {}",
                       sim::format(served.memory.weights), sim::format(s.hardware.memory));
  return fmt::format(
      "a batch of {} does not fit the device's memory, which has room for {} beside the weights",
      sim::format_count(s.workload.batch_size),
      sim::format_count(static_cast<std::int64_t>(served.requests_that_fit)));
}

Served batch_metrics(const ResolvedScenario& resolved, const RunCostFlags& costs) {
  const sim::Scenario& s = resolved.scenario;
  const sim::ServedBatch served = sim::served_batch(s, pointer_to(resolved.calibration));
  Metrics m;
  m.time("ttft", "time to first token", served.times.first_token.total(), served.band);
  m.time("tpot", "time a later token", served.times.later_token.total(), served.band);
  m.time("total", "whole batch", served.times.total.total(), served.band);
  m.number("output_tokens_per_second", "output tokens a second", served.output_per_second,
           fmt::format("{:.1f}", served.output_per_second));
  add_memory(m, served.memory, served.requests_that_fit);
  const std::string problem = problem_of(s, served);
  m.number("fits", "fits", problem.empty() ? 1 : 0, problem.empty() ? "yes" : "no");
  m.add(token_cost_metrics(s.hardware, sim::served_devices(s), served.output_per_second, costs));
  return {std::move(m), problem};
}

sim::Traffic traffic_of(const sim::Workload& w, const ServingFlags& flags) {
  const sim::ServedRequest request{.prompt = w.prompt_length, .output = w.max_new_tokens};
  const sim::Seconds duration{flags.minutes * kMinute};
  sim::Traffic traffic;
  if (flags.requests_per_second) {
    traffic.arrivals = sim::poisson_arrivals(*flags.requests_per_second, duration, request,
                                             static_cast<std::uint64_t>(flags.seed));
    return traffic;
  }
  // This many rounds make filling and draining weigh little.
  constexpr std::int64_t kRounds = 10, kSaturated = 3000;
  traffic.most_at_a_time = flags.concurrency.value_or(0);
  const std::int64_t requests = flags.concurrency ? kRounds * *flags.concurrency : kSaturated;
  traffic.arrivals.assign(static_cast<std::size_t>(requests), {{}, request});
  return traffic;
}

void add_percentiles(Metrics& m, const std::string& key, const std::string& label, const sim::Simulation& run,
                     sim::Seconds (sim::RequestTimes::*time)() const) {
  std::vector<sim::Seconds> values;
  values.reserve(run.requests.size());
  for (const sim::RequestTimes& request : run.requests) values.push_back((request.*time)());
  for (const int share : {50, 90, 99})
    m.time(fmt::format("{}_p{}", key, share), fmt::format("{}, {} % of requests", label, share),
           sim::percentile(values, share / kPercent));
}

Metrics traffic_metrics(const ResolvedScenario& resolved, const ServingFlags& flags,
                        const RunCostFlags& costs) {
  const sim::Scenario& s = resolved.scenario;
  const sim::IterationCost cost(s, pointer_to(resolved.calibration));
  const sim::SchedulerLimits limits = sim::engine_limits(s);
  const sim::Simulation run = sim::simulate(traffic_of(s.workload, flags), limits,
                                            [&](const sim::Iteration& i) { return cost.iteration(i); });
  Metrics m;
  const double requests = static_cast<double>(run.requests.size()) / run.duration.value;
  m.number("requests_per_second", "requests a second", requests, fmt::format("{:.2f}", requests));
  m.number("output_tokens_per_second", "output tokens a second", run.output_per_second(),
           fmt::format("{:.1f}", run.output_per_second()));
  m.number("band_ratio", "90 % band of rates and times", run.busy.band(),
           fmt::format("a factor of {:.2f}", run.busy.band()));
  add_percentiles(m, "ttft", "time to first token", run, &sim::RequestTimes::ttft);
  add_percentiles(m, "tpot", "time a later token", run, &sim::RequestTimes::tpot);
  if (flags.most_ttft_ms || flags.most_tpot_ms) {
    constexpr double kAny = 1e9;
    const double kept = sim::goodput(run, sim::Seconds{flags.most_ttft_ms.value_or(kAny) * kMillisecond},
                                     sim::Seconds{flags.most_tpot_ms.value_or(kAny) * kMillisecond});
    m.number("goodput_requests_per_second", "of these within the objective", kept,
             fmt::format("{:.2f}", kept));
  }
  double used = 0;
  for (const sim::OccupancyPoint& point : run.occupancy)
    used = std::max(used, static_cast<double>(point.used_blocks) / static_cast<double>(limits.blocks));
  m.number("kv_cache_peak_share", "KV cache in use at most", used, sim::format_percent(used));
  m.number("mean_in_system", "requests in the system, mean", run.mean_in_system,
           fmt::format("{:.1f}", run.mean_in_system));
  m.number("preemptions", "preemptions", static_cast<double>(run.preemptions),
           sim::format_count(run.preemptions));
  const sim::EngineMemory memory = sim::engine_memory(s);
  add_memory(m, memory,
             memory.cache_tokens / static_cast<double>(s.workload.prompt_length + s.workload.max_new_tokens));
  m.add(token_cost_metrics(s.hardware, sim::served_devices(s), run.output_per_second(), costs));
  return m;
}

std::string as_text(const Metrics& metrics, bool markdown) {
  TextTable table{{{"", TextTable::Align::left}, {"", TextTable::Align::right}}, {}};
  for (const Metric& metric : metrics.list())
    if (!metric.label.empty()) table.rows.push_back({metric.label, metric.text});
  return markdown ? table.markdown() : table.text();
}

std::string as_json(const Metrics& metrics, const sim::Scenario& scenario) {
  nlohmann::ordered_json json;
  json["schema_version"] = kServingSchemaVersion;
  for (const Metric& metric : metrics.list()) json["metrics"][metric.key] = *metric.value;
  if (json["metrics"].contains("fits")) json["metrics"]["fits"] = json["metrics"]["fits"] != 0;
  json["remarks"] = nlohmann::ordered_json::array();
  for (const sim::Problem& remark : sim::remarks(scenario))
    json["remarks"].push_back({{"field", remark.field}, {"message", remark.message}});
  return json.dump(2) + "\n";
}

std::string as_csv(const Metrics& metrics) {
  std::string text = "metric,value\n";
  for (const Metric& metric : metrics.list()) text += fmt::format("{},{:.9g}\n", metric.key, *metric.value);
  return text;
}

}  // namespace

void ServingFlags::add_to(CLI::App& command) {
  const std::string group = "Serving";
  command
      .add_option("--requests-per-second", requests_per_second,
                  "requests that arrive at random at this mean rate")
      ->type_name("RATE")
      ->group(group);
  add_count(command, "--concurrency", concurrency,
            "clients that each wait for an answer before they ask again")
      ->group(group);
  command.add_flag("--saturated", saturated, "all requests at once: the most that the engine can do")
      ->group(group);
  command.add_option("--minutes", minutes, "of traffic")->type_name("N")->group(group);
  add_count(command, "--traffic-seed", seed, "of the random arrivals")->group(group);
  command.add_option("--most-ttft-ms", most_ttft_ms, "objective: time to first token")
      ->type_name("MS")
      ->group(group);
  command.add_option("--most-tpot-ms", most_tpot_ms, "objective: time a later token")
      ->type_name("MS")
      ->group(group);
}

ExitCode predict_serving(const ResolvedScenario& resolved, const ServingFlags& flags,
                         const RunCostFlags& costs, Format format) {
  if (flags.requests_per_second && !(*flags.requests_per_second > 0))
    throw UsageError("--requests-per-second must be above 0");
  if (!(flags.minutes > 0)) throw UsageError("--minutes must be above 0");
  if (flags.concurrency && *flags.concurrency < 1) throw UsageError("--concurrency must be 1 or more");
  Served served;
  try {
    if (flags.traffic())
      served.metrics = traffic_metrics(resolved, flags, costs);
    else
      served = batch_metrics(resolved, costs);
  } catch (const std::invalid_argument& problem) {
    throw ConstraintError(std::vector<sim::Problem>{{"workload", problem.what()}});
  }
  switch (format) {
    case Format::json:
      fmt::print("{}", as_json(served.metrics, resolved.scenario));
      break;
    case Format::csv:
      fmt::print("{}", as_csv(served.metrics));
      break;
    default:
      fmt::print("{}", as_text(served.metrics, format == Format::markdown) + remarks_text(resolved.scenario));
  }
  if (served.problem.empty()) return ExitCode::fine;
  to_stderr(fmt::format("ridgepoint: {}\n", served.problem));
  return ExitCode::constraint;
}

}  // namespace app::cli
