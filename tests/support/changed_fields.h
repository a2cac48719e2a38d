// Which fields two scenarios differ in.
#pragma once
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "sim/scenario/scenario.h"

namespace test {

// As validate() calls them: "strategy.tensor_parallel".
inline std::set<std::string> changed_fields(const sim::Scenario& a, const sim::Scenario& b) {
  std::set<std::string> fields;
  for (const auto& step :
       nlohmann::json::diff(nlohmann::json::parse(sim::to_json(a)), nlohmann::json::parse(sim::to_json(b)))) {
    std::string path = step.at("path").get<std::string>().substr(1);
    std::replace(path.begin(), path.end(), '/', '.');
    fields.insert(path);
  }
  return fields;
}

}  // namespace test
