// Spaces and results of searches as JSON, for journals and for processes that divide a search: numbers read
// back as the same bits.
#pragma once
#include <string>
#include <string_view>

#include "sim/planner/search.h"
#include "sim/planner/serving_search.h"

namespace sim {

// Everything that decides what a search finds in a range: two searches of the same text find the same.
std::string description(const SearchSpace& space, const Constraints& constraints, const Tariff& tariff);

std::string description(const ServingSpace& space, const std::optional<ServingTraffic>& traffic,
                        const ServingConstraints& constraints, const Tariff& tariff);

std::string to_json(const SearchResult& result);
std::string to_json(const ServingResult& result);
// Throws PresetError naming `file`.
SearchResult search_result_from_json(std::string_view json, const std::string& file);
ServingResult serving_result_from_json(std::string_view json, const std::string& file);

}  // namespace sim
