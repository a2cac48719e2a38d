#include "app/gui/scenario_fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <type_traits>

#include "sim/cost/stragglers.h"
#include "sim/format.h"
#include "sim/plan/legality.h"
#include "sim/plan/recompute.h"
#include "sim/plan/schedule.h"

namespace app::gui {
namespace {

using sim::Scenario;
using I = sim::Implementation;
using M = sim::Model;
using S = sim::Strategy;
using W = sim::Workload;

constexpr std::int64_t kMany = std::int64_t{1} << 24;
constexpr std::int64_t kManyDevices = std::int64_t{1} << 20;

constexpr auto kModel = &Scenario::model;
constexpr auto kStrategy = &Scenario::strategy;
constexpr auto kWorkload = &Scenario::workload;
constexpr auto kImplementation = &Scenario::implementation;

bool trains(const Scenario& s) {
  return s.workload.task == sim::Task::train;
}
bool generates(const Scenario& s) {
  return s.workload.task == sim::Task::generate;
}

bool has_experts(const Scenario& s) {
  return s.model.has_experts();
}
bool trains_experts(const Scenario& s) {
  return trains(s) && has_experts(s);
}
bool generates_with_experts(const Scenario& s) {
  return generates(s) && has_experts(s);
}
// Generation divides experts alone over copies of all the rest.
bool has_replicas(const Scenario& s) {
  return trains(s) || has_experts(s);
}
bool divides_sequences(const Scenario& s) {
  return trains(s) && s.strategy.context_parallel > 1;
}
bool divides_experts(const Scenario& s) {
  return trains_experts(s) && s.strategy.expert_parallel > 1;
}
bool divides_states(const Scenario& s) {
  return trains(s) && (s.strategy.zero_stage > 0 || s.strategy.shard_group != 0);
}
bool gathers_parameters(const Scenario& s) {
  return trains(s) && (s.strategy.zero_stage == 3 || s.strategy.prefetch != 1);
}
bool reduces_gradients(const Scenario& s) {
  return trains(s) &&
         (s.strategy.data_parallel * s.strategy.context_parallel > 1 || s.strategy.gradient_bucket != 0);
}
bool keeps_inputs_at_intervals(const Scenario& s) {
  return trains(s) && (s.strategy.recompute == sim::Recompute::full || s.strategy.recompute_interval != 1);
}
bool recomputes_operations(const Scenario& s) {
  return trains(s) &&
         (s.strategy.recompute == sim::Recompute::operations || !s.strategy.recompute_operations.empty());
}
// Engines have blocks of their own; what is set shows, wherever it came from.
bool keeps_cache(const Scenario& s) {
  return generates(s) && ((s.workload.kv_cache && !s.implementation.serving) || s.workload.kv_block != 0);
}
bool is_served(const Scenario& s) {
  return generates(s) && s.implementation.serving.has_value();
}

ScenarioField when(bool (*applies)(const Scenario&), ScenarioField field) {
  field.applies = applies;
  return field;
}
ScenarioField saying(std::string (*says)(const Scenario&), ScenarioField field) {
  field.says = says;
  return field;
}
ScenarioField in_binary_k(ScenarioField field) {
  field.style.binary_k = true;
  return field;
}
ScenarioField rare(ScenarioField field) {
  field.rare = true;
  return field;
}

// `at(scenario)` is a reference to the number.
template <class At, class StepperOf>
ScenarioField number_at(const char* label, const char* name, At at, StepperOf stepper) {
  ScenarioField field{.label = label, .name = name};
  field.read = [=](const Scenario& s) { return static_cast<std::int64_t>(at(s)); };
  field.write = [=](Scenario& s, std::int64_t value) {
    at(s) = static_cast<std::remove_reference_t<decltype(at(s))>>(value);
  };
  if constexpr (std::is_convertible_v<StepperOf, Stepper>)
    field.stepper = [=](const Scenario&) { return Stepper(stepper); };
  else
    field.stepper = stepper;
  return field;
}
template <class Part, class Number, class StepperOf>
ScenarioField number(const char* label, const char* name, Part Scenario::*part, Number Part::*member,
                     StepperOf stepper) {
  return number_at(
      label, name, [=](auto& s) -> auto& { return (s.*part).*member; }, stepper);
}

// Of devices along one dimension.
template <class StepperOf>
ScenarioField degree(const char* label, const char* name, int S::*member, StepperOf stepper) {
  return number(label, name, kStrategy, member, stepper);
}

// `values` in the order of `names`.
template <class Part, class Value>
ScenarioField choice(const char* label, const char* name, Part Scenario::*part, Value Part::*member,
                     std::vector<Value> values, std::vector<std::string_view> names) {
  ScenarioField field{.label = label, .name = name, .choices = std::move(names)};
  field.read = [=](const Scenario& s) {
    return std::find(values.begin(), values.end(), (s.*part).*member) - values.begin();
  };
  field.write = [=](Scenario& s, std::int64_t index) {
    (s.*part).*member = values[static_cast<std::size_t>(index)];
  };
  return field;
}

// An enumeration's values from its first on, by their names.
template <class Part, class Value>
ScenarioField choice(const char* label, const char* name, Part Scenario::*part, Value Part::*member,
                     std::initializer_list<Value> values) {
  std::vector<std::string_view> names;
  for (const Value value : values) names.push_back(sim::name(value));
  return choice(label, name, part, member, std::vector<Value>(values), std::move(names));
}

template <class Part>
ScenarioField toggle(const char* label, const char* name, Part Scenario::*part, bool Part::*member) {
  ScenarioField field{.label = label, .name = name, .choices = {"off", "on"}};
  field.read = [=](const Scenario& s) { return std::int64_t{(s.*part).*member}; };
  field.write = [=](Scenario& s, std::int64_t value) { (s.*part).*member = value != 0; };
  return field;
}

template <class Part>
ScenarioField named(const char* label, const char* name, Part Scenario::*part, std::string Part::*member,
                    std::span<const std::string_view> names) {
  ScenarioField field{.label = label, .name = name, .choices = {names.begin(), names.end()}};
  field.read = [=](const Scenario& s) {
    return std::find(names.begin(), names.end(), (s.*part).*member) - names.begin();
  };
  field.write = [=](Scenario& s, std::int64_t index) {
    (s.*part).*member = names[static_cast<std::size_t>(index)];
  };
  return field;
}

// A ratio, in hundredths.
ScenarioField ratio(const char* label, const char* name, double W::*member) {
  constexpr double kHundredths = 100;
  ScenarioField field{.label = label, .name = name};
  field.read = [=](const Scenario& s) { return std::llround(s.workload.*member * kHundredths); };
  field.write = [=](Scenario& s, std::int64_t value) {
    s.workload.*member = static_cast<double>(value) / kHundredths;
  };
  field.stepper = [](const Scenario&) { return step_by(25, 0, kMany); };
  field.style.hundredths = true;
  return field;
}

// A part of a mean, in hundredths of a percent.
ScenarioField percentage(const char* label, const char* name, double sim::Hardware::*member) {
  constexpr double kHundredthsOfPercent = 1e4;
  ScenarioField field{.label = label, .name = name};
  field.read = [=](const Scenario& s) { return std::llround(s.hardware.*member * kHundredthsOfPercent); };
  field.write = [=](Scenario& s, std::int64_t value) {
    s.hardware.*member = static_cast<double>(value) / kHundredthsOfPercent;
  };
  field.stepper = [](const Scenario&) { return step_by(25, 0, 9999); };
  field.style.hundredths = true;
  return field;
}

// How something is stored; first, as the workload's dtype says.
ScenarioField stored_type(const char* label, const char* name, std::optional<sim::DType> W::*member) {
  using D = sim::DType;
  std::vector<std::optional<D>> types = {std::nullopt, D::fp8, D::int8, D::int4, D::bf16, D::fp16, D::fp32};
  std::vector<std::string_view> names = {"as dtype"};
  for (const auto& type : types)
    if (type) names.push_back(sim::name(*type));
  return choice(label, name, kWorkload, member, std::move(types), std::move(names));
}

// What another kind of recompute does not have goes with the old kind; `operations` begins with those that
// cost least to compute again.
ScenarioField recompute() {
  using R = sim::Recompute;
  ScenarioField field =
      choice("recompute", "strategy.recompute", kStrategy, &S::recompute,
             std::initializer_list<R>{R::none, R::selective, R::full, R::sqrt, R::operations});
  field.write = [write = field.write](Scenario& s, std::int64_t index) {
    write(s, index);
    S& strategy = s.strategy;
    if (strategy.recompute != R::full) strategy.recompute_interval = 1;
    if (strategy.recompute != R::operations)
      strategy.recompute_operations.clear();
    else if (strategy.recompute_operations.empty())
      strategy.recompute_operations = {"norm", "activation"};
  };
  return field;
}

ScenarioField recompute_operations() {
  const auto words = sim::recompute_words();
  ScenarioField field{.label = "operations",
                      .name = "strategy.recompute_operations",
                      .choices = {words.begin(), words.end()}};
  field.several = true;
  field.read = [=](const Scenario& s) {
    std::int64_t mask = 0;
    for (const std::string& word : s.strategy.recompute_operations)
      if (const auto found = std::find(words.begin(), words.end(), word); found != words.end())
        mask |= std::int64_t{1} << (found - words.begin());
    return mask;
  };
  field.write = [=](Scenario& s, std::int64_t mask) {
    s.strategy.recompute_operations.clear();
    for (std::size_t i = 0; i < words.size(); ++i)
      if (mask >> i & 1) s.strategy.recompute_operations.emplace_back(words[i]);
  };
  return field;
}

// Orders of the axes that are devices of their own; experts lie on neighbours of the data-parallel ones.
const std::vector<std::string>& rank_orders() {
  static const std::vector<std::string> orders = [] {
    std::vector<std::string> all = {std::string(sim::kDefaultRankOrder)};
    std::array<std::string, 4> axes = {"cp", "ep-dp", "pp", "tp"};
    do {
      std::string order;
      for (const std::string& axis : axes) order.append(order.empty() ? "" : "-").append(axis);
      if (order != all.front()) all.push_back(std::move(order));
    } while (std::next_permutation(axes.begin(), axes.end()));
    return all;
  }();
  return orders;
}

ScenarioField rank_order() {
  static const std::vector<std::string_view> names(rank_orders().begin(), rank_orders().end());
  return named("rank order", "strategy.rank_order", kStrategy, &S::rank_order, names);
}

// Tokens of a page of the KV cache, of engines.
ScenarioField engine_kv_block() {
  ScenarioField field{.label = "KV block", .name = "implementation.serving.kv_block"};
  field.read = [](const Scenario& s) {
    return s.implementation.serving ? s.implementation.serving->kv_block : 0;
  };
  field.write = [](Scenario& s, std::int64_t value) {
    if (s.implementation.serving) s.implementation.serving->kv_block = value;
  };
  field.stepper = [](const Scenario&) { return step_by_doubling_from_none(1, 1 << 16); };
  field.refuses = [](const Scenario&, std::int64_t value) -> std::string {
    return value < 0 ? "is 0 for a contiguous cache, or the tokens of a block" : "";
  };
  field.says = [](const Scenario& s) -> std::string {
    return s.implementation.serving && s.implementation.serving->kv_block > 0
               ? "tokens of a page"
               : "contiguous: a sequence's whole length at once";
  };
  return field;
}

// All devices: data parallel over what the other degrees leave, as --gpus has it.
ScenarioField devices() {
  const auto of_a_replica = [](const Scenario& s) {
    return std::max<std::int64_t>(1, std::int64_t{s.strategy.tensor_parallel} * s.strategy.pipeline_parallel *
                                         s.strategy.context_parallel);
  };
  ScenarioField field{.label = "devices", .name = "devices"};
  field.read = [=](const Scenario& s) { return of_a_replica(s) * s.strategy.data_parallel; };
  field.write = [=](Scenario& s, std::int64_t value) {
    s.strategy.data_parallel = static_cast<int>(value / of_a_replica(s));
  };
  field.stepper = [=](const Scenario& s) { return step_by_doubling(of_a_replica(s), kManyDevices); };
  field.refuses = [=](const Scenario& s, std::int64_t value) -> std::string {
    const std::int64_t replica = of_a_replica(s), below = value / replica * replica;
    if (value >= replica && value <= kManyDevices && value % replica == 0) return "";
    const std::string multiple = sim::format_count(value) +
                                 " is no multiple of tensor x pipeline x context, " +
                                 sim::format_count(replica) + ": ";
    if (below < replica) return multiple + sim::format_count(replica) + " would do";
    return multiple + sim::format_count(below) + " or " + sim::format_count(below + replica) + " would do";
  };
  field.says = [](const Scenario& s) -> std::string {
    const int per_node = std::max(1, s.hardware.devices_per_node), all = s.strategy.devices();
    const std::string places = s.hardware.devices_per_node > 1 && all > per_node
                                   ? sim::format_count((all + per_node - 1) / per_node) + " nodes of " +
                                         sim::format_count(per_node) + ": "
                                   : "";
    return places + "data x tensor x pipeline x context";
  };
  return field;
}

std::string grouping(const Scenario& s) {
  const M& m = s.model;
  if (m.num_key_value_heads < 1 || m.num_attention_heads % m.num_key_value_heads != 0) return "";
  const std::int64_t queries = m.num_attention_heads / m.num_key_value_heads;
  if (queries == 1) return "";
  if (m.num_key_value_heads == 1) return "multi-query: all heads share one";
  return "grouped: " + sim::format_count(queries) + " queries share one";
}

std::string accumulation(const Scenario& s) {
  const W& w = s.workload;
  const std::int64_t devices = std::max(1, s.strategy.data_parallel);
  if (w.micro_batch_size < 1 || w.global_batch_size < 1) return "";
  const std::int64_t micro_batches = w.global_batch_size / (w.micro_batch_size * devices);
  return sim::format_count(w.global_batch_size * w.seq_len) + " tokens in " +
         sim::format_count(micro_batches) + (micro_batches == 1 ? " micro-batch" : " micro-batches");
}

std::string logits_at_once(const Scenario& s) {
  const W& w = s.workload;
  const std::int64_t parts = std::int64_t{s.strategy.context_parallel} * s.implementation.head_chunks;
  if (parts < 1 || w.micro_batch_size < 1 || w.seq_len < 1) return "";
  return "logits of " + sim::format_count(w.micro_batch_size * w.seq_len / parts) + " tokens at a time";
}

std::string block_size(const Scenario& s) {
  const W& w = s.workload;
  if (w.kv_block < 1) return "contiguous: a sequence's whole length at once";
  const std::int64_t tokens = w.prompt_length + w.max_new_tokens;
  return "tokens of a block; a sequence has " + sim::format_count((tokens + w.kv_block - 1) / w.kv_block);
}

std::string chip(const Scenario& s) {
  const sim::Hardware& h = s.hardware;
  const auto peak = h.peak.find(s.workload.dtype);
  if (peak == h.peak.end()) return sim::format(h.memory);
  return sim::format(peak->second) + " " + std::string(sim::name(s.workload.dtype)) + "\n" +
         sim::format(h.memory_bandwidth) + ", " + sim::format(h.memory);
}

std::string stretch(const Scenario& s) {
  return s.model.attention_chunk_size == 0
             ? "queries see all tokens before them"
             : "tokens of a stretch, within which queries see those before them";
}
std::string modules(const Scenario& s) {
  const std::int64_t parameters = sim::count_parameters(s.model).multi_token_prediction;
  return parameters == 0 ? "one token is predicted at a time"
                         : sim::format_short(static_cast<double>(parameters)) +
                               " parameters that predict further tokens in training";
}
std::string waiting(const Scenario& s) {
  return "standard deviation of times; ranks wait " +
         sim::format_percent(sim::waiting_over_mean(s, s.hardware)) + " of a mean rank's step";
}
std::string dispatch(const Scenario& s) {
  return s.strategy.expert_dispatch == sim::ExpertDispatch::each_node
             ? "a token crosses to each node once"
             : "a token crosses once for each of its experts";
}
std::string scale_group(const Scenario& s) {
  return s.workload.weights_group == 0 ? "a row of weights shares a scale" : "weights that share a scale";
}
std::string imbalance(const Scenario&) {
  return "tokens of the busiest device over the mean";
}
std::string capacity(const Scenario& s) {
  return s.workload.expert_capacity_factor == 0 ? "no token is dropped"
                                                : "places of an expert over the mean; others are dropped";
}
std::string interval(const Scenario&) {
  return "layers between inputs that are kept";
}
std::string nearest_first(const Scenario&) {
  return "neighbouring ranks first";
}
std::string sharding(const Scenario& s) {
  return s.strategy.shard_group == 0 ? "states are divided over all data-parallel ranks"
                                     : "ranks that states are divided over; groups of them hold copies";
}
std::string prefetching(const Scenario&) {
  return "units whose parameters are gathered ahead";
}
std::string bucket(const Scenario& s) {
  return s.strategy.gradient_bucket == 0 ? "a layer's gradients are a message"
                                         : sim::format(sim::Bytes{s.strategy.gradient_bucket}) + " a message";
}
std::string in_host_memory(const Scenario& s) {
  return s.hardware.host_link.value > 0 ? "to the host over " + sim::format(s.hardware.host_link) : "";
}

Stepper step_heads(const Scenario& s) {
  const std::int64_t least = std::max<std::int64_t>(1, s.model.num_key_value_heads);
  return step_by(least, least, kMany);
}
Stepper step_key_value_heads(const Scenario& s) {
  return step_through_divisors_of(s.model.num_attention_heads);
}
Stepper step_hidden(const Scenario& s) {
  return step_by(s.model.head_dim, s.model.head_dim, kMany);
}
Stepper step_global_batch(const Scenario& s) {
  const std::int64_t least =
      std::max<std::int64_t>(1, s.workload.micro_batch_size * std::max(1, s.strategy.data_parallel));
  return step_by(least, least, kMany);
}
Stepper step_layers(const Scenario& s) {
  return step_by(1, 1, std::max<std::int64_t>(1, s.model.num_hidden_layers));
}
Stepper step_tensor(const Scenario& s) {
  return step_through_divisors_of(std::max<std::int64_t>(1, s.model.num_attention_heads));
}
Stepper step_pipeline(const Scenario& s) {
  return step_by(1, 1, std::max<std::int64_t>(1, s.model.num_hidden_layers));
}
Stepper step_chunks(const Scenario& s) {
  return step_by(
      1, 1, std::max<std::int64_t>(1, s.model.num_hidden_layers / std::max(1, s.strategy.pipeline_parallel)));
}

std::vector<FieldSection> make_sections() {
  const Stepper doubling = step_by_doubling(1, kMany), degrees = step_by_doubling(1, kManyDevices);
  return {
      {.id = "model",
       .title = "Model",
       .preset = sim::PresetKind::model,
       .preset_name = [](const Scenario& s) { return s.model.name; },
       .preset_says =
           [](const Scenario& s) {
             return sim::format_short(static_cast<double>(sim::count_parameters(s.model).total)) +
                    " parameters";
           },
       .fields =
           {
               number("layers", "model.num_hidden_layers", kModel, &M::num_hidden_layers,
                      step_by(1, 1, 1 << 12)),
               number("hidden", "model.hidden_size", kModel, &M::hidden_size, step_hidden),
               number("heads", "model.num_attention_heads", kModel, &M::num_attention_heads, step_heads),
               saying(grouping, number("KV heads", "model.num_key_value_heads", kModel,
                                       &M::num_key_value_heads, step_key_value_heads)),
               number("head size", "model.head_dim", kModel, &M::head_dim, step_by(8, 8, 1 << 12)),
               number("MLP size", "model.intermediate_size", kModel, &M::intermediate_size,
                      step_by(256, 256, kMany)),
               number("vocabulary", "model.vocab_size", kModel, &M::vocab_size, step_by(128, 128, kMany)),
               when(has_experts,
                    number_at(
                        "experts", "model.num_experts",
                        [](auto& s) -> auto& { return s.model.moe.num_experts; }, step_by(8, 8, 1 << 12))),
               when(has_experts, number_at(
                                     "chosen", "model.num_experts_per_tok",
                                     [](auto& s) -> auto& { return s.model.moe.num_experts_per_tok; },
                                     step_by(1, 1, 1 << 12))),
               when(has_experts, number_at(
                                     "expert size", "model.moe_intermediate_size",
                                     [](auto& s) -> auto& { return s.model.moe.moe_intermediate_size; },
                                     step_by(256, 256, kMany))),
               rare(saying(stretch, in_binary_k(number("attention chunk", "model.attention_chunk_size",
                                                       kModel, &M::attention_chunk_size,
                                                       step_by_doubling_from_none(1 << 10, kMany))))),
               rare(when(trains,
                         saying(modules, number("MTP modules", "model.num_nextn_predict_layers", kModel,
                                                &M::num_nextn_predict_layers, step_by(1, 0, 1 << 12))))),
           }},
      {.id = "hardware",
       .title = "Hardware",
       .preset = sim::PresetKind::hardware,
       .preset_name = [](const Scenario& s) { return s.hardware.name; },
       .preset_says = chip,
       .fields = {when(trains, devices()),
                  rare(when(trains, saying(waiting, percentage("spread, %", "hardware.device_spread",
                                                               &sim::Hardware::device_spread)))),
                  rare(when(trains, saying(waiting, percentage("pass jitter, %", "hardware.pass_jitter",
                                                               &sim::Hardware::pass_jitter))))}},
      {.id = "workload",
       .title = "Workload",
       .fields =
           {
               choice("task", "workload.task", kWorkload, &W::task, {sim::Task::train, sim::Task::generate}),
               choice(
                   "dtype", "workload.dtype", kWorkload, &W::dtype,
                   {sim::DType::fp32, sim::DType::tf32, sim::DType::bf16, sim::DType::fp16, sim::DType::fp8}),
               when(trains,
                    in_binary_k(number("sequence", "workload.seq_len", kWorkload, &W::seq_len, doubling))),
               when(trains, number("micro-batch", "workload.micro_batch_size", kWorkload,
                                   &W::micro_batch_size, step_by(1, 1, kMany))),
               when(
                   trains, saying(accumulation, number("global batch", "workload.global_batch_size",
                                                       kWorkload, &W::global_batch_size, step_global_batch))),
               when(generates, number("batch", "workload.batch_size", kWorkload, &W::batch_size, doubling)),
               when(generates, in_binary_k(number("prompt", "workload.prompt_length", kWorkload,
                                                  &W::prompt_length, doubling))),
               when(generates, in_binary_k(number("new tokens", "workload.max_new_tokens", kWorkload,
                                                  &W::max_new_tokens, doubling))),
               when(generates, toggle("KV cache", "workload.kv_cache", kWorkload, &W::kv_cache)),
               when(trains, choice(
                                "optimizer", "workload.optimizer", kWorkload, &W::optimizer,
                                {sim::Optimizer::adamw, sim::Optimizer::adamw_8bit, sim::Optimizer::adafactor,
                                 sim::Optimizer::muon, sim::Optimizer::sgd})),
               when(generates, stored_type("weights", "workload.weights_dtype", &W::weights_dtype)),
               when(generates, stored_type("cache type", "workload.kv_dtype", &W::kv_dtype)),
               when(keeps_cache,
                    saying(block_size, number("KV block", "workload.kv_block", kWorkload, &W::kv_block,
                                              step_by_doubling_from_none(16, 1 << 16)))),
               rare(when(generates_with_experts,
                         stored_type("expert weights", "workload.expert_weights_dtype",
                                     &W::expert_weights_dtype))),
               rare(when(generates,
                         saying(
                             scale_group,
                             number("weights group", "workload.weights_group", kWorkload, &W::weights_group, step_by_doubling_from_none(32, kMany))))),
               rare(
                   when(has_experts,
                        saying(imbalance,
                               ratio("imbalance", "workload.expert_imbalance", &W::expert_imbalance)))),
               rare(when(has_experts, saying(capacity, ratio(
                                                           "capacity", "workload.expert_capacity_factor",
                                                           &W::expert_capacity_factor)))),
           }},
      {.id = "strategy",
       .title = "Strategy",
       .fields =
           {
               when(has_replicas, degree("data", "strategy.data_parallel", &S::data_parallel, degrees)),
               degree("tensor", "strategy.tensor_parallel", &S::tensor_parallel, step_tensor),
               when(trains,
                    degree("pipeline", "strategy.pipeline_parallel", &S::pipeline_parallel, step_pipeline)),
               when(trains, degree("chunks", "strategy.virtual_pipeline", &S::virtual_pipeline, step_chunks)),
               when(trains, degree("context", "strategy.context_parallel", &S::context_parallel, degrees)),
               when(has_experts, degree("expert", "strategy.expert_parallel", &S::expert_parallel, degrees)),
               when(trains_experts, choice("expert tensor", "strategy.expert_tensor_parallel", kStrategy,
                                           &S::expert_tensor_parallel, {0, 1}, {"as tensor", "1"})),
               rare(
                   when(divides_experts,
                        saying(dispatch,
                               choice("dispatch to", "strategy.expert_dispatch", kStrategy,
                                      &S::expert_dispatch,
                                      {sim::ExpertDispatch::each_expert, sim::ExpertDispatch::each_node})))),
               when(trains, choice("ZeRO", "strategy.zero_stage", kStrategy, &S::zero_stage, {0, 1, 2, 3},
                                   {"0", "1", "2", "3"})),
               when(trains,
                    toggle("seq. parallel", "strategy.sequence_parallel", kStrategy, &S::sequence_parallel)),
               when(trains,
                    named("schedule", "strategy.schedule", kStrategy, &S::schedule, sim::schedule_names())),
               when(trains, recompute()),
               when(keeps_inputs_at_intervals,
                    saying(interval, number("interval", "strategy.recompute_interval",
                                            kStrategy, &S::recompute_interval, step_layers))),
               when(recomputes_operations, recompute_operations()),
               rare(when(divides_sequences,
                         choice("context comm.", "strategy.context_parallel_comm", kStrategy,
                                &S::context_parallel_comm,
                                {sim::ContextParallelComm::all_gather, sim::ContextParallelComm::ring,
                                 sim::ContextParallelComm::all_to_all}))),
               rare(when(trains, saying(nearest_first, rank_order()))),
               rare(
                   when(
                       divides_states,
                       saying(sharding,
                              number("shard group", "strategy.shard_group", kStrategy, &S::shard_group,
                                     step_by_doubling_from_none(2, kManyDevices))))),
               rare(
                   when(gathers_parameters, saying(prefetching,
                                                   number("prefetch", "strategy.prefetch",
                                                          kStrategy, &S::prefetch, step_by(1, 0, 1 << 12))))),
               rare(
                   when(reduces_gradients,
                        saying(bucket, number("bucket", "strategy.gradient_bucket", kStrategy, &S::gradient_bucket,
                                              step_by_doubling_from_none(1 << 20, std::int64_t{1} << 40))))),
               rare(when(trains,
                         saying(
                             in_host_memory,
                             toggle("offload opt.", "strategy.offload_optimizer", kStrategy, &S::offload_optimizer)))),
               rare(when(trains,
                         saying(
                             in_host_memory,
                             toggle("offload act.", "strategy.offload_activations", kStrategy, &S::offload_activations)))),
           }},
      {.id = "implementation",
       .title = "Implementation",
       .preset = sim::PresetKind::implementation,
       .preset_name = [](const Scenario& s) { return s.implementation.name; },
       .preset_says =
           [](const Scenario& s) {
             if (s.implementation.serving) return std::string("an inference engine: priced by its profile");
             return std::string(s.implementation.runs_here ? "runs here: Start measures it"
                                                           : "priced only: others' software");
           },
       .fields =
           {
               choice("attention", "implementation.attention", kImplementation, &I::attention,
                      {sim::AttentionKind::flash, sim::AttentionKind::standard}),
               toggle("dropout", "implementation.dropout", kImplementation, &I::dropout),
               toggle("fused residual", "implementation.fused_residual", kImplementation, &I::fused_residual),
               when(trains, saying(logits_at_once,
                                   number("head chunks", "implementation.head_chunks", kImplementation,
                                          &I::head_chunks, step_by_doubling(1, 1 << 10)))),
               when(is_served, engine_kv_block()),
           }},
  };
}

bool accepts(const Scenario& scenario, const ScenarioField& field, std::int64_t value) {
  Scenario next = scenario;
  field.write(next, value);
  const std::vector<sim::Problem> problems = sim::validate(next);
  return std::none_of(problems.begin(), problems.end(),
                      [&](const sim::Problem& p) { return p.field == field.name; });
}

}  // namespace

std::string ScenarioField::text(std::int64_t value) const {
  if (choices.empty()) return number_text(value, style);
  if (several) {
    std::string list;
    for (std::size_t i = 0; i < choices.size(); ++i)
      if (value >> i & 1) list.append(list.empty() ? "" : ", ").append(choices[i]);
    return list;
  }
  const auto index = static_cast<std::size_t>(value);
  return index < choices.size() ? std::string(choices[index]) : "";
}

bool ScenarioField::is_set(const Scenario& scenario) const {
  return read(scenario) != read(Scenario{});
}

const std::vector<FieldSection>& scenario_fields() {
  static const std::vector<FieldSection> sections = make_sections();
  return sections;
}

std::vector<std::int64_t> accepted_values(const Scenario& scenario, const ScenarioField& field,
                                          std::size_t most) {
  const std::int64_t now = field.read(scenario);
  std::set<std::int64_t> candidates;
  if (field.choices.empty()) {
    // Round numbers, divisors of what is divided, and the multiples of what a step is made of around it.
    for (std::int64_t round = 1; round <= kManyDevices; round *= 2) candidates.insert({round, round * 3 / 2});
    for (const std::int64_t whole : {scenario.model.num_attention_heads, scenario.model.num_hidden_layers})
      for (std::int64_t part = 1; part <= std::min<std::int64_t>(whole, 512); ++part)
        if (whole % part == 0) candidates.insert(part);
    const std::int64_t replicas = std::max<std::int64_t>(1, scenario.strategy.data_parallel);
    const std::int64_t step = std::max<std::int64_t>(1, scenario.workload.micro_batch_size) * replicas;
    for (const std::int64_t base : {step, step * std::max(1, scenario.strategy.pipeline_parallel)})
      for (const std::int64_t times : {now / base, now / base + 1}) candidates.insert(times * base);
    candidates.erase(0);
  } else {
    for (std::size_t i = 0; i < field.choices.size(); ++i) candidates.insert(static_cast<std::int64_t>(i));
  }
  std::vector<std::int64_t> accepted;
  for (const std::int64_t value : candidates)
    if (value != now && accepts(scenario, field, value)) accepted.push_back(value);
  const auto distance = [&](std::int64_t value) {
    return std::abs(
        std::log(static_cast<double>(value + 1) / static_cast<double>(std::max<std::int64_t>(0, now) + 1)));
  };
  std::stable_sort(accepted.begin(), accepted.end(),
                   [&](std::int64_t a, std::int64_t b) { return distance(a) < distance(b); });
  if (accepted.size() > most) accepted.resize(most);
  std::sort(accepted.begin(), accepted.end());
  return accepted;
}

ScheduleChoice with_schedule(const Scenario& scenario, std::string_view schedule) {
  constexpr int kMostChunks = 8;
  ScheduleChoice choice;
  const auto accept = [&](int chunks) {
    Scenario next = scenario;
    next.strategy.schedule = schedule;
    next.strategy.virtual_pipeline = chunks;
    const std::vector<sim::Problem> problems = sim::validate(next);
    if (problems.empty())
      choice.scenario = std::move(next);
    else if (choice.refusal.empty())
      choice.refusal = problems[0].field + " " + problems[0].message;
    return problems.empty();
  };
  if (accept(scenario.strategy.virtual_pipeline)) return choice;
  for (int chunks = 1; chunks <= kMostChunks; ++chunks)
    if (accept(chunks)) break;
  return choice;
}

}  // namespace app::gui
