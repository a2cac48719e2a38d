// Rows of tokens on their way to the experts chosen for them, and back. Each row goes once to each of its K
// experts; rows are ordered by expert, those of one expert as the tokens are. Where experts have a capacity
// (Fedus et al. 2021, arXiv 2101.03961, section 2.2), each takes its first rows, as many as it has places
// for; the others are dropped, and places that no row takes hold zeros.
#pragma once
#include <cstdint>
#include <vector>

namespace kernels {

struct PermuteShape {
  std::int64_t R, C, E, K;  // rows (tokens), their width, experts, chosen for a row
  std::int64_t places = 0;  // of each expert; 0: as many as rows come, and none is dropped
};

namespace cpu {

// offsets (E + 1): where the rows of each expert begin, from indices (count).
std::vector<std::int64_t> expert_offsets(const std::int32_t* indices, std::int64_t count, std::int64_t E);

// out (R*K, C), with a capacity (E*places, C), = rows of inp (R, C) by expert; row_weights (as many) =
// weights (R, K) in the same order, both or neither null.
void permute(float* out, float* row_weights, const float* inp, const float* weights,
             const std::int32_t* indices, PermuteShape s);

// out (R, C) = sum of each token's rows of inp, which are as above, first choice first; weights (R, K) =
// row_weights in the tokens' order, both or neither null. Rows that were dropped add nothing, and have 0.
void unpermute(float* out, float* weights, const float* inp, const float* row_weights,
               const std::int32_t* indices, PermuteShape s);

}  // namespace cpu
}  // namespace kernels
