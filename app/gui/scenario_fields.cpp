#include "app/gui/scenario_fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <type_traits>

#include "app/counted.h"
#include "app/gui/legal.h"
#include "sim/cost/stragglers.h"
#include "sim/format.h"
#include "sim/plan/legality.h"
#include "sim/plan/recompute.h"
#include "sim/plan/schedule.h"
#include "sim/scenario/fields.h"
#include "sim/scenario/layer_list.h"

namespace app::gui {
namespace {

using sim::AnyField;
using sim::Scenario;
using I = sim::Implementation;
using M = sim::Model;
using S = sim::Strategy;
using W = sim::Workload;

constexpr std::int64_t kMany = std::int64_t{1} << 24;
constexpr std::int64_t kManyDevices = std::int64_t{1} << 20;

bool is_served(const Scenario& s) {
  return sim::generates(s) && s.implementation.serving.has_value();
}

// Numbers of the model that have no row in the table of fields.
template <class At, class StepperOf>
ScenarioField number(const char* label, const char* name, At at, StepperOf stepper) {
  ScenarioField field{.label = label, .name = name};
  field.read = [=](const Scenario& s) -> std::int64_t { return at(s.model); };
  field.write = [=](Scenario& s, std::int64_t value) {
    auto& number = at(s.model);
    number = static_cast<std::remove_reference_t<decltype(number)>>(value);
  };
  if constexpr (std::is_convertible_v<StepperOf, Stepper>)
    field.stepper = [=](const Scenario&) { return Stepper(stepper); };
  else
    field.stepper = stepper;
  return field;
}
template <class Number, class StepperOf>
ScenarioField number(const char* label, const char* name, Number M::*member, StepperOf stepper) {
  return number(
      label, name, [=](auto& model) -> auto& { return model.*member; }, stepper);
}
ScenarioField saying(std::string (*says)(const Scenario&), ScenarioField field) {
  field.says = says;
  return field;
}
ScenarioField of_experts(ScenarioField field) {
  field.applies = sim::has_experts;
  return field;
}

// A row of the table of fields, read and written as text. Numbers of few values are choices.
std::vector<std::string_view> choices_of(const AnyField& row) {
  using enum AnyField::Kind;
  static constexpr std::string_view kDigits[] = {"0", "1", "2", "3", "4", "5", "6", "7"};
  if (row.kind == toggle) return {"off", "on"};
  std::vector<std::string_view> choices(row.words.begin(), row.words.end());
  if (row.optional) choices.insert(choices.begin(), "as dtype");
  if (row.kind == number && row.least == 0 && row.most < std::size(kDigits))
    choices.assign(kDigits, kDigits + static_cast<std::size_t>(row.most) + 1);
  return choices;
}

// A word of files as it is read: "each expert" for each_expert. Types have names that are written so
// everywhere.
std::string_view as_read(std::string_view word) {
  if (sim::from_name<sim::DType>(word)) return word;
  static std::set<std::string> all;  // as long as fields point at them
  std::string words(word);
  std::replace(words.begin(), words.end(), '_', ' ');
  return *all.insert(std::move(words)).first;
}

// What a choice is called in files.
std::string word_of(const AnyField& row, std::string_view choice) {
  if (row.kind == AnyField::Kind::toggle) return choice == "on" ? "true" : "false";
  return row.optional && choice == "as dtype" ? "" : std::string(choice);
}

void read_and_write_choice(ScenarioField& field, const AnyField& row) {
  std::vector<std::string> words;
  for (const std::string_view choice : field.choices) words.push_back(word_of(row, choice));
  field.read = [&row, words](const Scenario& s) {
    return std::find(words.begin(), words.end(), row.text(s)) - words.begin();
  };
  field.write = [&row, words](Scenario& s, std::int64_t index) {
    row.set(s, words[static_cast<std::size_t>(index)]);
  };
}

void read_and_write_several(ScenarioField& field, const AnyField& row) {
  field.several = true;
  field.read = [&row](const Scenario& s) {
    const std::string list = std::string(1, ',').append(row.text(s)).append(",");
    std::int64_t mask = 0;
    for (std::size_t i = 0; i < row.words.size(); ++i)
      if (list.find(std::string(1, ',').append(row.words[i]).append(",")) != std::string::npos)
        mask |= std::int64_t{1} << i;
    return mask;
  };
  field.write = [&row](Scenario& s, std::int64_t mask) {
    std::string list;
    for (std::size_t i = 0; i < row.words.size(); ++i)
      if (mask >> i & 1) list.append(list.empty() ? "" : ",").append(row.words[i]);
    row.set(s, list);
  };
}

// Fractions are shown in hundredths, shares in hundredths of a percent.
void read_and_write_number(ScenarioField& field, const AnyField& row) {
  const bool whole = row.kind == AnyField::Kind::number;
  const double scale = whole ? 1 : row.unit == sim::FieldUnit::percent ? 1e4 : 100;
  field.style = {.binary_k = row.unit == sim::FieldUnit::tokens, .hundredths = !whole};
  field.read = [&row, scale](const Scenario& s) -> std::int64_t {
    return std::llround(row.number(s) * scale);
  };
  field.write = [&row, scale](Scenario& s, std::int64_t value) {
    row.set_number(s, static_cast<double>(value) / scale);
  };
  const auto least = std::llround(row.least * scale), most = std::llround(row.most * scale);
  field.stepper = [=](const Scenario&) {
    return !whole       ? step_by(25, least, most)
           : least == 0 ? step_by_doubling_from_none(1, most)
                        : step_by_doubling(least, most);
  };
}

ScenarioField from_row(const AnyField& row) {
  ScenarioField field{.label = std::string(row.label), .name = row.path(), .choices = choices_of(row)};
  if (row.kind == AnyField::Kind::words)
    read_and_write_several(field, row);
  else if (!field.choices.empty())
    read_and_write_choice(field, row);
  else
    read_and_write_number(field, row);
  for (std::string_view& choice : field.choices) choice = as_read(choice);
  field.applies = row.applies;
  field.rare = row.rare;
  if (row.rare) field.says = [&row](const Scenario&) { return std::string(row.help); };
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

// Tokens of a page of the KV cache, of engines.
ScenarioField engine_kv_block() {
  ScenarioField field{.label = "KV block", .name = "implementation.serving.kv_block"};
  field.applies = is_served;
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

// The layers that llama.cpp's mixtures ending in _M store in more bits: the outer eighths, and every third
// between them (use_more_bits() in src/llama-quant.cpp).
std::string layers_of_mixtures(const Scenario& s) {
  const std::int64_t all = s.model.num_hidden_layers, eighth = all / 8;
  std::vector<std::int64_t> layers;
  for (std::int64_t l = 0; l < all; ++l)
    if (l < eighth || l >= 7 * all / 8 || (l - eighth) % 3 == 2) layers.push_back(l);
  return sim::layer_list(layers);
}

ScenarioField mixed_layers() {
  const AnyField& row = sim::field_of(&W::mixed_layers);
  ScenarioField field{
      .label = "mixed in layers", .name = row.path(), .choices = {"all", "outer, each third"}};
  field.applies = row.applies;
  field.rare = row.rare;
  field.read = [](const Scenario& s) -> std::int64_t {
    const std::string& layers = s.workload.mixed_layers;
    return layers.empty() ? 0 : layers == layers_of_mixtures(s) ? 1 : 2;
  };
  field.write = [](Scenario& s, std::int64_t value) {
    s.workload.mixed_layers = value == 0 ? "" : layers_of_mixtures(s);
  };
  field.says = [](const Scenario& s) {
    return s.workload.mixed_layers.empty() ? "" : "layers " + s.workload.mixed_layers;
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
  field.applies = sim::trains;
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
  return counted(w.global_batch_size * w.seq_len, "token") + " in " + counted(micro_batches, "micro-batch");
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
std::string capacity(const Scenario& s) {
  return s.workload.expert_capacity_factor == 0 ? "no token is dropped"
                                                : "places of an expert over the mean; others are dropped";
}
std::string sharding(const Scenario& s) {
  return s.strategy.shard_group == 0 ? "states are divided over all data-parallel ranks"
                                     : "ranks that states are divided over; groups of them hold copies";
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

// What a screen adds to rows of the table: steps that other fields decide, and what a value comes to.
struct Extra {
  const AnyField& row;
  std::function<Stepper(const Scenario&)> stepper = {};
  std::string (*says)(const Scenario&) = nullptr;
};
const std::vector<Extra>& extras() {
  using sim::field_of;
  const auto always = [](Stepper stepper) { return [stepper](const Scenario&) { return stepper; }; };
  static const std::vector<Extra> all = {
      {field_of(&M::attention_chunk_size), always(step_by_doubling_from_none(1 << 10, kMany))},
      {field_of(&M::num_nextn_predict_layers), always(step_by(1, 0, sim::kMostPredictions)), modules},
      {field_of(&sim::Hardware::device_spread), {}, waiting},
      {field_of(&sim::Hardware::pass_jitter), {}, waiting},
      {field_of(&W::micro_batch_size), always(step_by(1, 1, kMany))},
      {field_of(&W::global_batch_size), step_global_batch, accumulation},
      {field_of(&W::kv_block), always(step_by_doubling_from_none(16, 1 << 16)), block_size},
      {field_of(&W::weights_group), always(step_by_doubling_from_none(32, kMany))},
      {field_of(&W::expert_capacity_factor), {}, capacity},
      {field_of(&S::tensor_parallel), step_tensor},
      {field_of(&S::pipeline_parallel), step_pipeline},
      {field_of(&S::virtual_pipeline), step_chunks},
      {field_of(&S::expert_dispatch), {}, dispatch},
      {field_of(&S::recompute_interval), step_layers},
      {field_of(&S::shard_group), always(step_by_doubling_from_none(2, kManyDevices)), sharding},
      {field_of(&S::prefetch), always(step_by(1, 0, 1 << 12))},
      {field_of(&S::gradient_bucket), always(step_by_doubling_from_none(1 << 20, std::int64_t{1} << 40)),
       bucket},
      {field_of(&S::offload_optimizer), {}, in_host_memory},
      {field_of(&S::offload_activations), {}, in_host_memory},
      {field_of(&I::head_chunks), {}, logits_at_once},
  };
  return all;
}

// What another kind of recompute does not have goes with the old kind; `operations` begins with those that
// cost least to compute again.
void write_whole_recompute(ScenarioField& field) {
  field.write = [write = field.write](Scenario& s, std::int64_t index) {
    write(s, index);
    S& strategy = s.strategy;
    if (strategy.recompute != sim::Recompute::full) strategy.recompute_interval = 1;
    if (strategy.recompute != sim::Recompute::operations)
      strategy.recompute_operations.clear();
    else if (strategy.recompute_operations.empty())
      strategy.recompute_operations = {"norm", "activation"};
  };
}

// All rows of a part that have a label.
void add_rows(std::vector<ScenarioField>& fields, std::string_view part) {
  for (const AnyField& row : sim::all_fields()) {
    if (row.part != part || row.label.empty()) continue;
    ScenarioField field = from_row(row);
    for (const Extra& extra : extras()) {
      if (&extra.row != &row) continue;
      if (extra.stepper) field.stepper = extra.stepper;
      if (extra.says) field.says = extra.says;
    }
    if (&row == &sim::field_of(&S::recompute)) write_whole_recompute(field);
    if (&row == &sim::field_of(&S::expert_tensor_parallel)) {
      field.choices = {"0", "1"};
      read_and_write_choice(field, row);
      field.choices[0] = "as tensor";
    }
    if (&row == &sim::field_of(&S::rank_order)) {
      field.choices.assign(rank_orders().begin(), rank_orders().end());
      read_and_write_choice(field, row);
    }
    fields.push_back(std::move(field));
  }
}

std::vector<FieldSection> make_sections() {
  std::vector<FieldSection> sections = {
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
           {number("layers", "model.num_hidden_layers", &M::num_hidden_layers, step_by(1, 1, 1 << 12)),
            number("hidden", "model.hidden_size", &M::hidden_size, step_hidden),
            number("heads", "model.num_attention_heads", &M::num_attention_heads, step_heads),
            saying(grouping, number("KV heads", "model.num_key_value_heads", &M::num_key_value_heads,
                                    step_key_value_heads)),
            number("head size", "model.head_dim", &M::head_dim, step_by(8, 8, 1 << 12)),
            number("MLP size", "model.intermediate_size", &M::intermediate_size, step_by(256, 256, kMany)),
            number("vocabulary", "model.vocab_size", &M::vocab_size, step_by(128, 128, kMany)),
            of_experts(number(
                "experts", "model.num_experts", [](auto& model) -> auto& { return model.moe.num_experts; },
                step_by(8, 8, 1 << 12))),
            of_experts(number(
                "chosen", "model.num_experts_per_tok",
                [](auto& model) -> auto& { return model.moe.num_experts_per_tok; }, step_by(1, 1, 1 << 12))),
            of_experts(number(
                "expert size", "model.moe_intermediate_size",
                [](auto& model) -> auto& { return model.moe.moe_intermediate_size; },
                step_by(256, 256, kMany)))}},
      {.id = "hardware",
       .title = "Hardware",
       .preset = sim::PresetKind::hardware,
       .preset_name = [](const Scenario& s) { return s.hardware.name; },
       .preset_says = chip,
       .fields = {devices()}},
      {.id = "workload", .title = "Workload"},
      {.id = "strategy", .title = "Strategy"},
      {.id = "implementation",
       .title = "Implementation",
       .preset = sim::PresetKind::implementation,
       .preset_name = [](const Scenario& s) { return s.implementation.name; },
       .preset_says =
           [](const Scenario& s) {
             if (s.implementation.serving) return std::string("an inference engine: priced by its profile");
             return std::string(s.implementation.runs_here ? "runs here: Start measures it"
                                                           : "priced only: others' software");
           }},
  };
  for (FieldSection& section : sections) {
    add_rows(section.fields, section.id);
    if (std::string_view(section.id) == "workload") section.fields.push_back(mixed_layers());
  }
  sections.back().fields.push_back(engine_kv_block());
  return sections;
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

std::string said(const AnyField& row, const Scenario& scenario) {
  for (const FieldSection& section : scenario_fields())
    for (const ScenarioField& field : section.fields)
      if (field.name == row.path()) return field.label + " " + field.text(field.read(scenario));
  return std::string(row.label) + " " + row.text(scenario);
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
      choice.refusal = in_labels(problems[0]);
    return problems.empty();
  };
  if (accept(scenario.strategy.virtual_pipeline)) return choice;
  for (int chunks = 1; chunks <= kMostChunks; ++chunks)
    if (accept(chunks)) break;
  return choice;
}

}  // namespace app::gui
