#include "sim/planner/search_json.h"

#include <stdexcept>
#include <utility>

#include "sim/json_object.h"
#include "sim/planner/searched_fields.h"
#include "sim/scenario/listed_fields.h"
#include "sim/scenario/preset.h"

namespace sim {
namespace {

struct NoWholeNumber : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Only whole numbers in range convert: a fraction would be cut, and a number out of range has no value.
template <class Integer>
Integer whole(const Json& value) {
  const bool fits = value.is_number_unsigned()  ? std::in_range<Integer>(value.get<std::uint64_t>())
                    : value.is_number_integer() ? std::in_range<Integer>(value.get<std::int64_t>())
                                                : false;
  if (!fits) throw NoWholeNumber("a whole number of its size must stand where " + shown(value) + " is");
  return value.get<Integer>();
}

// The columns of a candidate's row: results hold hundreds of them.
void for_each_column(Like<Candidate> auto& c, auto visit) {
  visit(c.index);
  visit(c.devices);
  visit(c.step.value);
  visit(c.memory.value);
  visit(c.tokens_per_second);
  visit(c.usd_per_million_tokens);
  visit(c.kwh_per_million_tokens);
  visit(c.refused_by);
}

void for_each_column(Like<ServingCandidate> auto& c, auto visit) {
  visit(c.index);
  visit(c.devices);
  visit(c.ttft.value);
  visit(c.tpot.value);
  visit(c.memory.value);
  visit(c.tokens_per_second);
  visit(c.usd_per_million_tokens);
  visit(c.kwh_per_million_tokens);
}

template <class Any>
Json row_of(const Any& c) {
  Json row = Json::array();
  for_each_column(c, [&](const auto& x) { row.push_back(x); });
  return row;
}

template <class Any>
Json rows_of(const std::vector<Any>& candidates) {
  Json rows = Json::array();
  for (const Any& c : candidates) rows.push_back(row_of(c));
  return rows;
}

template <class Any>
Json row_if_any(const std::optional<Any>& c) {
  return c ? row_of(*c) : Json();
}

template <class Any>
void read(const Json& row, Any& c) {
  std::size_t column = 0;
  for_each_column(c, [&]<class T>(T& x) {
    const Json& value = row.at(column++);
    if constexpr (std::is_integral_v<T>)
      x = whole<T>(value);
    else
      x = value.get<T>();
  });
}

template <class Any>
void read(const Json& rows, std::vector<Any>& candidates) {
  for (const Json& row : rows) read(row, candidates.emplace_back());
}

template <class Any>
void read(const Json& row, std::optional<Any>& c) {
  if (!row.is_null()) read(row, c.emplace());
}

// What results of both kinds of searches count.
void for_each_count(auto& r, auto visit) {
  visit("looked_at", r.looked_at);
  visit("legal", r.legal);
  visit("evaluated", r.evaluated);
  visit("fitting", r.fitting);
}

template <class Result>
void put_counts(Json& json, const Result& r) {
  for_each_count(r, [&](const char* key, std::int64_t count) { json[key] = count; });
  json["refused"] = r.refused;
  for (const auto& best : r.best) json["best"].push_back(rows_of(best));
  json["front"] = rows_of(r.front);
  json["smallest"] = row_if_any(r.smallest);
}

template <class Result>
void read_counts(const Json& json, Result& r) {
  for_each_count(r, [&](const char* key, std::int64_t& count) { count = whole<std::int64_t>(json.at(key)); });
  r.refused.clear();
  for (const auto& [field, count] : json.at("refused").get_ref<const Json::object_t&>())
    r.refused[field] = whole<std::int64_t>(count);
  for (std::size_t o = 0; o < r.best.size(); ++o) read(json.at("best").at(o), r.best[o]);
  read(json.at("front"), r.front);
  read(json.at("smallest"), r.smallest);
}

template <class Read>
auto reading(std::string_view text, const std::string& file, Read from) {
  const Json json = parse_json(text, file);
  try {
    return from(json);
  } catch (const NoWholeNumber& error) {
    throw PresetError(file + " is no result of a search: " + error.what());
  } catch (const Json::exception& error) {
    // "[json.exception.type_error.302] type must be ..."
    const std::string_view said = error.what();
    throw PresetError(file + " is no result of a search: " +
                      std::string(said.substr(std::min(said.find("] ") + 2, said.size()))));
  }
}

template <class Value>
Json value_of(const Value& value) {
  if constexpr (std::is_same_v<Value, RecomputeChoice>)
    return {name(value.recompute), value.interval};
  else if constexpr (std::is_same_v<Value, std::optional<DType>>)
    return value ? Json(name(*value)) : Json();
  else if constexpr (std::is_enum_v<Value>)
    return name(value);
  else
    return value;
}

template <class Value>
Json list_of(const std::vector<Value>& values) {
  Json list = Json::array();
  for (const auto& value : values) list.push_back(value_of<Value>(value));
  return list;
}

template <class Limit>
Json number_if_any(const std::optional<Limit>& limit) {
  if (!limit) return {};
  if constexpr (std::is_same_v<Limit, Seconds>)
    return limit->value;
  else
    return *limit;
}

// Writes the constraints that both kinds of searches have.
template <class Limits>
void put_constraints(Json& json, const Limits& limits) {
  json["memory_share"] = limits.memory_share;
  json["memory_reserved_bytes"] = limits.memory_reserved.value;
  json["least_tokens_per_second"] = number_if_any(limits.least_tokens_per_second);
  json["most_usd_per_million_tokens"] = number_if_any(limits.most_usd_per_million_tokens);
  json["most_kwh_per_million_tokens"] = number_if_any(limits.most_kwh_per_million_tokens);
}

void put_tariff(Json& json, const Tariff& tariff) {
  json["usd_per_device_hour"] = tariff.usd_per_device_hour;
  json["watts_per_device"] = tariff.watts_per_device;
}

}  // namespace

std::string description(const SearchSpace& space, const Constraints& constraints, const Tariff& tariff) {
  Json json;
  json["base"] = parse_json(to_json(space.base), "the base");
  for_each_searched(space, [&](auto member, const auto& values) {
    json[std::string(name_of_searched(member))] = list_of(values);
  });
  put_constraints(json, constraints);
  json["slowest_step_seconds"] = number_if_any(constraints.slowest_step);
  put_tariff(json, tariff);
  return json.dump();
}

std::string description(const ServingSpace& space, const std::optional<ServingTraffic>& traffic,
                        const ServingConstraints& constraints, const Tariff& tariff) {
  Json json;
  json["base"] = parse_json(to_json(space.base), "the base");
  for_each_serving_field(space, [&](auto field, const auto& values) {
    json[std::string(name_of_searched(field))] = list_of(values);
  });
  if (traffic) json["traffic"] = {traffic->requests_per_second, traffic->duration.value, traffic->seed};
  put_constraints(json, constraints);
  json["most_ttft_seconds"] = number_if_any(constraints.most_ttft);
  json["most_tpot_seconds"] = number_if_any(constraints.most_tpot);
  put_tariff(json, tariff);
  return json.dump();
}

std::string to_json(const SearchResult& r) {
  Json json;
  json["begin"] = r.begin;
  json["end"] = r.end;
  put_counts(json, r);
  json["points"] = rows_of(r.points);
  json["fastest"] = row_if_any(r.fastest);
  json["seconds"] = r.seconds;
  return json.dump();
}

std::string to_json(const ServingResult& r) {
  Json json;
  put_counts(json, r);
  return json.dump();
}

SearchResult search_result_from_json(std::string_view text, const std::string& file) {
  return reading(text, file, [](const Json& json) {
    SearchResult r;
    r.begin = whole<std::int64_t>(json.at("begin"));
    r.end = whole<std::int64_t>(json.at("end"));
    read_counts(json, r);
    read(json.at("points"), r.points);
    read(json.at("fastest"), r.fastest);
    r.seconds = json.at("seconds").get<double>();
    return r;
  });
}

ServingResult serving_result_from_json(std::string_view text, const std::string& file) {
  return reading(text, file, [](const Json& json) {
    ServingResult r;
    read_counts(json, r);
    return r;
  });
}

}  // namespace sim
