#include "app/cli/plan_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "app/cli/exit_code.h"
#include "sim/format.h"
#include "sim/plan/schedule.h"

namespace app::cli {

namespace {

using Values = std::vector<std::string>;

struct SearchFlag {
  std::string field;
  Values values;
};

[[noreturn]] void refuse(const std::string& field, std::string_view accepted, const std::string& value) {
  throw UsageError(fmt::format("--search {}={}: {} takes {}", field, value, field, accepted));
}

std::vector<SearchFlag> search_flags(const std::vector<std::string>& typed) {
  std::vector<SearchFlag> flags;
  for (const std::string& text : typed) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
      throw UsageError(fmt::format("--search takes FIELD=VALUE,VALUE, as tp=1,2,4, not \"{}\"", text));
    SearchFlag flag{text.substr(0, equals), {}};
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
    if (!value) refuse(flag.field, accepted, text);
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
      refuse(flag.field, "numbers below two billion", sim::format_count(value));
    values.push_back(static_cast<int>(value));
  }
  return values;
}

std::vector<bool> choices(const SearchFlag& flag) {
  return each(flag, "true, false or both, as true,false", [](const std::string& text) -> std::optional<bool> {
    if (text == "true") return true;
    if (text == "false") return false;
    return std::nullopt;
  });
}

std::vector<sim::RecomputeChoice> recomputes(const SearchFlag& flag) {
  return each(
      flag, "none, selective, full, full:LAYERS, sqrt or operations",
      [](const std::string& text) -> std::optional<sim::RecomputeChoice> {
        const std::size_t colon = text.find(':');
        const auto recompute = sim::recompute_from_name(text.substr(0, colon));
        std::int64_t interval = 1;
        if (!recompute) return std::nullopt;
        if (colon != std::string::npos &&
            (*recompute != sim::Recompute::full || !sim::parse_count(text.substr(colon + 1), interval) ||
             interval < 1 || interval > std::numeric_limits<int>::max()))
          return std::nullopt;
        return sim::RecomputeChoice{*recompute, static_cast<int>(interval)};
      });
}

std::vector<std::string> schedules(const SearchFlag& flag) {
  const auto& known = sim::schedule_names();
  return each(flag, fmt::format("{}", fmt::join(known, ", ")),
              [&](const std::string& text) -> std::optional<std::string> {
                if (std::find(known.begin(), known.end(), text) == known.end()) return std::nullopt;
                return text;
              });
}

std::vector<std::optional<sim::DType>> types(const SearchFlag& flag) {
  std::vector<std::optional<sim::DType>> values;
  for (const sim::DType type : each(flag, "fp32, bf16, fp16, fp8, int8 or int4", [](const std::string& text) {
         return sim::dtype_from_name(std::string_view(text));
       }))
    values.push_back(type);
  return values;
}

// What --search may name, and what it does to a space.
template <class Space>
struct SearchField {
  std::string_view name;
  void (*set)(Space&, const SearchFlag&);
};

using TrainingField = SearchField<sim::SearchSpace>;
constexpr std::array<TrainingField, 20> kTrainingFields{{
    {"gpus", [](sim::SearchSpace& s, const SearchFlag& f) { s.devices = degrees(f); }},
    {"global-batch", [](sim::SearchSpace& s, const SearchFlag& f) { s.global_batch_size = counts(f, 1); }},
    {"micro-batch", [](sim::SearchSpace& s, const SearchFlag& f) { s.micro_batch_size = counts(f, 1); }},
    {"tp", [](sim::SearchSpace& s, const SearchFlag& f) { s.tensor_parallel = degrees(f); }},
    {"pp", [](sim::SearchSpace& s, const SearchFlag& f) { s.pipeline_parallel = degrees(f); }},
    {"cp", [](sim::SearchSpace& s, const SearchFlag& f) { s.context_parallel = degrees(f); }},
    {"ep", [](sim::SearchSpace& s, const SearchFlag& f) { s.expert_parallel = degrees(f); }},
    {"etp", [](sim::SearchSpace& s, const SearchFlag& f) { s.expert_tensor_parallel = degrees(f, 0); }},
    {"vpp", [](sim::SearchSpace& s, const SearchFlag& f) { s.virtual_pipeline = degrees(f); }},
    {"zero", [](sim::SearchSpace& s, const SearchFlag& f) { s.zero_stage = degrees(f, 0); }},
    {"shard-group", [](sim::SearchSpace& s, const SearchFlag& f) { s.shard_group = degrees(f, 0); }},
    {"prefetch", [](sim::SearchSpace& s, const SearchFlag& f) { s.prefetch = degrees(f, 0); }},
    {"gradient-bucket", [](sim::SearchSpace& s, const SearchFlag& f) { s.gradient_bucket = counts(f, 0); }},
    {"schedule", [](sim::SearchSpace& s, const SearchFlag& f) { s.schedule = schedules(f); }},
    {"recompute", [](sim::SearchSpace& s, const SearchFlag& f) { s.recompute = recomputes(f); }},
    {"sequence-parallel", [](sim::SearchSpace& s, const SearchFlag& f) { s.sequence_parallel = choices(f); }},
    {"offload-optimizer", [](sim::SearchSpace& s, const SearchFlag& f) { s.offload_optimizer = choices(f); }},
    {"offload-activations",
     [](sim::SearchSpace& s, const SearchFlag& f) { s.offload_activations = choices(f); }},
    {"cp-comm",
     [](sim::SearchSpace& s, const SearchFlag& f) {
       s.context_parallel_comm = each(f, "all_gather, ring or all_to_all", [](const std::string& text) {
         return sim::context_parallel_comm_from_name(std::string_view(text));
       });
     }},
    {"rank-order", [](sim::SearchSpace& s, const SearchFlag& f) { s.rank_order = f.values; }},
}};

using ServingField = SearchField<sim::ServingSpace>;
constexpr std::array<ServingField, 7> kServingFields{{
    {"gpus", [](sim::ServingSpace& s, const SearchFlag& f) { s.devices = degrees(f); }},
    {"tp", [](sim::ServingSpace& s, const SearchFlag& f) { s.tensor_parallel = degrees(f); }},
    {"pp", [](sim::ServingSpace& s, const SearchFlag& f) { s.pipeline_parallel = degrees(f); }},
    {"ep", [](sim::ServingSpace& s, const SearchFlag& f) { s.expert_parallel = degrees(f); }},
    {"batch-size", [](sim::ServingSpace& s, const SearchFlag& f) { s.batch_size = counts(f, 1); }},
    {"weights-dtype", [](sim::ServingSpace& s, const SearchFlag& f) { s.weights_dtype = types(f); }},
    {"kv-dtype", [](sim::ServingSpace& s, const SearchFlag& f) { s.kv_dtype = types(f); }},
}};

template <class Fields, class Space>
void widen(const Fields& fields, const std::vector<SearchFlag>& flags, std::string_view of, Space& space) {
  for (const SearchFlag& flag : flags) {
    const auto field =
        std::find_if(fields.begin(), fields.end(), [&](const auto& f) { return f.name == flag.field; });
    if (field == fields.end()) {
      std::string known;
      for (const auto& f : fields) known += (known.empty() ? "" : ", ") + std::string(f.name);
      throw UsageError(fmt::format("--search {}: of {} there are {}", flag.field, of, known));
    }
    field->set(space, flag);
  }
}

template <class T>
void fix(const std::optional<std::int64_t>& flag, std::vector<T>& values, const char* name,
         std::int64_t least = 1) {
  if (!flag) return;
  if (*flag < least || *flag > std::numeric_limits<int>::max())
    throw UsageError(fmt::format("{} must be {} or more", name, least));
  values = {static_cast<T>(*flag)};
}

// Numbers of devices: --search gpus, else --gpus.
std::vector<int> devices_of(const PlanFlags& flags, const std::vector<SearchFlag>& search) {
  for (const SearchFlag& flag : search)
    if (flag.field == "gpus") return degrees(flag);
  std::vector<int> devices;
  fix(flags.scenario.gpus, devices, "--gpus");
  if (devices.empty())
    throw UsageError("--gpus says how many devices there are; several numbers: --search gpus=64,128");
  return devices;
}

void fix_training(const ScenarioFlags& f, sim::SearchSpace& space) {
  fix(f.tensor_parallel, space.tensor_parallel, "--tp");
  fix(f.pipeline_parallel, space.pipeline_parallel, "--pp");
  fix(f.context_parallel, space.context_parallel, "--cp");
  fix(f.expert_parallel, space.expert_parallel, "--ep");
  fix(f.expert_tensor_parallel, space.expert_tensor_parallel, "--etp", 0);
  fix(f.virtual_pipeline, space.virtual_pipeline, "--vpp");
  fix(f.zero_stage, space.zero_stage, "--zero", 0);
  fix(f.shard_group, space.shard_group, "--shard-group", 0);
  fix(f.micro_batch, space.micro_batch_size, "--micro-batch");
  if (f.sequence_parallel) space.sequence_parallel = {*f.sequence_parallel};
  if (f.offload_optimizer) space.offload_optimizer = {*f.offload_optimizer};
  if (f.offload_activations) space.offload_activations = {*f.offload_activations};
  if (f.schedule) space.schedule = schedules({"schedule", {*f.schedule}});
  if (f.recompute || f.recompute_operations)
    space.recompute = {{space.base.strategy.recompute, space.base.strategy.recompute_interval}};
}

sim::Strategy undivided(const sim::Strategy& s) {
  sim::Strategy one;
  one.rank_order = s.rank_order;
  one.context_parallel_comm = s.context_parallel_comm;
  one.expert_dispatch = s.expert_dispatch;
  one.prefetch = s.prefetch;
  one.gradient_bucket = s.gradient_bucket;
  one.recompute_operations = s.recompute_operations;
  return one;
}

std::optional<sim::Seconds> seconds_of(const std::optional<double>& value, double unit) {
  if (!value) return std::nullopt;
  return sim::Seconds{*value * unit};
}

// A constraint's field as it is typed.
std::string flag_of(std::string_view field) {
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
  if (!found.empty()) throw UsageError(fmt::format("{} {}", flag_of(found[0].field), found[0].message));
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
  if (const auto objective = sim::objective_from_name(flags.objective)) return *objective;
  throw UsageError(
      fmt::format("--objective of training is time, memory, money or energy, not \"{}\"", flags.objective));
}

sim::ServingObjective serving_objective(const PlanFlags& flags) {
  if (flags.objective.empty()) return sim::ServingObjective::throughput;
  if (const auto objective = sim::serving_objective_from_name(flags.objective)) return *objective;
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
  sim::SearchSpace space = sim::every_strategy(base, devices_of(flags, search));
  fix_training(flags.scenario, space);
  widen(kTrainingFields, search, "training", space);
  if (flags.scenario.data_parallel)
    throw UsageError(
        "--dp is what the other degrees leave of the devices: fix --tp, --pp and --cp, or --gpus");
  return space;
}

sim::ServingSpace serving_space(const sim::Scenario& base, const PlanFlags& flags) {
  const std::vector<SearchFlag> search = search_flags(flags.search);
  std::optional<sim::ServingTraffic> traffic;
  if (flags.requests_per_second) traffic.emplace();
  sim::ServingSpace space = sim::every_serving(base, devices_of(flags, search), traffic);
  const ScenarioFlags& f = flags.scenario;
  fix(f.tensor_parallel, space.tensor_parallel, "--tp");
  fix(f.pipeline_parallel, space.pipeline_parallel, "--pp");
  fix(f.expert_parallel, space.expert_parallel, "--ep");
  fix(f.batch_size, space.batch_size, "--batch-size");
  widen(kServingFields, search, "generation", space);
  return space;
}

ResolvedScenario resolve_for_plan(const ScenarioFlags& flags, const runtime::EventSink& sink,
                                  std::stop_token stop) {
  ScenarioFlags of_one = flags;
  of_one.gpus = of_one.data_parallel = of_one.tensor_parallel = of_one.pipeline_parallel =
      of_one.context_parallel = of_one.expert_parallel = of_one.expert_tensor_parallel =
          of_one.virtual_pipeline = of_one.zero_stage = of_one.shard_group = of_one.micro_batch =
              std::nullopt;
  ResolvedScenario resolved = resolve_unchecked(of_one, sink, std::move(stop));
  sim::Scenario& s = resolved.scenario;
  const sim::Strategy typed = s.strategy;
  s.strategy = undivided(s.strategy);
  if (flags.recompute || flags.recompute_operations) {
    s.strategy.recompute = typed.recompute;
    s.strategy.recompute_interval = typed.recompute_interval;
  }
  s.workload.micro_batch_size = 1;
  // Llama 3's 405B began with steps of 4 million tokens (arXiv 2407.21783, section 3.4.1).
  constexpr std::int64_t kUsualTokens = std::int64_t{4} << 20;
  if (!flags.global_batch && !flags.scenario && !flags.workload)
    s.workload.global_batch_size =
        std::max<std::int64_t>(1, kUsualTokens / std::max<std::int64_t>(1, s.workload.seq_len));
  require_valid(s);
  return resolved;
}

}  // namespace app::cli
