#include "app/cli/plan_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <limits>
#include <string_view>

#include "app/cli/exit_code.h"
#include "sim/format.h"
#include "sim/planner/searched_fields.h"
#include "sim/scenario/fields.h"

namespace app::cli {

namespace {

using Values = std::vector<std::string>;

// The values to search for a field, by the name of its flag. `said` is how they were typed.
struct SearchFlag {
  std::string field;
  Values values;
  std::string said(const std::string& value) const {
    return typed_alone ? fmt::format("--{} {}", field, value) : fmt::format("--search {}={}", field, value);
  }
  bool typed_alone = false;
};

[[noreturn]] void refuse(const SearchFlag& flag, std::string_view accepted, const std::string& value) {
  throw UsageError(fmt::format("{}: {} takes {}", flag.said(value), flag.field, accepted));
}

std::vector<SearchFlag> search_flags(const std::vector<std::string>& typed) {
  std::vector<SearchFlag> flags;
  for (const std::string& text : typed) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
      throw UsageError(fmt::format("--search takes FIELD=VALUE,VALUE, as tp=1,2,4, not \"{}\"", text));
    SearchFlag flag{text.substr(0, equals), {}, false};
    std::size_t at = equals + 1;
    while (at <= text.size()) {
      const std::size_t comma = std::min(text.find(',', at), text.size());
      flag.values.push_back(text.substr(at, comma - at));
      at = comma + 1;
    }
    flags.push_back(std::move(flag));
  }
  return flags;
}

template <class Parse>
auto each(const SearchFlag& flag, std::string_view accepted, Parse parse) {
  std::vector<typename decltype(parse(std::string()))::value_type> values;
  for (const std::string& text : flag.values) {
    const auto value = parse(text);
    if (!value) refuse(flag, accepted, text);
    if (std::find(values.begin(), values.end(), *value) == values.end()) values.push_back(*value);
  }
  return values;
}

std::vector<std::int64_t> counts(const SearchFlag& flag, std::int64_t least) {
  return each(flag, fmt::format("whole numbers of {} or more, as 8 or 1k", least),
              [&](const std::string& text) -> std::optional<std::int64_t> {
                std::int64_t value = 0;
                if (!sim::parse_count(text, value) || value < least) return std::nullopt;
                return value;
              });
}

std::vector<int> degrees(const SearchFlag& flag, int least = 1) {
  std::vector<int> values;
  for (const std::int64_t value : counts(flag, least)) {
    if (value > std::numeric_limits<int>::max())
      refuse(flag, "numbers below two billion", sim::format_count(value));
    values.push_back(static_cast<int>(value));
  }
  return values;
}

std::vector<sim::RecomputeChoice> recomputes(const SearchFlag& flag) {
  return each(
      flag, "none, selective, full, full:LAYERS, sqrt or operations",
      [](const std::string& text) -> std::optional<sim::RecomputeChoice> {
        const std::size_t colon = text.find(':');
        const auto recompute = sim::from_name<sim::Recompute>(text.substr(0, colon));
        std::int64_t interval = 1;
        if (!recompute) return std::nullopt;
        if (colon != std::string::npos &&
            (*recompute != sim::Recompute::full || !sim::parse_count(text.substr(colon + 1), interval) ||
             interval < 1 || interval > std::numeric_limits<int>::max()))
          return std::nullopt;
        return sim::RecomputeChoice{*recompute, static_cast<int>(interval)};
      });
}

// The values of a field, read as its flag reads them. A number must not be below the field's least value.
template <class T, class Part, class Member>
std::vector<T> values_of(const SearchFlag& flag, Member Part::*member) {
  const sim::AnyField& field = sim::field_of(member);
  std::string accepted = field.accepted();
  if (field.kind == sim::AnyField::Kind::number)
    accepted = fmt::format("whole numbers of {} or more, as 8 or 1k", field.least);
  return each(flag, accepted, [&](const std::string& text) -> std::optional<T> {
    sim::Scenario s;
    if (text.empty() || !field.set(s, text)) return std::nullopt;
    const Member& value = s.*sim::kPart<Part>.*member;
    if constexpr (std::is_integral_v<Member> && !std::is_same_v<Member, bool>)
      if (static_cast<double>(value) < field.least) return std::nullopt;
    if constexpr (std::is_same_v<Member, std::string>)
      if (!field.words.empty() && std::ranges::find(field.words, value) == field.words.end())
        return std::nullopt;
    return value;
  });
}
template <>
std::vector<sim::RecomputeChoice> values_of(const SearchFlag& flag, sim::Recompute sim::Strategy::*) {
  return recomputes(flag);
}

std::string_view flag_of(std::string_view /*devices*/) {
  return "gpus";
}
template <class Part, class T>
std::string_view flag_of(T Part::*member) {
  return sim::field_of(member).flag;
}

// Sets the values of the fields that the flags name. `for_each(space, visit)` calls visit(member, values).
template <class Space, class ForEach>
void widen(const std::vector<SearchFlag>& flags, std::string_view of, Space& space, ForEach for_each) {
  for (const SearchFlag& flag : flags) {
    bool found = false;
    std::string known;
    for_each(space, [&](auto member, auto& values) {
      known.append(known.empty() ? "" : ", ").append(flag_of(member));
      if (found || flag_of(member) != flag.field) return;
      found = true;
      if constexpr (std::is_same_v<decltype(member), std::string_view>)
        values = degrees(flag);
      else
        values = values_of<typename std::remove_reference_t<decltype(values)>::value_type>(flag, member);
    });
    if (!found && !flag.typed_alone)
      throw UsageError(fmt::format("--search {}: of {} there are {}", flag.field, of, known));
  }
}

// A field that was typed has only this value.
std::vector<SearchFlag> typed_flags(const ScenarioFlags& flags) {
  std::vector<SearchFlag> typed;
  for (const auto& [field, text] : flags.fields) typed.push_back({std::string(field->flag), {text}, true});
  return typed;
}

// Numbers of devices: --search gpus, else --gpus.
std::vector<int> devices_of(const PlanFlags& flags, const std::vector<SearchFlag>& search) {
  for (const SearchFlag& flag : search)
    if (flag.field == "gpus") return degrees(flag);
  if (!flags.scenario.gpus)
    throw UsageError("--gpus says how many devices there are; several numbers: --search gpus=64,128");
  return degrees({"gpus", {std::to_string(*flags.scenario.gpus)}, true});
}

// The strategy without the fields that a search decides.
sim::Strategy undivided(sim::Strategy s) {
  const sim::Strategy none;
  sim::for_each_field<sim::Strategy>([&](const auto& row) {
    if (row.search == sim::FieldSearch::always) s.*row.member = none.*row.member;
  });
  return s;
}

std::optional<sim::Seconds> seconds_of(const std::optional<double>& value, double unit) {
  if (!value) return std::nullopt;
  return sim::Seconds{*value * unit};
}

// A constraint's field, as its flag is typed.
std::string constraint_flag(std::string_view field) {
  if (field == "memory_share") return "--memory-share";
  if (field == "memory_reserved") return "--memory-reserved-gib";
  if (field == "slowest_step") return "--slowest-step-s";
  if (field == "least_tokens_per_second") return "--least-tokens-per-s";
  if (field == "most_usd_per_million_tokens") return "--most-usd-per-mtok";
  if (field == "most_kwh_per_million_tokens") return "--most-kwh-per-mtok";
  if (field == "most_ttft") return "--most-ttft-ms";
  return "--most-tpot-ms";
}

template <class Constraints>
Constraints checked(const Constraints& constraints) {
  const auto found = problems(constraints);
  if (!found.empty())
    throw UsageError(fmt::format("{} {}", constraint_flag(found[0].field), found[0].message));
  return constraints;
}

constexpr double kMillisecond = 1e-3;

sim::Bytes reserved_bytes(double gib) {
  return {static_cast<std::int64_t>(gib * sim::kGiB)};
}

}  // namespace

void PlanFlags::add_to(CLI::App& command) {
  scenario.add_to(command);
  run.add_to(command);
  const auto number = [&](const char* flag, auto& value, const char* type, const char* help,
                          const char* group) {
    command.add_option(flag, value, help)->type_name(type)->group(group);
  };
  command
      .add_option("--search", search,
                  "values to try of a field, as tp=2,4,8 or gpus=64,128; may be given several times")
      ->type_name("FIELD=V,V")
      ->group("Search");
  command
      .add_option("--objective", objective,
                  "what the best is best at: time (default), memory, money or energy; of generation "
                  "throughput (default), latency, money or energy")
      ->type_name("NAME")
      ->group("Search");
  add_count(command, "--top", top, "candidates of the table")->group("Search");
  number("--memory-share", memory_share, "SHARE", "of each device's memory that may be taken (default 1)",
         "Constraints");
  number("--memory-reserved-gib", memory_reserved_gib, "GIB", "of each device's memory for others",
         "Constraints");
  number("--slowest-step-s", slowest_step_s, "SECONDS", "a training step takes at most", "Constraints");
  number("--least-tokens-per-s", least_tokens_per_s, "N", "of all devices together", "Constraints");
  number("--most-usd-per-mtok", most_usd_per_mtok, "USD", "a million tokens cost at most", "Constraints");
  number("--most-kwh-per-mtok", most_kwh_per_mtok, "KWH", "a million tokens take at most", "Constraints");
  number("--most-ttft-ms", most_ttft_ms, "MS", "generation: time to the first token", "Constraints");
  number("--most-tpot-ms", most_tpot_ms, "MS", "generation: time a later token", "Constraints");
  number("--requests-per-second", requests_per_second, "RATE",
         "generation: requests that come at random to all devices together; else a batch at a time",
         "Constraints");
  number("--minutes", minutes, "N", "of this traffic (default 2)", "Constraints");
  add_count(command, "--traffic-seed", traffic_seed, "of its random arrivals")->group("Constraints");
  command.add_option("--sweep", sweep, "models, hardware, devices, lengths, ... (ridgepoint schema sweep)")
      ->type_name("FILE.json")
      ->group("Sweep");
  command.add_option("--journal", journal, "keeps what is finished, to go on with after an interruption")
      ->type_name("FILE.ndjson")
      ->group("Sweep");
  command.add_flag("--resume", resume, "go on with the journal")->group("Sweep");
  add_count(command, "--range", range, "candidates handed out at a time; 0: chosen")->group("Sweep");
  add_count(command, "--threads", threads, "of this process; 0: as many as it may use")->group("Sweep");
  add_format(command, format, {Format::text, Format::json, Format::csv, Format::markdown});
}

sim::Objective training_objective(const PlanFlags& flags) {
  if (flags.objective.empty()) return sim::Objective::time;
  if (const auto objective = sim::from_name<sim::Objective>(flags.objective)) return *objective;
  throw UsageError(
      fmt::format("--objective of training is time, memory, money or energy, not \"{}\"", flags.objective));
}

sim::ServingObjective serving_objective(const PlanFlags& flags) {
  if (flags.objective.empty()) return sim::ServingObjective::throughput;
  if (const auto objective = sim::from_name<sim::ServingObjective>(flags.objective)) return *objective;
  throw UsageError(fmt::format(
      "--objective of generation is throughput, latency, money or energy, not \"{}\"", flags.objective));
}

sim::Constraints training_constraints(const PlanFlags& f) {
  if (f.most_ttft_ms || f.most_tpot_ms || f.requests_per_second)
    throw UsageError(fmt::format("{} is of generation: --task generate", f.most_ttft_ms ? "--most-ttft-ms"
                                                                         : f.most_tpot_ms
                                                                             ? "--most-tpot-ms"
                                                                             : "--requests-per-second"));
  return checked(sim::Constraints{.memory_share = f.memory_share,
                                  .memory_reserved = reserved_bytes(f.memory_reserved_gib),
                                  .slowest_step = seconds_of(f.slowest_step_s, 1),
                                  .least_tokens_per_second = f.least_tokens_per_s,
                                  .most_usd_per_million_tokens = f.most_usd_per_mtok,
                                  .most_kwh_per_million_tokens = f.most_kwh_per_mtok});
}

sim::ServingConstraints serving_constraints(const PlanFlags& f) {
  if (f.slowest_step_s) throw UsageError("--slowest-step-s is of training, and the task is generate");
  return checked(sim::ServingConstraints{.memory_share = f.memory_share,
                                         .memory_reserved = reserved_bytes(f.memory_reserved_gib),
                                         .most_ttft = seconds_of(f.most_ttft_ms, kMillisecond),
                                         .most_tpot = seconds_of(f.most_tpot_ms, kMillisecond),
                                         .least_tokens_per_second = f.least_tokens_per_s,
                                         .most_usd_per_million_tokens = f.most_usd_per_mtok,
                                         .most_kwh_per_million_tokens = f.most_kwh_per_mtok});
}

sim::SearchSpace training_space(const sim::Scenario& base, const PlanFlags& flags) {
  const std::vector<SearchFlag> search = search_flags(flags.search);
  const ScenarioFlags& typed = flags.scenario;
  const auto for_each = [](auto& space, const auto& visit) { sim::for_each_searched(space, visit); };
  sim::SearchSpace space = sim::every_strategy(base, devices_of(flags, search));
  widen(typed_flags(typed), "training", space, for_each);
  if (typed.typed("strategy.recompute") || typed.typed("strategy.recompute_operations"))
    space.recompute = {{base.strategy.recompute, base.strategy.recompute_interval}};
  widen(search, "training", space, for_each);
  if (typed.typed("strategy.data_parallel"))
    throw UsageError(
        "--dp is what the other degrees leave of the devices: fix --tp, --pp and --cp, or --gpus");
  return space;
}

sim::ServingSpace serving_space(const sim::Scenario& base, const PlanFlags& flags) {
  const std::vector<SearchFlag> search = search_flags(flags.search);
  const auto for_each = [](auto& space, const auto& visit) { sim::for_each_serving_field(space, visit); };
  std::optional<sim::ServingTraffic> traffic;
  if (flags.requests_per_second) traffic.emplace();
  sim::ServingSpace space = sim::every_serving(base, devices_of(flags, search), traffic);
  widen(typed_flags(flags.scenario), "generation", space, for_each);
  widen(search, "generation", space, for_each);
  return space;
}

ResolvedScenario resolve_for_plan(const ScenarioFlags& flags, const runtime::EventSink& sink,
                                  std::stop_token stop) {
  ScenarioFlags of_one = flags;
  of_one.gpus.reset();
  const auto is_kept = [](const sim::AnyField& f) {
    return f.path() != "workload.micro_batch_size" &&
           (f.search != sim::FieldSearch::always || f.name.starts_with("recompute"));
  };
  std::erase_if(of_one.fields, [&](const ScenarioFlags::Typed& t) { return !is_kept(*t.field); });
  ResolvedScenario resolved = resolve_unchecked(of_one, sink, std::move(stop));
  sim::Scenario& s = resolved.scenario;
  const sim::Strategy typed = s.strategy;
  s.strategy = undivided(s.strategy);
  if (flags.typed("strategy.recompute") || flags.typed("strategy.recompute_operations")) {
    s.strategy.recompute = typed.recompute;
    s.strategy.recompute_interval = typed.recompute_interval;
  }
  s.workload.micro_batch_size = 1;
  // Llama 3's 405B began with steps of 4 million tokens (arXiv 2407.21783, section 3.4.1).
  constexpr std::int64_t kUsualTokens = std::int64_t{4} << 20;
  if (!flags.typed("workload.global_batch_size") && !flags.scenario && !flags.workload)
    s.workload.global_batch_size =
        std::max<std::int64_t>(1, kUsualTokens / std::max<std::int64_t>(1, s.workload.seq_len));
  require_valid(s);
  return resolved;
}

}  // namespace app::cli
