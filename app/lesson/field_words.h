// How a lesson names fields of a scenario and their values, without the headings of Configure around them:
// "workload.kv_cache=false" is "KV cache no".
#pragma once
#include <string>
#include <string_view>

#include "app/lesson/situation.h"

namespace app::lesson {

// "workload.seq_len" is "seq len": close to what a lecturer writes, and readable.
std::string field_words(std::string_view path);
// The same with the field's unit, as an axis is named: "seq len, tokens".
std::string axis_words(std::string_view path);
// "65536" is "65,536", "true" is "yes".
std::string value_words(const std::string& value);
// "recompute full, seq len 65,536".
std::string change_words(const Changes& changes);

}  // namespace app::lesson
