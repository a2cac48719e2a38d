// Strict reading of JSON objects. A field that is not asked for is refused. Every error is a PresetError,
// whose message is one sentence that names the file and the field. Included by .cpp files only.
#pragma once
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/enum_names.h"
#include "sim/foreign_text.h"
#include "sim/preset_error.h"
#include "sim/units.h"

namespace sim {

using Json = nlohmann::ordered_json;  // files keep the order in which they are written

Json parse_json(std::string_view text, const std::string& file);

// A value as text for a message: cut after 40 bytes; "an array" or "an object" where it holds other values.
std::string shown(const Json& value);

// A suffix of keys that names a unit. Writers take the first suffix with which the value reads back exactly.
struct UnitSuffix {
  std::string_view suffix;
  double size;
};

class JsonObject {
 public:
  // `path` leads to the object inside the file: "", "hardware", "rows[3]".
  JsonObject(const Json& json, std::string file, std::string path = "");

  bool has(std::string_view key);
  bool has_value(std::string_view key);  // is there and not null

  // The value of a field, which must be there.
  const Json& at(std::string_view key);
  std::string text(std::string_view key);
  std::int64_t integer(std::string_view key);
  double number(std::string_view key);  // null is not-a-number: JSON has no word for a loss that overflowed
  bool boolean(std::string_view key);
  JsonObject object(std::string_view key);
  std::vector<JsonObject> objects(std::string_view key);  // of an array
  std::vector<std::string> texts(std::string_view key);
  std::vector<std::vector<std::string>> lists_of_texts(std::string_view key);

  // The same for a field that may be missing: `otherwise` is its value then.
  std::string text(std::string_view key, const std::string& otherwise);
  std::int64_t integer(std::string_view key, std::int64_t otherwise);
  int small_integer(std::string_view key, int otherwise);
  double number(std::string_view key, double otherwise);
  bool boolean(std::string_view key, bool otherwise);

  // An enumerator. `words` lists the legal words, for the message of an error.
  template <class Enum>
  Enum word(std::string_view key, std::string_view words) {
    const std::string found = text(key);
    if (const std::optional<Enum> value = from_name<Enum>(found)) return *value;
    fail(key, "must be one of " + std::string(words) + ", but is \"" + excerpt(found) + "\"");
  }
  template <class Enum>
  Enum word(std::string_view key) {
    std::string words;
    for (const std::string_view word : words_of<Enum>()) words.append(words.empty() ? "" : ", ").append(word);
    return word<Enum>(key, words);
  }

  // A quantity under the key `stem` + one of the suffixes, in base units; empty where there is none.
  std::optional<double> quantity(std::string_view stem, std::span<const UnitSuffix> suffixes);

  // Throws PresetError if the object has fields that were not asked for.
  void finish() const;

  [[noreturn]] void fail(std::string_view key, const std::string& what) const;
  const std::string& file() const { return file_; }
  std::string field(std::string_view key) const;  // with the path before it

 private:
  const Json& json_;
  std::string file_, path_;
  std::vector<std::string> asked_;
};

// Writes `value` under the first suffix that reads back exactly; the last one must have size 1.
void put_quantity(Json& json, std::string_view stem, double value, std::span<const UnitSuffix> suffixes);

// The candidates that are nearest to what was typed, best first; empty where none is near.
std::vector<std::string> nearest(std::string_view typed, const std::vector<std::string>& candidates);

namespace unit_suffixes {
inline constexpr std::array<UnitSuffix, 2> rate{{{"_tflops_dense", 1e12}, {"_flops_per_s_dense", 1}}};
inline constexpr std::array<UnitSuffix, 2> bandwidth{{{"_gb_per_s", 1e9}, {"_bytes_per_s", 1}}};
inline constexpr std::array<UnitSuffix, 3> memory{{{"_gib", kGiB}, {"_mib", kMiB}, {"_bytes", 1}}};
inline constexpr std::array<UnitSuffix, 2> short_time{{{"_us", 1e-6}, {"_seconds", 1}}};
}  // namespace unit_suffixes

}  // namespace sim
