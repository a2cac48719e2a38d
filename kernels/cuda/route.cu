// A warp routes a row. Its scores lie in shared memory; the experts of a lane are a warp's width apart. The
// whole warp finds the best expert K times.
#include <limits>

#include "kernels/cuda/norm.h"
#include "kernels/cuda/route.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct Sizes {
  int R, E, K, groups, chosen_groups;
  bool sigmoid, normalised;
  float scale;
};
Sizes sizes_of(RouteShape s, const RouteSettings& settings) {
  return {static_cast<int>(s.R),
          static_cast<int>(s.E),
          static_cast<int>(s.K),
          static_cast<int>(s.groups),
          static_cast<int>(s.chosen_groups),
          settings.sigmoid,
          settings.normalised,
          settings.scale};
}

// Each lane writes the scores of its own experts.
template <class T>
CUDA_DEVICE void scores_of_row(float* scores, const float* logits, const T* bias, const Sizes& s) {
  if (s.sigmoid) {
    for (int e = lane_index(); e < s.E; e += kWarp) scores[e] = 1 / (1 + expf(-logits[e]));
    return;
  }
  float highest = kMinusInfinity;
  for (int e = lane_index(); e < s.E; e += kWarp) {
    scores[e] = logits[e] + (bias != nullptr ? to_float(bias[e]) : 0.0f);
    highest = fmaxf(highest, scores[e]);
  }
  highest = warp_max(highest);
  float sum = 0;
  for (int e = lane_index(); e < s.E; e += kWarp) sum += scores[e] = expf(scores[e] - highest);
  sum = warp_sum(sum);
  for (int e = lane_index(); e < s.E; e += kWarp) scores[e] /= sum;
}

// The place of the highest of `count` values, known to all lanes; ties go to the lowest place. Values already
// taken are minus infinity; where nothing else is left (NaN), the place is the first.
CUDA_DEVICE int best_place(const float* values, int count) {
  float best = kMinusInfinity;
  int place = count;
  for (int i = lane_index(); i < count; i += kWarp)
    if (values[i] > best) {
      best = values[i];
      place = i;
    }
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const float other = shuffle_xor(best, distance);
    const int other_place = shuffle_xor(place, distance);
    if (other > best || (other == best && other_place < place)) {
      best = other;
      place = other_place;
    }
  }
  return place < count ? place : 0;
}

// Experts outside of the best groups get minus infinity. of_group: room for at least `groups` values.
CUDA_DEVICE void keep_best_groups(float* ranks, float* of_group, const Sizes& s) {
  const int size = s.E / s.groups;
  for (int g = lane_index(); g < s.groups; g += kWarp) {
    float first = kMinusInfinity, second = kMinusInfinity;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      second = fmaxf(second, fminf(first, ranks[e]));
      first = fmaxf(first, ranks[e]);
    }
    of_group[g] = s.sigmoid && size > 1 ? first + second : first;
  }
  sync_warp();
  for (int i = 0; i < s.chosen_groups; ++i) {
    const int best = best_place(of_group, s.groups);
    sync_warp();
    if (lane_index() == best % kWarp) of_group[best] = kMinusInfinity;  // the lane that looks at it
    sync_warp();
  }
  // Groups that were not taken hide their experts.
  for (int e = lane_index(); e < s.E; e += kWarp)
    if (of_group[e / size] > kMinusInfinity) ranks[e] = kMinusInfinity;
  sync_warp();
}

// Shared memory: for each warp (E) scores, (E) ranks, (E) of groups.
template <class T>
CUDA_KERNEL(kThreads)
route_kernel(float* weights, std::int32_t* indices, const float* logits, const T* bias, Sizes s) {
  const int row = block_index().x * kWarps + warp_index();
  if (row >= s.R) return;
  float* const scores = shared_memory<float>() + warp_index() * 3 * s.E;
  float* const ranks = scores + s.E;
  scores_of_row(scores, logits + static_cast<std::int64_t>(row) * s.E, bias, s);
  for (int e = lane_index(); e < s.E; e += kWarp)
    ranks[e] = scores[e] + (s.sigmoid && bias != nullptr ? to_float(bias[e]) : 0.0f);
  sync_warp();
  if (s.groups > s.chosen_groups) keep_best_groups(ranks, ranks + s.E, s);
  const std::int64_t first = static_cast<std::int64_t>(row) * s.K;
  float sum = 0;
  for (int k = 0; k < s.K; ++k) {
    const int best = best_place(ranks, s.E);
    if (lane_index() == best % kWarp) ranks[best] = kMinusInfinity;  // the lane that looks at it
    if (lane_index() == 0) indices[first + k] = best;
    sum += scores[best];
  }
  const float by = s.scale / (s.normalised ? sum : 1.0f);
  sync_warp();
  for (int k = lane_index(); k < s.K; k += kWarp) weights[first + k] = by * scores[indices[first + k]];
}

// Shared memory: (E) scores for each warp.
template <class T>
CUDA_KERNEL(kThreads)
route_backward_kernel(float* dlogits, const float* dweights, const std::int32_t* indices, const float* logits,
                      const T* bias, Sizes s) {
  const int row = block_index().x * kWarps + warp_index();
  if (row >= s.R) return;
  float* const scores = shared_memory<float>() + warp_index() * s.E;
  const std::int64_t first = static_cast<std::int64_t>(row) * s.E;
  scores_of_row(scores, logits + first, bias, s);
  sync_warp();
  const std::int32_t* const chosen = indices + static_cast<std::int64_t>(row) * s.K;
  const float* const upward = dweights + static_cast<std::int64_t>(row) * s.K;
  // All lanes add up the few chosen experts in the same order.
  float sum = 1, common = 0, projection = 0;
  if (s.normalised) {
    sum = 0;
    for (int k = 0; k < s.K; ++k) sum += scores[chosen[k]];
    for (int k = 0; k < s.K; ++k) common += upward[k] * scores[chosen[k]] / sum;
  }
  const float by = s.scale / sum;
  for (int k = 0; k < s.K; ++k) projection += by * (upward[k] - common) * scores[chosen[k]];
  for (int e = lane_index(); e < s.E; e += kWarp) {
    float gradient = 0;
    for (int k = 0; k < s.K; ++k)
      if (chosen[k] == e) gradient = by * (upward[k] - common);
    const float score = scores[e];
    dlogits[first + e] = score * (s.sigmoid ? gradient * (1 - score) : gradient - projection);
  }
}

template <class Body>
void with_bias_type(ConstTensor bias, const Body& body) {
  with_type(bias ? bias.type : Type::f32, body);
}

Launch warp_a_row(RouteShape s, std::int64_t floats_each) {
  if (s.E > kMostRoutedExperts) throw CudaError("a router chooses among at most 1024 experts on a GPU");
  return {.grid = {static_cast<int>(ceil_div(s.R, kWarps)), 1, 1},
          .threads = kThreads,
          .shared_bytes = static_cast<std::size_t>(kWarps * floats_each * s.E) * sizeof(float)};
}

}  // namespace

void route_forward(const Context& context, float* weights, std::int32_t* indices, const float* logits,
                   ConstTensor bias, RouteShape s, const RouteSettings& settings) {
  with_bias_type(bias, [&]<class T>(T) {
    start(context, warp_a_row(s, 3), route_kernel<T>, weights, indices, logits, bias.as<T>(),
          sizes_of(s, settings));
  });
}

void route_backward(const Context& context, float* dlogits, Tensor dbias, const float* dweights,
                    const std::int32_t* indices, const float* logits, ConstTensor bias, RouteShape s,
                    const RouteSettings& settings) {
  with_bias_type(bias, [&]<class T>(T) {
    start(context, warp_a_row(s, 1), route_backward_kernel<T>, dlogits, dweights, indices, logits,
          bias.as<T>(), sizes_of(s, settings));
  });
  if (!settings.sigmoid && bias && dbias)
    add_column_sums(context, dbias, {dlogits, Type::f32}, nullptr, s.R, s.E);
}

}  // namespace kernels::cuda
