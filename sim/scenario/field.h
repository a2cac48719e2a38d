// A row of the table of fields: a member of a part of the scenario, with its name in files, its flag, its
// help, its label on screen, its legal values, what searches do with it and when it matters. Its default is
// the member's own. Rows stand below the struct that has their members: strategy.h, workload.h,
// implementation.h, hardware.h, model.h. fields.h reads the rows of all parts.
//
// A new field is a member with its row, and code where it acts.
#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "sim/enum_names.h"

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
  bytes,    // files write a unit behind the name
  percent,  // on screen; files hold a share of 1
};

// What a search over strategies does with a field.
enum class FieldSearch {
  none,     // stays as it is
  allowed,  // stays unless the search is given values for it
  always,   // the search decides it
};

struct Scenario;
using FieldApplies = bool (*)(const Scenario&);

template <class Part, class T>
struct Field {
  using Value = T;
  using Bound = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;
  std::string_view name;
  T Part::*member = nullptr;
  std::string_view flag;   // without its dashes; empty: it has none, and `--set PART.NAME=VALUE` sets it
  std::string_view label;  // empty: not offered on screen
  std::string_view help;
  Bound least = std::numeric_limits<Bound>::lowest(), most = std::numeric_limits<Bound>::max();
  std::span<const std::string_view> words{};  // the legal words of a field of text or of a type
  FieldUnit unit = FieldUnit::none;
  FieldSearch search = FieldSearch::none;
  FieldApplies applies = nullptr;  // whether it matters in the scenario, or is set; none: always
  bool rare = false;               // folded away on screen while it has its default

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

// When fields matter. Each function is also true where the field itself is set, so that a set field is shown.
bool trains(const Scenario& scenario);
bool generates(const Scenario& scenario);
bool has_experts(const Scenario& scenario);
bool trains_experts(const Scenario& scenario);
bool generates_with_experts(const Scenario& scenario);
bool generates_with_own_head(const Scenario& scenario);
bool has_replicas(const Scenario& scenario);
bool divides_sequences(const Scenario& scenario);
bool divides_experts(const Scenario& scenario);
bool divides_states(const Scenario& scenario);
bool gathers_parameters(const Scenario& scenario);
bool reduces_gradients(const Scenario& scenario);
bool keeps_inputs_at_intervals(const Scenario& scenario);
bool recomputes_operations(const Scenario& scenario);
bool keeps_cache(const Scenario& scenario);
bool can_mix_types(const Scenario& scenario);
bool freezes_weights(const Scenario& scenario);
bool accumulates_on_one_device(const Scenario& scenario);

// Words that fields take. plan/schedule.h, plan/recompute.h and plan/lora.h explain the schedules, the groups
// of recomputed operations and the weights with adapters.
// clang-format off
template <class... Word>
constexpr auto words(Word... word) {
  return std::array<std::string_view, sizeof...(word)>{word...};
}
inline constexpr auto kComputeTypes = words("fp32", "tf32", "bf16", "fp16", "fp8");  // of matrix products
inline constexpr auto kCacheTypes = words("fp8", "int8", "int4", "bf16", "fp16", "fp32");
inline constexpr auto kStoredTypes = words(  // of weights
    "fp8", "int8", "int5", "int4", "q6_k", "q5_k", "q4_k", "q3_k", "q2_k", "bf16", "fp16", "fp32");
inline constexpr auto kGradientTypes = words("fp32", "bf16", "fp16");
inline constexpr auto kScheduleNames = words(
    "gpipe", "1f1b", "interleaved", "breadth-first", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipev");
inline constexpr auto kRecomputeWords = words(
    "norm", "qkv", "attention_core", "attention_output", "mlp_up", "activation");
inline constexpr auto kLoraTargets = words(
    "query", "key", "value", "output", "gate", "up", "down", "attention", "mlp", "all");
// clang-format on

// The rows of a part, as a tuple.
template <class Part>
inline constexpr std::nullptr_t kFields = nullptr;

}  // namespace sim
