// A router's choice by its definition, in double, and the routers of published models.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/route.h"

namespace test {

using kernels::RouteSettings;
using kernels::RouteShape;

struct Routed {
  std::vector<double> weights;
  std::vector<std::int32_t> indices;
};

// One row, by the definition: chosen by repeatedly taking the best that is left.
inline Routed route_row(const std::vector<double>& logits, const std::vector<double>& bias, RouteShape s,
                        RouteSettings settings) {
  const auto E = static_cast<std::size_t>(s.E);
  std::vector<double> scores(E), ranks;
  double sum = 0;
  for (std::size_t e = 0; e < E; ++e) {
    scores[e] = settings.sigmoid ? 1 / (1 + std::exp(-logits[e]))
                                 : std::exp(logits[e] + (bias.empty() ? 0 : bias[e]));
    sum += scores[e];
  }
  if (!settings.sigmoid)
    for (double& score : scores) score /= sum;
  ranks = scores;
  if (settings.sigmoid && !bias.empty())
    for (std::size_t e = 0; e < E; ++e) ranks[e] += bias[e];
  const auto size = static_cast<std::size_t>(s.E / s.groups);
  std::vector<double> of_group;
  for (std::size_t g = 0; g < static_cast<std::size_t>(s.groups); ++g) {
    std::vector<double> in(ranks.begin() + static_cast<std::ptrdiff_t>(g * size),
                           ranks.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::sort(in.begin(), in.end(), std::greater<>());
    of_group.push_back(in[0] + (settings.sigmoid && size > 1 ? in[1] : 0));
  }
  for (std::size_t e = 0; e < E; ++e) {
    const auto better = std::count_if(of_group.begin(), of_group.end(),
                                      [&](double other) { return other > of_group[e / size]; });
    if (better >= s.chosen_groups) ranks[e] = -INFINITY;
  }
  Routed r;
  double chosen_sum = 0;
  for (std::int64_t k = 0; k < s.K; ++k) {
    const auto best = std::max_element(ranks.begin(), ranks.end()) - ranks.begin();
    ranks[static_cast<std::size_t>(best)] = -INFINITY;
    r.indices.push_back(static_cast<std::int32_t>(best));
    r.weights.push_back(scores[static_cast<std::size_t>(best)]);
    chosen_sum += r.weights.back();
  }
  for (double& w : r.weights) w *= settings.scale / (settings.normalised ? chosen_sum : 1);
  return r;
}

struct RouteCase {
  RouteShape shape;
  RouteSettings settings;
  bool bias;
};
inline const std::vector<RouteCase> kRouteCases = {
    {{7, 8, 2}, {}, false},                                        // Mixtral
    {{5, 6, 3}, {.normalised = false}, false},                     // Qwen1.5-MoE
    {{4, 8, 8}, {}, false},                                        // all of them
    {{9, 6, 2}, {}, true},                                         // gpt-oss
    {{6, 12, 3, 4, 2}, {.normalised = false, .scale = 2}, false},  // DeepSeek-V2
    {{8, 12, 4, 3, 2}, {.sigmoid = true, .scale = 2.5f}, true},    // DeepSeek-V3
    {{3, 5, 1}, {.sigmoid = true, .normalised = false}, false},    // Llama 4
    {{300, 16, 4}, {}, false},
};

}  // namespace test
