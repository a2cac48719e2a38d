#include "app/cli/plan_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "app/cli/exit_code.h"
#include "sim/format.h"
#include "sim/planner/search_json.h"

namespace app::cli {

namespace {

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

constexpr double kMinute = 60;

void require_rates(const PlanSearch& search, const PlanFlags& flags) {
  if (search.rates.price.empty() && (flags.objective == "money" || flags.most_usd_per_mtok))
    throw UsageError(fmt::format("{} needs --usd-per-hour: presets/economics.json has no price of {}",
                                 flags.objective == "money" ? "--objective money" : "--most-usd-per-mtok",
                                 search.base.hardware.name));
  if (search.rates.watts == 0 && (flags.objective == "energy" || flags.most_kwh_per_mtok))
    throw UsageError(fmt::format("{} needs a power: the hardware {} says none",
                                 flags.objective == "energy" ? "--objective energy" : "--most-kwh-per-mtok",
                                 search.base.hardware.name));
}

void fill(PlanSearch& search, const PlanFlags& flags, const runtime::EventSink& sink,
          const std::stop_token& stop) {
  PlanFlags varied = flags;
  varied.scenario = search.typed;
  ResolvedScenario resolved = resolve_for_plan(varied.scenario, sink, stop);
  search.base = std::move(resolved.scenario);
  search.calibration = std::move(resolved.calibration);
  search.rates = device_rates(search.base.hardware, flags.run);
  require_rates(search, flags);
  if (search.base.workload.task == sim::Task::train) {
    search.of = TrainingSearch{.space = training_space(search.base, varied),
                               .constraints = training_constraints(flags),
                               .objective = training_objective(flags)};
    return;
  }
  if (flags.run.tokens) throw UsageError("--tokens is of a training run, and the task is generate");
  if (!search.base.implementation.serving)
    throw UsageError(
        fmt::format("--implementation {} is no inference engine; ways to serve are searched of vllm_0.14, "
                    "tensorrt_llm_1.0, sglang_0.4, ...",
                    search.base.implementation.name));
  ServingSearch serving{.space = serving_space(search.base, varied),
                        .traffic = {},
                        .constraints = serving_constraints(flags),
                        .objective = serving_objective(flags)};
  if (flags.requests_per_second)
    serving.traffic = sim::ServingTraffic{.requests_per_second = *flags.requests_per_second,
                                          .duration = sim::Seconds{flags.minutes * kMinute},
                                          .seed = static_cast<std::uint64_t>(flags.traffic_seed)};
  search.of = std::move(serving);
}

sim::SearchResult run(const TrainingSearch& of, const PlanSearch& search, const RangeOptions& options,
                      std::int64_t begin, std::int64_t end) {
  return sim::search(of.space, of.constraints, search.tariff(), pointer_to(search.calibration),
                     {.threads = options.threads,
                      .most_kept = options.most_kept,
                      .most_points = 0,
                      .begin = begin,
                      .end = end,
                      .on_progress =
                          [&](const sim::SearchResult&, std::int64_t done, std::int64_t) {
                            if (options.on_progress) options.on_progress(done);
                          },
                      .stop = options.stop,
                      .schedules = options.schedules});
}

sim::ServingResult run(const ServingSearch& of, const PlanSearch& search, const RangeOptions& options,
                       std::int64_t begin, std::int64_t end) {
  return sim::search(of.space, of.traffic, of.constraints, search.tariff(), pointer_to(search.calibration),
                     {.most_kept = options.most_kept,
                      .begin = begin,
                      .end = end,
                      .on_progress =
                          [&](std::int64_t done, std::int64_t) {
                            if (options.on_progress) options.on_progress(done);
                          },
                      .stop = options.stop});
}

// Results of several ranges leave out the time they took, which depends on the process that found them.
sim::SearchResult without_clock(sim::SearchResult r) {
  r.seconds = 0;
  return r;
}

std::string most_common(const std::map<std::string, std::int64_t>& refused) {
  const auto most = std::max_element(refused.begin(), refused.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == refused.end() ? std::string() : most->first;
}

// The message for a space without any legal candidate.
std::string nothing_legal(const std::map<std::string, std::int64_t>& refused) {
  return fmt::format(
      "no candidate is without contradiction: most are refused by {}; fix fewer flags, or widen --search",
      most_common(refused));
}

// The memory of a device that candidates may take.
template <class Constraints>
sim::Bytes most_memory(const sim::Hardware& hardware, const Constraints& c) {
  const double share = c.memory_share * static_cast<double>(hardware.memory.value);
  return sim::Bytes{static_cast<std::int64_t>(share)} - c.memory_reserved;
}

// The number of devices on which something fits: the flags' number, doubled until it does; 0 if none helps.
int enough_devices(const PlanSearch& search, const PlanFlags& flags, const RangeOptions& options) {
  constexpr int kDoublings = 8;
  std::int64_t devices = search.typed.gpus.value_or(0);
  const bool several = std::any_of(flags.search.begin(), flags.search.end(),
                                   [](const std::string& s) { return s.starts_with("gpus="); });
  if (devices < 1 || several) return 0;
  for (int i = 0; i < kDoublings && !options.stop.stop_requested(); ++i) {
    devices *= 2;
    if (devices > std::numeric_limits<int>::max() / 2) return 0;
    PlanSearch more = search;
    more.typed.gpus = devices;
    PlanFlags varied = flags;
    varied.scenario = more.typed;
    RangeOptions quiet = options;
    quiet.on_progress = {};
    bool fits = false;
    if (auto* training = std::get_if<TrainingSearch>(&more.of)) {
      training->space = training_space(search.base, varied);
      fits = run(*training, more, quiet, 0, sim::size(training->space)).fitting > 0;
    } else if (auto* serving = std::get_if<ServingSearch>(&more.of)) {
      serving->space = serving_space(search.base, varied);
      fits = run(*serving, more, quiet, 0, sim::size(serving->space)).fitting > 0;
    }
    if (fits) return static_cast<int>(devices);
  }
  return 0;
}

template <class Constraints, class Candidate>
std::string too_large(const PlanSearch& search, const Constraints& constraints, const Candidate& smallest,
                      const PlanFlags& flags, const RangeOptions& options) {
  const sim::Hardware& hardware = search.base.hardware;
  const sim::Bytes may = most_memory(hardware, constraints);
  std::string text = fmt::format("memory refuses all: the smallest candidate needs {} of {}",
                                 sim::format(smallest.memory), sim::format(may));
  if (may < hardware.memory)
    text += fmt::format(" that a {} with {} may use", hardware.name, sim::format(hardware.memory));
  else
    text += fmt::format(" of a {}", hardware.name);
  if (smallest.memory <= hardware.memory)
    return text + fmt::format("; it would fit with --memory-share {:.2f} and --memory-reserved-gib 0",
                              std::min(1.0, static_cast<double>(smallest.memory.value) /
                                                    static_cast<double>(hardware.memory.value) +
                                                0.005));
  if (const int devices = enough_devices(search, flags, options); devices > 0)
    return text + fmt::format("; on {} of them something fits (--gpus {})", devices, devices);
  return text + "; more devices, hardware with more memory or a smaller batch would need less";
}

template <class Constraints>
Constraints memory_alone(const Constraints& c) {
  Constraints weaker;
  weaker.memory_share = c.memory_share;
  weaker.memory_reserved = c.memory_reserved;
  return weaker;
}

// Adds what a limit asks for, beside the best value that is found when only memory is limited.
void add_limit(std::string& text, const char* flag, bool is_set, const std::string& wanted,
               const std::string& best) {
  if (!is_set) return;
  text += fmt::format("{}{} {}: the best is {}", text.empty() ? "" : "; ", flag, wanted, best);
}

std::string nearest_training(const PlanSearch& search, const TrainingSearch& of,
                             const sim::SearchResult& found, const PlanFlags& flags,
                             const RangeOptions& options) {
  if (found.legal == 0) return nothing_legal(found.refused);
  TrainingSearch weaker = of;
  weaker.constraints = memory_alone(of.constraints);
  RangeOptions quiet = options;
  quiet.on_progress = {};
  quiet.most_kept = 1;
  const sim::SearchResult any = run(weaker, search, quiet, 0, sim::size(of.space));
  if (any.fitting == 0) {
    if (!found.smallest) return "memory refuses all";
    return too_large(search, of.constraints, *found.smallest, flags, options);
  }
  const sim::Constraints& c = of.constraints;
  const sim::Candidate &fastest = any.best[sim::Objective::time].front(),
                       &cheapest = any.best[sim::Objective::money].front(),
                       &leanest = any.best[sim::Objective::energy].front();
  std::string text;
  add_limit(text, "--slowest-step-s", c.slowest_step.has_value(),
            c.slowest_step ? fmt::format("{:g}", c.slowest_step->value) : "",
            fmt::format("{:.4g} s", fastest.step.value));
  add_limit(text, "--least-tokens-per-s", c.least_tokens_per_second.has_value(),
            fmt::format("{:g}", c.least_tokens_per_second.value_or(0)),
            fmt::format("{:.6g}", fastest.tokens_per_second));
  add_limit(text, "--most-usd-per-mtok", c.most_usd_per_million_tokens.has_value(),
            fmt::format("{:g}", c.most_usd_per_million_tokens.value_or(0)),
            fmt::format("{:.4g}", cheapest.usd_per_million_tokens));
  add_limit(text, "--most-kwh-per-mtok", c.most_kwh_per_million_tokens.has_value(),
            fmt::format("{:g}", c.most_kwh_per_million_tokens.value_or(0)),
            fmt::format("{:.4g}", leanest.kwh_per_million_tokens));
  return text;
}

std::string nearest_serving(const PlanSearch& search, const ServingSearch& of,
                            const sim::ServingResult& found, const PlanFlags& flags,
                            const RangeOptions& options) {
  if (found.legal == 0) return nothing_legal(found.refused);
  ServingSearch weaker = of;
  weaker.constraints = memory_alone(of.constraints);
  RangeOptions quiet = options;
  quiet.on_progress = {};
  // All are kept, because the least time to a first token is no objective of its own.
  quiet.most_kept = static_cast<std::size_t>(std::max<std::int64_t>(1, found.legal));
  const sim::ServingResult any = run(weaker, search, quiet, 0, sim::size(of.space));
  if (any.fitting == 0) {
    if (any.refused.contains("requests_per_second")) {
      std::string text = fmt::format("{:g} requests a second are more than any candidate can do",
                                     of.traffic->requests_per_second);
      if (const int devices = enough_devices(search, flags, options); devices > 0)
        text += fmt::format("; {} devices can (--gpus {})", devices, devices);
      return text;
    }
    if (!found.smallest) return "memory refuses all";
    return too_large(search, of.constraints, *found.smallest, flags, options);
  }
  const sim::ServingConstraints& c = of.constraints;
  const auto& all = any.best[sim::ServingObjective::latency];
  const auto least = [&](auto value) {
    double best = std::numeric_limits<double>::infinity();
    for (const sim::ServingCandidate& candidate : all) best = std::min(best, value(candidate));
    return best;
  };
  constexpr double kMillisecond = 1e-3;
  std::string text;
  add_limit(text, "--most-ttft-ms", c.most_ttft.has_value(),
            fmt::format("{:g}", flags.most_ttft_ms.value_or(0)),
            fmt::format("{:.4g}", least([](const auto& x) { return x.ttft.value; }) / kMillisecond));
  add_limit(text, "--most-tpot-ms", c.most_tpot.has_value(),
            fmt::format("{:g}", flags.most_tpot_ms.value_or(0)),
            fmt::format("{:.4g}", least([](const auto& x) { return x.tpot.value; }) / kMillisecond));
  add_limit(text, "--least-tokens-per-s", c.least_tokens_per_second.has_value(),
            fmt::format("{:g}", c.least_tokens_per_second.value_or(0)),
            fmt::format("{:.6g}", -least([](const auto& x) { return -x.tokens_per_second; })));
  add_limit(text, "--most-usd-per-mtok", c.most_usd_per_million_tokens.has_value(),
            fmt::format("{:g}", c.most_usd_per_million_tokens.value_or(0)),
            fmt::format("{:.4g}", least([](const auto& x) { return x.usd_per_million_tokens; })));
  add_limit(text, "--most-kwh-per-mtok", c.most_kwh_per_million_tokens.has_value(),
            fmt::format("{:g}", c.most_kwh_per_million_tokens.value_or(0)),
            fmt::format("{:.4g}", least([](const auto& x) { return x.kwh_per_million_tokens; })));
  return text;
}

std::int64_t fitting(const PlanFound& found) {
  return std::visit(Overloaded{[](std::monostate) { return std::int64_t{0}; },
                               [](const auto& result) { return result.fitting; }},
                    found);
}

}  // namespace

PlanSearch make_search(const PlanFlags& flags, const Variation& variation, const runtime::EventSink& sink,
                       const std::stop_token& stop) {
  PlanSearch search;
  search.variation = variation;
  search.typed = flags.scenario;
  apply(variation, search.typed);
  if (variation.empty()) {
    fill(search, flags, sink, stop);
    return search;
  }
  try {
    fill(search, flags, sink, stop);
  } catch (const ConstraintError& problem) {
    search.of = std::monostate();
    search.why_not = problem.what();
    std::replace(search.why_not.begin(), search.why_not.end(), '\n', ' ');
  }
  return search;
}

std::int64_t candidates(const PlanSearch& search) {
  return std::visit(Overloaded{[](std::monostate) { return std::int64_t{0}; },
                               [](const auto& of) { return sim::size(of.space); }},
                    search.of);
}

std::string description(const PlanSearch& search, std::int64_t most_kept) {
  std::string text =
      std::visit(Overloaded{[&](std::monostate) { return search.why_not; },
                            [&](const TrainingSearch& of) {
                              return sim::description(of.space, of.constraints, search.tariff());
                            },
                            [&](const ServingSearch& of) {
                              return sim::description(of.space, of.traffic, of.constraints, search.tariff());
                            }},
                 search.of);
  if (search.calibration) text += sim::to_json(*search.calibration);
  return text + fmt::format(" most kept {}", most_kept);
}

runtime::PieceResult search_range(const PlanSearch& search, std::int64_t begin, std::int64_t end,
                                  const RangeOptions& options) {
  if (const auto* training = std::get_if<TrainingSearch>(&search.of)) {
    const sim::SearchResult r = without_clock(run(*training, search, options, begin, end));
    return {sim::to_json(r), r.looked_at == end - begin};
  }
  if (const auto* serving = std::get_if<ServingSearch>(&search.of)) {
    const sim::ServingResult r = run(*serving, search, options, begin, end);
    return {sim::to_json(r), r.looked_at == end - begin};
  }
  return {};
}

void merge(const PlanSearch& search, PlanFound& into, const std::string& range, std::size_t most_kept,
           const std::string& where) {
  if (std::holds_alternative<TrainingSearch>(search.of)) {
    const sim::SearchResult r = sim::search_result_from_json(range, where);
    if (!std::holds_alternative<sim::SearchResult>(into)) into = sim::SearchResult();
    sim::merge(std::get<sim::SearchResult>(into), r, {.most_kept = most_kept, .most_points = 0});
  } else if (std::holds_alternative<ServingSearch>(search.of)) {
    const sim::ServingResult r = sim::serving_result_from_json(range, where);
    if (!std::holds_alternative<sim::ServingResult>(into)) into = sim::ServingResult();
    sim::merge(std::get<sim::ServingResult>(into), r, most_kept);
  }
}

std::string nearest_that_would_do(const PlanSearch& search, const PlanFound& found, const PlanFlags& flags,
                                  const RangeOptions& options) {
  if (const auto* training = std::get_if<TrainingSearch>(&search.of))
    if (const auto* result = std::get_if<sim::SearchResult>(&found))
      return nearest_training(search, *training, *result, flags, options);
  if (const auto* serving = std::get_if<ServingSearch>(&search.of))
    if (const auto* result = std::get_if<sim::ServingResult>(&found))
      return nearest_serving(search, *serving, *result, flags, options);
  return search.why_not;
}

bool any_fits(const PlanFound& found) {
  return fitting(found) > 0;
}

}  // namespace app::cli
