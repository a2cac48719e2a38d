// Structs whose fields stand in one list, by which they are read from JSON and written to it:
//
//   void fields(auto& v, Like<DeviceSample> auto& s) {
//     v.needed("time_seconds", s.time.value);  // a file must give it
//     v("throttle", s.throttle);               // it may leave it out, which keeps the value
//   }
//
// Where files call fields as their members are called, the members stand alone:
//
//     named<&DeviceSample::throttle, &DeviceSample::clock>(v, s);
//
// Lists are in namespace sim, so that structs inside of structs are found. Included by .cpp files only.
#pragma once
#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "sim/enum_names.h"
#include "sim/format.h"
#include "sim/json_object.h"

namespace sim {

template <class T, class Struct>
concept Like = std::same_as<std::remove_const_t<T>, Struct>;  // to be read, or only written

// The legal range of a file's numbers. A number without a least may be null.
struct LegalNumbers {
  std::optional<double> least{};
  std::optional<int> least_small{};
  std::int64_t least_count = std::numeric_limits<std::int64_t>::min(),
               most_count = std::numeric_limits<std::int64_t>::max();
  std::string_view words{};      // for messages
  std::optional<double> most{};  // of plain numbers, no quantities
};
inline constexpr LegalNumbers kAnyNumbers{},
    kNotNegative{0, 0, 0, kAnyNumbers.most_count, "must be 0 or more"};

// Fields by their members' own names: each as v(key, x), v.needed(key, x) or v.unless_zero(key, x).
template <auto... members>
void named(auto& v, auto& x) {
  (v(enum_names::identifier<members>(), x.*members), ...);
}
template <auto... members>
void needed(auto& v, auto& x) {
  (v.needed(enum_names::identifier<members>(), x.*members), ...);
}
template <auto... members>
void unless_zero(auto& v, auto& x) {
  (v.unless_zero(enum_names::identifier<members>(), x.*members), ...);
}

class FieldReader {
 public:
  static constexpr bool kReads = true;
  FieldReader(JsonObject& object, const LegalNumbers& legal) : object_(object), legal_(legal) {}

  template <class T>
  void needed(std::string_view key, T& x) {
    object_.at(key);
    (*this)(key, x);
  }
  template <class T>
  void unless_zero(std::string_view key, T& x) {  // not written where it is 0 or empty
    (*this)(key, x);
  }
  // An enumerator that is one of these words.
  template <class Enum>
  requires std::is_enum_v<Enum>
  void one_of(std::string_view key, Enum& x, std::span<const std::string_view> words) {
    if (!object_.has(key)) return;
    const std::string text = object_.text(key);
    const std::optional<Enum> found = from_name<Enum>(text);
    if (!found || std::ranges::find(words, name(*found)) == words.end())
      object_.fail(key, "must be " + listed(words) + ", but is \"" + excerpt(text) + "\"");
    x = *found;
  }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void one_of(std::string_view key, std::optional<Enum>& x, std::span<const std::string_view> words) {
    if (object_.has(key)) x.reset();
    if (object_.has_value(key)) one_of(key, x.emplace(), words);
  }
  // `words` lists the legal words, for the message of an error.
  template <class Enum>
  void needed_word(std::string_view key, Enum& x, std::string_view words) {
    x = object_.word<Enum>(key, words);
  }
  // A condition on a field beyond its type. A writer does not check it: what it writes was legal.
  void require(bool holds, std::string_view key, const std::string& words) {
    if (!holds) object_.fail(key, words);
  }
  JsonObject object(std::string_view key) { return object_.object(key); }

  void operator()(std::string_view key, std::string& x) { x = object_.text(key, x); }
  void operator()(std::string_view key, bool& x) { x = object_.boolean(key, x); }
  void operator()(std::string_view key, int& x) {
    x = object_.small_integer(key, x);
    if (legal_.least_small && x < *legal_.least_small) object_.fail(key, std::string(legal_.words));
  }
  void operator()(std::string_view key, std::int64_t& x) {
    x = object_.integer(key, x);
    if (x < legal_.least_count || x > legal_.most_count)
      object_.fail(key, std::string(legal_.words) + ", but is " + std::to_string(x));
  }
  void operator()(std::string_view key, std::uint64_t& x) {
    if (!object_.has(key)) return;
    const Json& value = object_.at(key);
    if (!value.is_number_unsigned()) object_.fail(key, "must be a whole number from 0 to 2^64 - 1");
    x = value.get<std::uint64_t>();
  }
  void operator()(std::string_view key, double& x) {
    x = object_.number(key, x);
    if (legal_.least && !(x >= *legal_.least)) object_.fail(key, std::string(legal_.words));
    if (legal_.most && !(x <= *legal_.most))
      object_.fail(key, "must be at most " + format_count(std::llround(*legal_.most)));
  }
  void operator()(std::string_view key, Bytes& x) {
    const auto given = object_.quantity(key, unit_suffixes::memory);
    // Doubles hold whole numbers up to 2^53, which is 8 PiB.
    if (given && !(std::fabs(*given) <= 0x1p53)) object_.fail(key, "must be less than 8 PiB");
    if (given) x = {std::llround(*given)};
  }
  void operator()(std::string_view key, BytesPerSecond& x) {
    if (const auto given = object_.quantity(key, unit_suffixes::bandwidth)) x = {*given};
  }
  void operator()(std::string_view key, Seconds& x) {
    if (const auto given = object_.quantity(key, unit_suffixes::short_time)) x = {*given};
    if (legal_.least && !(x.value >= *legal_.least)) object_.fail(key, std::string(legal_.words));
  }
  void operator()(std::string_view key, std::vector<std::int64_t>& x) {
    if (!object_.has(key)) return;
    x.clear();
    for (const Json& value : object_.at(key)) {
      const bool more = value.is_number_integer() && value.get<std::int64_t>() > (x.empty() ? 0 : x.back());
      if (!more) object_.fail(key, "must be whole numbers above 0, increasing");
      x.push_back(value.get<std::int64_t>());
    }
  }
  void operator()(std::string_view key, std::vector<std::string>& x) {
    if (object_.has(key)) x = object_.texts(key);
  }
  template <class Value>
  void operator()(std::string_view key, std::map<std::string, Value>& x) {
    if (!object_.has(key)) return;
    JsonObject all = object_.object(key);
    FieldReader values(all, legal_);
    for (const auto& item : object_.at(key).items()) values(item.key(), x[item.key()]);
  }
  template <class Struct>
  void operator()(std::string_view key, std::vector<Struct>& x) {
    if (!object_.has(key)) return;
    x.clear();
    for (JsonObject& object : object_.objects(key)) {
      FieldReader reader(object, legal_);
      fields(reader, x.emplace_back());
      object.finish();
    }
  }
  template <class Struct>
  void operator()(std::string_view key, std::optional<Struct>& x) {
    if (object_.has_value(key)) (*this)(key, x.emplace());
  }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(std::string_view key, Enum& x) {
    if (object_.has(key)) x = object_.word<Enum>(key);
  }
  template <class Struct>
  void operator()(std::string_view key, Struct& x) {
    if (!object_.has(key)) return;
    JsonObject object = object_.object(key);
    FieldReader reader(object, legal_);
    fields(reader, x);
    object.text("source", "");
    object.finish();
  }

 private:
  JsonObject& object_;
  const LegalNumbers& legal_;
};

class FieldWriter {
 public:
  static constexpr bool kReads = false;
  explicit FieldWriter(Json& json) : json_(json) {}

  template <class T>
  void needed(std::string_view key, const T& x) {
    (*this)(key, x);
  }
  template <class T>
  void unless_zero(std::string_view key, const T& x) {
    if (x != T{}) (*this)(key, x);
  }
  template <class T>
  requires std::is_enum_v<T>
  void one_of(std::string_view key, const T& x, std::span<const std::string_view>) { (*this)(key, x); }
  template <class T>
  requires std::is_enum_v<T>
  void one_of(std::string_view key, const std::optional<T>& x, std::span<const std::string_view>) {
    (*this)(key, x);
  }
  template <class T>
  void needed_word(std::string_view key, const T& x, std::string_view) {
    (*this)(key, x);
  }
  void require(bool, const char*, const std::string&) {}
  void object(std::string_view key, Json json) { json_[key] = std::move(json); }

  void operator()(std::string_view key, Bytes x) {
    put_quantity(json_, key, static_cast<double>(x.value), unit_suffixes::memory);
  }
  void operator()(std::string_view key, BytesPerSecond x) {
    put_quantity(json_, key, x.value, unit_suffixes::bandwidth);
  }
  void operator()(std::string_view key, Seconds x) {
    put_quantity(json_, key, x.value, unit_suffixes::short_time);
  }
  void operator()(std::string_view key, const std::vector<std::int64_t>& x) { json_[key] = x; }
  void operator()(std::string_view key, const std::vector<std::string>& x) { json_[key] = x; }
  template <class Value>
  void operator()(std::string_view key, const std::map<std::string, Value>& x) {
    json_[key] = Json(x);
  }
  template <class Struct>
  void operator()(std::string_view key, const std::vector<Struct>& x) {
    json_[key] = Json::array();
    for (const Struct& element : x) json_[key].push_back(object_of(element));
  }
  template <class Struct>
  void operator()(std::string_view key, const std::optional<Struct>& x) {
    if (x) (*this)(key, *x);
  }
  template <class T>
  void operator()(std::string_view key, const T& x) {
    if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>)
      json_[key] = x;
    else if constexpr (std::is_enum_v<T>)
      json_[key] = name(x);
    else
      json_[key] = object_of(x);
  }

  template <class Struct>
  static Json object_of(const Struct& x) {
    Json json = Json::object();
    FieldWriter writer(json);
    fields(writer, x);
    return json;
  }

 private:
  Json& json_;
};

// For the few fields whose reading differs from their writing: if constexpr (reads<decltype(v)>).
template <class FieldVisitor>
inline constexpr bool reads = std::remove_cvref_t<FieldVisitor>::kReads;

// Reads a struct from an object that may have other fields besides.
template <class Struct>
Struct struct_from(JsonObject& object, const LegalNumbers& legal) {
  Struct x{};
  FieldReader reader(object, legal);
  fields(reader, x);
  return x;
}

// Reads a struct from the text of a whole file.
template <class Struct>
Struct struct_from_text(std::string_view text, const std::string& file, const LegalNumbers& legal) {
  const Json json = parse_json(text, file);
  JsonObject object(json, file);
  const Struct x = struct_from<Struct>(object, legal);
  object.finish();
  return x;
}

}  // namespace sim
