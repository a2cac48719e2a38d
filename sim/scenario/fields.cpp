#include "sim/scenario/fields.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "sim/format.h"

namespace sim {
namespace {

template <class T>
constexpr bool is_optional = false;
template <class T>
constexpr bool is_optional<std::optional<T>> = true;

template <class T>
constexpr AnyField::Kind kind_of() {
  using enum AnyField::Kind;
  if constexpr (std::is_same_v<T, bool>) return toggle;
  if constexpr (std::is_floating_point_v<T>) return fraction;
  if constexpr (std::is_integral_v<T>) return number;
  if constexpr (std::is_same_v<T, std::string>) return text;
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return words;
  return word;
}

template <class T>
std::string text_of(const T& value) {
  if constexpr (is_optional<T>) {
    return value ? text_of(*value) : std::string();
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    char digits[32];
    return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    std::string list;
    for (const std::string& word : value) list.append(&word == value.data() ? "" : ",").append(word);
    return list;
  } else {
    return std::string(name(value));
  }
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    words.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return words;
}

template <class T>
bool read(const std::string& text, FieldUnit unit, T& value) {
  if constexpr (is_optional<T>) {
    if (text.empty()) return value.reset(), true;
    return read(text, unit, value.emplace());
  } else if constexpr (std::is_same_v<T, bool>) {
    value = text == "true";
    return value || text == "false";
  } else if constexpr (std::is_integral_v<T>) {
    std::int64_t number = 0;
    if (!parse_count(text, number, unit == FieldUnit::tokens) || !std::in_range<T>(number)) return false;
    value = static_cast<T>(number);
    return true;
  } else if constexpr (std::is_floating_point_v<T>) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = text;
    return true;
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    value = split(text);
    return true;
  } else {
    const std::optional<T> found = from_name<T>(text);
    if (found) value = *found;
    return found.has_value();
  }
}

template <class Part, std::size_t I>
struct Row {
  static constexpr const auto& row = std::get<I>(kFields<Part>);
  static auto& of(auto& scenario) { return (scenario.*kPart<Part>) .*row.member; }
  static std::string text(const Scenario& s) { return text_of(of(s)); }
  static bool set(Scenario& s, const std::string& text) {
    auto value = of(s);
    if (!read(text, row.unit, value)) return false;
    // A type may have more names than this field may take.
    if constexpr (kind_of<decltype(value)>() == AnyField::Kind::word)
      if (!text.empty() && std::ranges::find(row.words, text_of(value)) == row.words.end()) return false;
    of(s) = std::move(value);
    return true;
  }
  static double number(const Scenario& s) { return static_cast<double>(of(s)); }
  static void set_number(Scenario& s, double value) {
    of(s) = static_cast<std::remove_reference_t<decltype(of(s))>>(value);
  }
  static void copy(const Scenario& from, Scenario& to) { of(to) = of(from); }
  static bool same(const Scenario& a, const Scenario& b) { return of(a) == of(b); }
};

template <class Part, std::size_t I>
AnyField any_field() {
  using R = Row<Part, I>;
  using T = typename std::remove_cvref_t<decltype(R::row)>::Value;
  AnyField f{.part = kPartName<Part>,
             .name = R::row.name,
             .flag = R::row.flag,
             .label = R::row.label,
             .help = R::row.help,
             .kind = kind_of<T>(),
             .optional = is_optional<T>,
             .words = R::row.words,
             .unit = R::row.unit,
             .search = R::row.search,
             .applies = R::row.applies,
             .rare = R::row.rare,
             .text = R::text,
             .set = R::set,
             .copy = R::copy,
             .same = R::same};
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
    f.number = R::number;
    f.set_number = R::set_number;
    f.least = static_cast<double>(R::row.least);
    f.most = static_cast<double>(R::row.most);
  }
  return f;
}

template <class Part>
void add_rows(std::vector<AnyField>& all) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (all.push_back(any_field<Part, I>()), ...);
  }
  (std::make_index_sequence<kFieldCount<Part>>());
}

bool is(const Scenario& s, Task task) {
  return s.workload.task == task;
}

}  // namespace

bool trains(const Scenario& s) {
  return is(s, Task::train);
}
bool generates(const Scenario& s) {
  return is(s, Task::generate);
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
bool generates_with_own_head(const Scenario& s) {
  return generates(s) && !s.model.tie_word_embeddings;
}
// Generation divides only experts over replicas, which have copies of all the rest.
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
  return trains(s) && (saturated_product(s.strategy.data_parallel, s.strategy.context_parallel) > 1 ||
                       s.strategy.gradient_bucket != 0);
}
bool keeps_inputs_at_intervals(const Scenario& s) {
  return trains(s) && (s.strategy.recompute == Recompute::full || s.strategy.recompute_interval != 1);
}
bool recomputes_operations(const Scenario& s) {
  return trains(s) &&
         (s.strategy.recompute == Recompute::operations || !s.strategy.recompute_operations.empty());
}
// Engines have blocks of their own. A size of blocks that is set is shown, wherever it came from.
bool keeps_cache(const Scenario& s) {
  return generates(s) && ((s.workload.kv_cache && !s.implementation.serving) || s.workload.kv_block != 0);
}

bool can_mix_types(const Scenario& s) {
  const Workload& w = s.workload;
  return generates(s) && (has_fewer_than_8_bits(w) || mixes_types(w) || !w.mixed_layers.empty());
}

bool freezes_weights(const Scenario& s) {
  const Workload usual;
  const Workload& w = s.workload;
  return trains_adapters(w) || w.lora_alpha != usual.lora_alpha || w.lora_targets != usual.lora_targets ||
         w.frozen_weights != usual.frozen_weights;
}
bool accumulates_on_one_device(const Scenario& s) {
  const Strategy& t = s.strategy;
  const bool one =
      std::max({t.data_parallel, t.tensor_parallel, t.pipeline_parallel, t.context_parallel}) == 1;
  return trains(s) &&
         ((one && s.workload.global_batch_size > s.workload.micro_batch_size) || s.workload.measure_noise);
}

std::string AnyField::accepted() const {
  switch (kind) {
    case Kind::toggle:
      return "true or false";
    case Kind::number:
      return unit == FieldUnit::tokens ? "a whole number, as 8, 8k (8,192) or 1.5M"
                                       : "a whole number, as 8, 8k or 1.5M";
    case Kind::fraction:
      return "a number, as 1.25";
    case Kind::text:
      return words.empty() ? "a text" : listed(words);
    case Kind::word:
      return listed(words);
    case Kind::words:
      return "words by commas, of " + listed(words, "and");
  }
  return "";
}

std::span<const AnyField> all_fields() {
  static const std::vector<AnyField> all = [] {
    std::vector<AnyField> rows;
    std::apply([&]<class... Part>(const ScenarioPart<Part>&...) { (add_rows<Part>(rows), ...); }, kParts);
    return rows;
  }();
  return all;
}

const AnyField* field_at(std::string_view path) {
  for (const AnyField& f : all_fields())
    if (path.starts_with(f.part) && path.substr(f.part.size()).starts_with('.') &&
        path.substr(f.part.size() + 1) == f.name)
      return &f;
  return nullptr;
}

}  // namespace sim
