// Fields of a part of a scenario to and from JSON, as its table lists them. Included by .cpp files only.
#pragma once
#include <algorithm>
#include <cmath>

#include "sim/json_object.h"
#include "sim/scenario/fields.h"

namespace sim {

// Reads one field; what is not there keeps its value.
template <class Row, class T>
void read_field(JsonObject& object, const Row& row, T& value) {
  const std::string_view key = row.name;
  if constexpr (std::is_same_v<T, bool>) {
    value = object.boolean(key, value);
  } else if constexpr (std::is_integral_v<T>) {
    if (row.unit == FieldUnit::bytes) {
      const auto bytes = object.quantity(key, unit_suffixes::memory);
      if (bytes && !(std::fabs(*bytes) <= static_cast<double>(kMostBucketBytes)))
        object.fail(key, "must be less than 8 PiB");
      if (bytes) value = static_cast<T>(std::llround(*bytes));
    } else if constexpr (sizeof(T) == sizeof(int)) {
      value = object.small_integer(key, value);
    } else {
      value = object.integer(key, value);
    }
  } else if constexpr (std::is_floating_point_v<T>) {
    value = object.number(key, value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = object.text(key, value);
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    if (object.has(key)) value = object.texts(key);
  } else if constexpr (requires { value.reset(); }) {
    if (object.has(key)) value.reset();
    if (object.has_value(key)) read_field(object, row, value.emplace());
  } else if (object.has(key)) {
    const std::string text = object.text(key);
    const auto words = row.words();
    const std::optional<T> found = from_name<T>(text);
    if (!found || std::ranges::find(words, name(*found)) == words.end())
      object.fail(key, "must be " + listed(words) + ", but is \"" + excerpt(text) + "\"");
    value = *found;
  }
}

template <class Row, class T>
void write_field(Json& json, const Row& row, const T& value) {
  if constexpr (requires { value.has_value(); }) {
    if (value) write_field(json, row, *value);
  } else if constexpr (std::is_enum_v<T>) {
    json[std::string(row.name)] = name(value);
  } else if constexpr (std::is_integral_v<T>) {
    if (row.unit == FieldUnit::bytes)
      put_quantity(json, row.name, static_cast<double>(value), unit_suffixes::memory);
    else
      json[std::string(row.name)] = value;
  } else {
    json[std::string(row.name)] = value;
  }
}

template <class Part>
void read_fields(JsonObject& object, Part& part) {
  for_each_field<Part>([&](const auto& row) { read_field(object, row, part.*row.member); });
}
template <class Part>
void write_fields(Json& json, const Part& part) {
  for_each_field<Part>([&](const auto& row) { write_field(json, row, part.*row.member); });
}

}  // namespace sim
