// The table of everything that can be said about a run, each thing once: the rows (field.h) of all parts of a
// scenario. Files, flags, the command that describes a scenario, validate(), searches, the planner's keys,
// Configure and random tests read them.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "sim/scenario/scenario.h"

namespace sim {

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

// Calls visit(row) for each field of a workload that says how weights are stored.
template <class Visit>
constexpr void for_each_stored_type(Visit visit) {
  for_each_field<Workload>([&](const auto& row) {
    using Value = typename std::remove_cvref_t<decltype(row)>::Value;
    if constexpr (std::is_same_v<Value, std::optional<DType>>)
      if (row.words.data() == kStoredTypes.data()) visit(row);
  });
}

// An order of all values of a part, for the keys of maps. It compares all fields, so none is forgotten.
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
  double least = 0, most = 0;  // of a number, whole or fractional
  FieldUnit unit = FieldUnit::none;
  FieldSearch search = FieldSearch::none;
  FieldApplies applies = nullptr;
  bool rare = false;

  // The field's value, as it is typed behind its flag.
  std::string (*text)(const Scenario&) = nullptr;
  // Sets the field to the text. False, with nothing changed, where the field cannot hold the text. validate()
  // refuses a number that is out of range.
  bool (*set)(Scenario&, const std::string& text) = nullptr;
  // The value of a number, whole or fractional; null for other kinds.
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
// The field with a path such as "strategy.zero_stage"; null where there is none.
const AnyField* field_at(std::string_view path);

// The field of a member.
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
