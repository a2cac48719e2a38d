// Fields of a part of a scenario to and from JSON, as its table lists them. Included by .cpp files only.
#pragma once
#include "sim/scenario/fields.h"
#include "sim/scenario/listed_fields.h"

namespace sim {

// Visits the fields of a part as a list of fields does (listed_fields.h).
void table_fields(auto& v, auto& part) {
  for_each_field<std::remove_cvref_t<decltype(part)>>([&](const auto& row) {
    auto& value = part.*row.member;
    if constexpr (requires { v.one_of(row.name, value, row.words); })
      return v.one_of(row.name, value, row.words);
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::int64_t>)
      if (row.unit == FieldUnit::bytes) {
        Bytes bytes{value};
        v(row.name, bytes);
        if constexpr (reads<decltype(v)>) value = bytes.value;
        return;
      }
    v(row.name, value);
  });
}

}  // namespace sim
