#include "kernels/permute.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

constexpr std::int64_t kDropped = -1;

struct ExpertPlaces {
  std::vector<std::int64_t> of_choice;  // its row among those ordered by expert, or kDropped
  std::vector<std::int64_t> end;        // of the rows that each expert has
};

ExpertPlaces places_by_expert(const std::int32_t* indices, const PermuteShape& s) {
  const std::int64_t count = s.R * s.K;
  std::vector<std::int64_t> first(static_cast<std::size_t>(s.E + 1));
  if (s.places == 0)
    first = expert_offsets(indices, count, s.E);
  else
    for (std::size_t e = 0; e < first.size(); ++e) first[e] = static_cast<std::int64_t>(e) * s.places;
  ExpertPlaces places{std::vector<std::int64_t>(static_cast<std::size_t>(count), kDropped), first};
  for (std::int64_t i = 0; i < count; ++i) {
    const auto e = static_cast<std::size_t>(indices[i]);
    if (places.end[e] < first[e + 1]) places.of_choice[static_cast<std::size_t>(i)] = places.end[e]++;
  }
  return places;
}

KERNELS_MULTIVERSION void add_row(float* out, const float* inp, std::int64_t C) {
#pragma omp simd
  for (std::int64_t c = 0; c < C; ++c) out[c] += inp[c];
}

}  // namespace

std::vector<std::int64_t> expert_offsets(const std::int32_t* indices, std::int64_t count, std::int64_t E) {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(E + 1), 0);
  for (std::int64_t i = 0; i < count; ++i) ++offsets[static_cast<std::size_t>(indices[i] + 1)];
  for (std::size_t e = 1; e < offsets.size(); ++e) offsets[e] += offsets[e - 1];
  return offsets;
}

void permute(float* out, float* row_weights, const float* inp, const float* weights,
             const std::int32_t* indices, PermuteShape s) {
  const ExpertPlaces places = places_by_expert(indices, s);
  if (s.places > 0)
    for (std::int64_t e = 0; e < s.E; ++e) {
      const std::int64_t first = places.end[static_cast<std::size_t>(e)], end = (e + 1) * s.places;
      std::fill(out + first * s.C, out + end * s.C, 0.0f);
      if (row_weights) std::fill(row_weights + first, row_weights + end, 0.0f);
    }
  parallel_ranges(s.R * s.K, 2 * s.C, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t place = places.of_choice[static_cast<std::size_t>(i)];
      if (place == kDropped) continue;
      std::copy_n(inp + i / s.K * s.C, s.C, out + place * s.C);
      if (row_weights) row_weights[place] = weights[i];
    }
  });
}

void unpermute(float* out, float* weights, const float* inp, const float* row_weights,
               const std::int32_t* indices, PermuteShape s) {
  const ExpertPlaces places = places_by_expert(indices, s);
  parallel_ranges(s.R, 2 * s.K * s.C, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      bool is_first = true;
      for (std::int64_t k = 0; k < s.K; ++k) {
        const std::int64_t place = places.of_choice[static_cast<std::size_t>(r * s.K + k)];
        if (weights) weights[r * s.K + k] = place == kDropped ? 0.0f : row_weights[place];
        if (place == kDropped) continue;
        if (is_first)
          std::copy_n(inp + place * s.C, s.C, out + r * s.C);
        else
          add_row(out + r * s.C, inp + place * s.C, s.C);
        is_first = false;
      }
      if (is_first) std::fill_n(out + r * s.C, s.C, 0.0f);
    }
  });
}

}  // namespace kernels::cpu
