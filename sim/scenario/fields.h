// What can be said about a run, each thing once. A row is a member of a part of the scenario with its name in
// files, its flag, its help, its label on screen, its legal values, who searches it and when it matters. Its
// default is the member's own.
//
// Files, flags, the command that describes a scenario, validate(), searches, the planner's keys, Configure
// and random tests read these rows: a new field is a member and a row here, and code where it acts.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "sim/scenario/scenario.h"

namespace sim {

// Sizes up to here, and their products as validate() bounds them, keep every number of a plan in 64 bits.
inline constexpr std::int64_t kLargestWidth = std::int64_t{1} << 24;  // of a layer; 1000 times today's widest
inline constexpr std::int64_t kLargestVocabulary = std::int64_t{1} << 28;
inline constexpr std::int64_t kMostLayers = 1 << 16;
inline constexpr std::int64_t kMostExperts = 1 << 16;
inline constexpr std::int64_t kLongestSequence = std::int64_t{1} << 28;  // tokens
inline constexpr std::int64_t kMostSequences = std::int64_t{1} << 24;
inline constexpr std::int64_t kMostDevices = 1 << 22;  // of a job, and of each of its degrees
inline constexpr std::int64_t kMostPredictions = 64;   // of tokens beyond the next: a layer of its own each
inline constexpr std::int64_t kMostHeadChunks = 1 << 10, kLargestVocabularyMultiple = 1 << 12;
inline constexpr std::int64_t kMostBucketBytes = std::int64_t{1} << 53;  // a double of a file holds them

// How a number is written beside its value.
enum class FieldUnit {
  none,
  tokens,   // "8k" is 8,192
  bytes,    // in files with a unit behind the name
  percent,  // on screen; a share in files
};

// What a search over strategies does with a field.
enum class FieldSearch {
  none,     // stays as it is
  allowed,  // stays unless the search is given values for it
  always,   // is for the search to decide
};

using FieldApplies = bool (*)(const Scenario&);

template <class Part, class T>
struct Field {
  using Value = T;
  using Bound = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;
  std::string_view name;
  T Part::*member = nullptr;
  std::string_view flag;   // without its dashes; empty: it has none, and `--set PART.NAME=VALUE` says it
  std::string_view label;  // empty: not offered on screen
  std::string_view help;
  Bound least = std::numeric_limits<Bound>::lowest(), most = std::numeric_limits<Bound>::max();
  std::span<const std::string_view> words{};  // of text and types: those that are legal
  FieldUnit unit = FieldUnit::none;
  FieldSearch search = FieldSearch::none;
  FieldApplies applies = nullptr;  // whether it changes anything of the scenario, or is set; none: always
  bool rare = false;               // on screen folded away while it is as it begins

  template <class Value>
  constexpr Field with(Value Field::*what, Value value) const {
    Field f = *this;
    f.*what = value;
    return f;
  }
  constexpr Field at_least(Bound low) const { return with(&Field::least, low); }
  constexpr Field between(Bound low, Bound high) const { return at_least(low).with(&Field::most, high); }
  constexpr Field one_of(std::span<const std::string_view> legal) const { return with(&Field::words, legal); }
  constexpr Field in(FieldUnit written) const { return with(&Field::unit, written); }
  constexpr Field searched(FieldSearch how) const { return with(&Field::search, how); }
  constexpr Field when(FieldApplies matters) const { return with(&Field::applies, matters); }
  constexpr Field seldom_set() const { return with(&Field::rare, true); }
  constexpr bool in_range(const T& value) const requires std::is_arithmetic_v<T> {
    return value >= least && value <= most;
  }
};

template <class Part, class T>
constexpr Field<Part, T> field(std::string_view name, T Part::*member, std::string_view flag,
                               std::string_view label, std::string_view help) {
  Field<Part, T> f{};
  f.name = name;
  f.member = member;
  f.flag = flag;
  f.label = label;
  f.help = help;
  if constexpr (std::is_enum_v<T>) f.words = words_of<T>();
  return f;
}

// When fields matter. Each is true, too, where the field is set: what is set is seen.
bool trains(const Scenario& scenario);
bool generates(const Scenario& scenario);
bool has_experts(const Scenario& scenario);
bool trains_experts(const Scenario& scenario);
bool generates_with_experts(const Scenario& scenario);
bool has_replicas(const Scenario& scenario);
bool divides_sequences(const Scenario& scenario);
bool divides_experts(const Scenario& scenario);
bool divides_states(const Scenario& scenario);
bool gathers_parameters(const Scenario& scenario);
bool reduces_gradients(const Scenario& scenario);
bool keeps_inputs_at_intervals(const Scenario& scenario);
bool recomputes_operations(const Scenario& scenario);
bool keeps_cache(const Scenario& scenario);
bool freezes_weights(const Scenario& scenario);
bool accumulates_on_one_device(const Scenario& scenario);

// Words that fields take. What schedules, groups of recomputed operations and weights with adapters are,
// plan/schedule.h, plan/recompute.h and plan/lora.h say.
// clang-format off
template <class... Word>
constexpr auto words(Word... word) {
  return std::array<std::string_view, sizeof...(word)>{word...};
}
inline constexpr auto kComputeTypes = words("fp32", "tf32", "bf16", "fp16", "fp8");  // of matrix products
inline constexpr auto kStoredTypes = words("fp8", "int8", "int4", "bf16", "fp16", "fp32");  // of weights and caches
inline constexpr auto kGradientTypes = words("fp32", "bf16", "fp16");
inline constexpr auto kScheduleNames = words(
    "gpipe", "1f1b", "interleaved", "breadth-first", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipev");
inline constexpr auto kRecomputeWords = words(
    "norm", "qkv", "attention_core", "attention_output", "mlp_up", "activation");
inline constexpr auto kLoraTargets = words(
    "query", "key", "value", "output", "gate", "up", "down", "attention", "mlp", "all");
// clang-format on

template <class Part>
inline constexpr std::nullptr_t kFields = nullptr;

// clang-format off
template <>
inline constexpr auto kFields<Strategy> = [] {
  using S = Strategy;
  using enum FieldSearch;
  return std::tuple{
    field("data_parallel", &S::data_parallel, "dp", "data",
          "data parallel degree").between(1, kMostDevices).searched(always).when(has_replicas),
    field("tensor_parallel", &S::tensor_parallel, "tp", "tensor",
          "tensor parallel degree").between(1, kMostDevices).searched(always),
    field("pipeline_parallel", &S::pipeline_parallel, "pp", "pipeline",
          "pipeline stages").between(1, kMostDevices).searched(always).when(trains),
    field("virtual_pipeline", &S::virtual_pipeline, "vpp", "chunks",
          "model chunks that a pipeline stage holds").between(1, kMostDevices).searched(always).when(trains),
    field("context_parallel", &S::context_parallel, "cp", "context",
          "context parallel degree").between(1, kMostDevices).searched(always).when(trains),
    field("expert_parallel", &S::expert_parallel, "ep", "expert",
          "expert parallel degree").between(1, kMostDevices).searched(always).when(has_experts),
    field("expert_tensor_parallel", &S::expert_tensor_parallel, "etp", "expert tensor",
          "devices that share an expert: 0 as --tp, or 1").between(0, kMostDevices).searched(always).when(trains_experts),
    field("expert_dispatch", &S::expert_dispatch, "expert-dispatch", "dispatch to",
          "copies of a token that cross between nodes: one for each expert, or for each node").when(divides_experts).seldom_set(),
    field("zero_stage", &S::zero_stage, "zero", "ZeRO",
          "ZeRO stage: 0, 1, 2 or 3").between(0, 3).searched(always).when(trains),
    field("shard_group", &S::shard_group, "shard-group", "shard group",
          "ranks that ZeRO divides states over (hybrid sharding); 0: all data-parallel ranks").between(0, kMostDevices).searched(always).when(divides_states).seldom_set(),
    field("prefetch", &S::prefetch, "prefetch", "prefetch",
          "ZeRO 3: units whose parameters are gathered ahead").between(0, kMostLayers).searched(allowed).when(gathers_parameters).seldom_set(),
    field("gradient_bucket", &S::gradient_bucket, "gradient-bucket", "bucket",
          "bytes of layers' gradients reduced as one message; 0: a layer's").between(0, kMostBucketBytes).in(FieldUnit::bytes).searched(allowed).when(reduces_gradients).seldom_set(),
    field("sequence_parallel", &S::sequence_parallel, "sequence-parallel", "seq. parallel",
          "divide norms along the sequence beside tensor parallelism").searched(always).when(trains),
    field("context_parallel_comm", &S::context_parallel_comm, "cp-comm", "context comm.",
          "how context-parallel ranks see each other's keys and values").searched(allowed).when(divides_sequences).seldom_set(),
    field("schedule", &S::schedule, "schedule", "schedule",
          "of the pipeline").one_of(kScheduleNames).searched(always).when(trains),
    field("rank_order", &S::rank_order, "rank-order", "rank order",
          "which ranks are neighbours, nearest first: tp-cp-ep-dp-pp (default), tp-cp-pp-ep-dp, ...").searched(allowed).when(trains).seldom_set(),
    field("recompute", &S::recompute, "recompute", "recompute",
          "activations computed again in the backward pass").searched(always).when(trains),
    field("recompute_interval", &S::recompute_interval, "recompute-interval", "interval",
          "with --recompute full: layers between inputs that are kept").between(1, kMostLayers).searched(always).when(keeps_inputs_at_intervals),
    field("recompute_operations", &S::recompute_operations, "recompute-operations", "operations",
          "what is computed again, by commas").one_of(kRecomputeWords).when(recomputes_operations),
    field("offload_optimizer", &S::offload_optimizer, "offload-optimizer", "offload opt.",
          "states live in the host's memory, which updates them").searched(always).when(trains).seldom_set(),
    field("offload_activations", &S::offload_activations, "offload-activations", "offload act.",
          "what is kept for the backward pass waits in the host's memory").searched(allowed).when(trains).seldom_set()};
}();

template <>
inline constexpr auto kFields<Workload> = [] {
  using W = Workload;
  return std::tuple{
    field("task", &W::task, "task", "task", "what is asked of the model"),
    field("dtype", &W::dtype, "dtype", "dtype", "of matrix products").one_of(kComputeTypes),
    field("seq_len", &W::seq_len, "seq-len", "sequence",
          "tokens of a sequence; 8k is 8,192").between(1, kLongestSequence).in(FieldUnit::tokens).when(trains),
    field("micro_batch_size", &W::micro_batch_size, "micro-batch", "micro-batch",
          "sequences a device works on at a time; alone it is the global batch too").between(1, kMostSequences).when(trains),
    field("global_batch_size", &W::global_batch_size, "global-batch", "global batch",
          "sequences of a step").between(1, kMostSequences).when(trains),
    field("optimizer", &W::optimizer, "optimizer", "optimizer", "what updates the parameters").when(trains),
    field("measure_noise", &W::measure_noise, "measure-noise", "measure noise",
          "measure the gradient noise scale, by the gradient norms of a step's first micro-batch and of the step").when(accumulates_on_one_device).seldom_set(),
    field("lora_rank", &W::lora_rank, "lora-rank", "LoRA rank",
          "rank of the products that learn beside frozen weights (LoRA); 0: all weights learn").between(0, kLargestWidth).when(trains),
    field("lora_alpha", &W::lora_alpha, "lora-alpha", "LoRA alpha",
          "what adapters give is multiplied by alpha over rank").between(0, kLargestWidth).when(freezes_weights),
    field("lora_targets", &W::lora_targets, "lora-targets", "LoRA targets",
          "weights that have adapters, by commas").one_of(kLoraTargets).when(freezes_weights),
    field("frozen_weights", &W::frozen_weights, "frozen-weights", "frozen weights",
          "how weights of layers that do not learn are stored; nf4: in 4 bits, a scale for 64, which nf4_double stores in 8 bits").when(freezes_weights),
    field("batch_size", &W::batch_size, "batch-size", "batch",
          "sequences generated at a time").between(1, kMostSequences).when(generates),
    field("prompt_length", &W::prompt_length, "prompt-length", "prompt",
          "tokens of the prompt").between(1, kLongestSequence).in(FieldUnit::tokens).when(generates),
    field("max_new_tokens", &W::max_new_tokens, "max-new-tokens", "new tokens",
          "tokens to generate").between(1, kLongestSequence).in(FieldUnit::tokens).when(generates),
    field("kv_cache", &W::kv_cache, "kv-cache", "KV cache",
          "without it the whole sequence is computed again for every token").when(generates),
    field("weights_dtype", &W::weights_dtype, "weights-dtype", "weights",
          "how weights are stored; unset: as --dtype").one_of(kStoredTypes).when(generates),
    field("embedding_dtype", &W::embedding_dtype, "embedding-dtype", "embedding",
          "how the embedding of tokens and the head are stored; unset: as --dtype").one_of(kStoredTypes).when(generates).seldom_set(),
    field("kv_dtype", &W::kv_dtype, "kv-dtype", "cache type",
          "of the KV cache; unset: as --dtype").one_of(kStoredTypes).when(generates),
    field("expert_weights_dtype", &W::expert_weights_dtype, "expert-weights-dtype", "expert weights",
          "how experts' weights are stored; unset: as --weights-dtype").one_of(kStoredTypes).when(generates_with_experts).seldom_set(),
    field("kv_block", &W::kv_block, "kv-block", "KV block",
          "tokens of a block of the KV cache; 0: contiguous").between(0, kLongestSequence).in(FieldUnit::tokens).when(keeps_cache),
    field("weights_group", &W::weights_group, "weights-group", "weights group",
          "weights that share a scale; 0: a whole row").between(0, kLargestWidth).when(generates).seldom_set(),
    field("expert_imbalance", &W::expert_imbalance, "expert-imbalance", "imbalance",
          "tokens of the busiest device over the mean; 1: balanced").between(1, kMostExperts).when(has_experts).seldom_set(),
    field("expert_capacity_factor", &W::expert_capacity_factor, "expert-capacity-factor", "capacity",
          "rows an expert has places for over the mean, others are dropped; 0: none is").between(0, kMostExperts).when(has_experts).seldom_set()};
}();

template <>
inline constexpr auto kFields<Implementation> = [] {
  using I = Implementation;
  return std::tuple{
    field("attention", &I::attention, "attention", "attention", "by tiles (flash), or with scores in memory (standard)"),
    field("dropout", &I::dropout, "dropout-masks", "dropout",
          "dropout, whose masks of a byte an element are kept for the backward pass"),
    field("fused_residual", &I::fused_residual, "fused-residual", "fused residual",
          "residuals are added by the product before them; else by an operation of their own"),
    field("head_chunks", &I::head_chunks, "head-chunks", "head chunks",
          "parts of a micro-batch's rows that head and loss work on in turn, so that only one's logits are stored").between(1, kMostHeadChunks).when(trains),
    field("vocabulary_multiple", &I::vocabulary_multiple, "", "", "").between(1, kLargestVocabularyMultiple),
    field("recompute_stops_early", &I::recompute_stops_early, "", "", ""),
    field("selective_by_operation", &I::selective_by_operation, "", "", ""),
    field("recomputed_layers", &I::recomputed_layers, "", "", "").between(0, 1),
    field("gradient_dtype", &I::gradient_dtype, "", "", "").one_of(kGradientTypes),
    field("master_weights", &I::master_weights, "", "", ""),
    field("runs_here", &I::runs_here, "", "", "")};
}();

template <>
inline constexpr auto kFields<Hardware> = [] {
  using H = Hardware;
  return std::tuple{
    field("multiprocessors", &H::multiprocessors, "", "", "").at_least(0),
    field("power_w", &H::power_w, "", "", "").at_least(0),
    field("sustained_clock", &H::sustained_clock, "", "", ""),
    field("device_spread", &H::device_spread, "device-spread", "spread, %",
          "standard deviation of the time of the same work on one device and another, over the mean").between(0, .9999).when(trains).in(FieldUnit::percent).seldom_set(),
    field("pass_jitter", &H::pass_jitter, "pass-jitter", "pass jitter, %",
          "the same of a micro-batch's pass on one device from one time to the next").between(0, .9999).when(trains).in(FieldUnit::percent).seldom_set(),
    field("is_cpu", &H::is_cpu, "", "", ""),
    field("devices_per_node", &H::devices_per_node, "", "", "").at_least(1)};
}();

template <>
inline constexpr auto kFields<Model> = [] {
  using M = Model;
  return std::tuple{
    field("attention_chunk_size", &M::attention_chunk_size, "attention-chunk", "attention chunk",
          "tokens of a segment within which queries attend; 0: they see all before them").between(0, kLongestSequence).in(FieldUnit::tokens).seldom_set(),
    field("embedding_multiplier", &M::embedding_multiplier, "", "", ""),
    field("norm_placement", &M::norm_placement, "", "", ""),
    field("norm_gains_from_one", &M::norm_gains_from_one, "", "", ""),
    field("partial_rotary_factor", &M::partial_rotary_factor, "", "", "").between(0, 1),
    field("rope_local_base_freq", &M::rope_local_base_freq, "", "", "").at_least(0),
    field("num_nextn_predict_layers", &M::num_nextn_predict_layers, "mtp-modules", "MTP modules",
          "modules that predict further tokens in training").between(0, kMostPredictions).when(trains).seldom_set()};
}();
// clang-format on

// The parts of a scenario, as its files name them.
template <class Part>
struct ScenarioPart {
  std::string_view name;
  Part Scenario::*member;
};
inline constexpr std::tuple kParts{ScenarioPart<Model>{"model", &Scenario::model},
                                   ScenarioPart<Hardware>{"hardware", &Scenario::hardware},
                                   ScenarioPart<Workload>{"workload", &Scenario::workload},
                                   ScenarioPart<Strategy>{"strategy", &Scenario::strategy},
                                   ScenarioPart<Implementation>{"implementation", &Scenario::implementation}};
template <class Part>
inline constexpr Part Scenario::*kPart = std::get<ScenarioPart<Part>>(kParts).member;
template <class Part>
inline constexpr std::string_view kPartName = std::get<ScenarioPart<Part>>(kParts).name;

template <class Part>
inline constexpr std::size_t kFieldCount = std::tuple_size_v<std::remove_cvref_t<decltype(kFields<Part>)>>;

// Calls visit(row) for each field of a part, in order.
template <class Part, class Visit>
constexpr void for_each_field(Visit visit) {
  std::apply([&](const auto&... row) { (visit(row), ...); }, kFields<Part>);
}

// An order of all values of a part: keys of what depends on it forget no field.
template <class Part>
bool less_by_fields(const Part& a, const Part& b) {
  const auto less = [&]<std::size_t... I>(std::index_sequence<I...>) {
    bool before = false;
    const auto decides = [&](const auto& row) {
      const auto &x = a.*row.member, &y = b.*row.member;
      if (x == y) return false;
      before = x < y;
      return true;
    };
    static_cast<void>((decides(std::get<I>(kFields<Part>)) || ...));
    return before;
  };
  return less(std::make_index_sequence<kFieldCount<Part>>());
}

// A row without its type, for readers of any kind of field.
struct AnyField {
  enum class Kind { toggle, number, fraction, word, words, text };
  std::string_view part, name, flag, label, help;  // part: "strategy"
  Kind kind = Kind::text;
  bool optional = false;  // its text is empty where it is not set
  std::span<const std::string_view> words;
  double least = 0, most = 0;  // of a number, whole or not
  FieldUnit unit = FieldUnit::none;
  FieldSearch search = FieldSearch::none;
  FieldApplies applies = nullptr;
  bool rare = false;

  // As it is typed behind its flag.
  std::string (*text)(const Scenario&) = nullptr;
  // Sets what the text says; false, and nothing is changed, where it says nothing that the field can hold.
  // A number out of range is for validate() to refuse.
  bool (*set)(Scenario&, const std::string& text) = nullptr;
  // For a number, whole or not; null for others.
  double (*number)(const Scenario&) = nullptr;
  void (*set_number)(Scenario&, double) = nullptr;
  void (*copy)(const Scenario& from, Scenario& to) = nullptr;
  bool (*same)(const Scenario&, const Scenario&) = nullptr;

  std::string path() const { return std::string(part).append(".").append(name); }
  // What set() takes: "a whole number, as 8 or 8k", "none, selective, full, sqrt or operations".
  std::string accepted() const;
};
// The fields of all parts: model, hardware, strategy, workload, implementation.
std::span<const AnyField> all_fields();
// By its path, "strategy.zero_stage"; null where there is none.
const AnyField* field_at(std::string_view path);

// By its member.
template <class Part, class T>
const AnyField& field_of(T Part::*member) {
  std::string_view name;
  for_each_field<Part>([&](const auto& row) {
    if constexpr (std::is_same_v<decltype(row.member), T Part::*>)
      if (row.member == member) name = row.name;
  });
  return *field_at(std::string(kPartName<Part>).append(".").append(name));
}

}  // namespace sim
