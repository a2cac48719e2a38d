#include "kernels/permute.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

// For each choice the row that it has among those ordered by expert.
std::vector<std::int64_t> places_by_expert(const std::int32_t* indices, std::int64_t count, std::int64_t E) {
  std::vector<std::int64_t> next = expert_offsets(indices, count, E);
  std::vector<std::int64_t> places(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    places[static_cast<std::size_t>(i)] = next[static_cast<std::size_t>(indices[i])]++;
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
  const std::vector<std::int64_t> places = places_by_expert(indices, s.R * s.K, s.E);
  parallel_ranges(s.R * s.K, 2 * s.C, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t place = places[static_cast<std::size_t>(i)];
      std::copy_n(inp + i / s.K * s.C, s.C, out + place * s.C);
      if (row_weights) row_weights[place] = weights[i];
    }
  });
}

void unpermute(float* out, float* weights, const float* inp, const float* row_weights,
               const std::int32_t* indices, PermuteShape s) {
  const std::vector<std::int64_t> places = places_by_expert(indices, s.R * s.K, s.E);
  parallel_ranges(s.R, 2 * s.K * s.C, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      for (std::int64_t k = 0; k < s.K; ++k) {
        const std::int64_t place = places[static_cast<std::size_t>(r * s.K + k)];
        if (k == 0)
          std::copy_n(inp + place * s.C, s.C, out + r * s.C);
        else
          add_row(out + r * s.C, inp + place * s.C, s.C);
        if (weights) weights[r * s.K + k] = row_weights[place];
      }
  });
}

}  // namespace kernels::cpu
