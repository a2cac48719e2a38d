#include "kernels/route.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/row_chunks.h"

namespace kernels::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

void scores_of_row(float* scores, const float* logits, const float* bias, const RouteShape& s, bool sigmoid) {
  if (sigmoid) {
    for (std::int64_t e = 0; e < s.E; ++e) scores[e] = 1.0f / (1.0f + std::exp(-logits[e]));
    return;
  }
  for (std::int64_t e = 0; e < s.E; ++e) scores[e] = logits[e] + (bias ? bias[e] : 0.0f);
  const float highest = *std::max_element(scores, scores + s.E);
  float sum = 0;
  for (std::int64_t e = 0; e < s.E; ++e) sum += scores[e] = std::exp(scores[e] - highest);
  for (std::int64_t e = 0; e < s.E; ++e) scores[e] /= sum;
}

// The `count` places of highest value, best first; ties to the lower place.
void best_places(std::int32_t* places, const float* values, std::int64_t of, std::int64_t count,
                 std::vector<std::int32_t>& order) {
  order.resize(static_cast<std::size_t>(of));
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [values](std::int32_t a, std::int32_t b) {
                      return values[a] > values[b] || (values[a] == values[b] && a < b);
                    });
  std::copy_n(order.begin(), count, places);
}

// Experts outside of the best groups cannot be chosen.
void keep_best_groups(float* ranks, const RouteShape& s, bool sigmoid, std::vector<std::int32_t>& order) {
  const std::int64_t size = s.E / s.groups;
  std::vector<float> of_group(static_cast<std::size_t>(s.groups));
  for (std::int64_t g = 0; g < s.groups; ++g) {
    float first = kMinusInfinity, second = kMinusInfinity;
    for (std::int64_t e = g * size; e < (g + 1) * size; ++e) {
      if (ranks[e] > first)
        second = std::exchange(first, ranks[e]);
      else
        second = std::max(second, ranks[e]);
    }
    of_group[static_cast<std::size_t>(g)] = sigmoid && size > 1 ? first + second : first;
  }
  std::vector<std::int32_t> kept(static_cast<std::size_t>(s.chosen_groups));
  best_places(kept.data(), of_group.data(), s.groups, s.chosen_groups, order);
  for (std::int64_t g = 0; g < s.groups; ++g)
    if (std::find(kept.begin(), kept.end(), static_cast<std::int32_t>(g)) == kept.end())
      std::fill_n(ranks + g * size, size, kMinusInfinity);
}

// What the scores of the chosen are divided by.
float divisor(const float* scores, const std::int32_t* chosen, const RouteShape& s, bool normalised) {
  if (!normalised) return 1;
  float sum = 0;
  for (std::int64_t k = 0; k < s.K; ++k) sum += scores[chosen[k]];
  return sum;
}

}  // namespace

void route_forward(float* weights, std::int32_t* indices, const float* logits, const float* bias,
                   RouteShape s, const RouteSettings& settings) {
  parallel_ranges(s.R, 8 * s.E, [=](std::int64_t begin, std::int64_t end) {
    std::vector<float> scores(static_cast<std::size_t>(s.E)), ranks(scores.size());
    std::vector<std::int32_t> order;
    for (std::int64_t r = begin; r < end; ++r) {
      scores_of_row(scores.data(), logits + r * s.E, bias, s, settings.sigmoid);
      ranks = scores;
      if (settings.sigmoid && bias)
        for (std::int64_t e = 0; e < s.E; ++e) ranks[static_cast<std::size_t>(e)] += bias[e];
      if (s.groups > s.chosen_groups) keep_best_groups(ranks.data(), s, settings.sigmoid, order);
      std::int32_t* const chosen = indices + r * s.K;
      best_places(chosen, ranks.data(), s.E, s.K, order);
      const float by = settings.scale / divisor(scores.data(), chosen, s, settings.normalised);
      for (std::int64_t k = 0; k < s.K; ++k)
        weights[r * s.K + k] = by * scores[static_cast<std::size_t>(chosen[k])];
    }
  });
}

void route_backward(float* dlogits, float* dbias, const float* dweights, const std::int32_t* indices,
                    const float* logits, const float* bias, RouteShape s, const RouteSettings& settings) {
  parallel_ranges(s.R, 8 * s.E, [=](std::int64_t begin, std::int64_t end) {
    std::vector<float> scores(static_cast<std::size_t>(s.E));
    for (std::int64_t r = begin; r < end; ++r) {
      scores_of_row(scores.data(), logits + r * s.E, bias, s, settings.sigmoid);
      const std::int32_t* const chosen = indices + r * s.K;
      const float* const upward = dweights + r * s.K;
      float* const gradient = dlogits + r * s.E;
      const float sum = divisor(scores.data(), chosen, s, settings.normalised), by = settings.scale / sum;
      // The weights' common divisor takes from each what all of them gain together.
      float common = 0;
      if (settings.normalised)
        for (std::int64_t k = 0; k < s.K; ++k)
          common += upward[k] * scores[static_cast<std::size_t>(chosen[k])] / sum;
      std::fill_n(gradient, s.E, 0.0f);
      float projection = 0;
      for (std::int64_t k = 0; k < s.K; ++k) {
        gradient[chosen[k]] = by * (upward[k] - common);
        projection += gradient[chosen[k]] * scores[static_cast<std::size_t>(chosen[k])];
      }
      for (std::int64_t e = 0; e < s.E; ++e) {
        const float score = scores[static_cast<std::size_t>(e)];
        gradient[e] = score * (settings.sigmoid ? gradient[e] * (1.0f - score) : gradient[e] - projection);
      }
    }
  });
  if (settings.sigmoid || !bias || !dbias) return;
  sum_over_row_chunks(
      s.R, s.E,
      [=](float* partial, std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r)
          for (std::int64_t e = 0; e < s.E; ++e) partial[e] += dlogits[r * s.E + e];
      },
      [=](const float* partial) {
        for (std::int64_t e = 0; e < s.E; ++e) dbias[e] += partial[e];
      });
}

}  // namespace kernels::cpu
