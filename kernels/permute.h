// Rows of tokens on their way to the experts chosen for them, and back. Each row goes once to each of its K
// experts; rows are ordered by expert, those of one expert as the tokens are. No row is dropped.
#pragma once
#include <cstdint>
#include <vector>

namespace kernels {

struct PermuteShape {
  std::int64_t R, C, E, K;  // rows (tokens), their width, experts, chosen for a row
};

namespace cpu {

// offsets (E + 1): where the rows of each expert begin, from indices (count).
std::vector<std::int64_t> expert_offsets(const std::int32_t* indices, std::int64_t count, std::int64_t E);

// out (R*K, C) = rows of inp (R, C) by expert; row_weights (R*K) = weights (R, K) in the same order, both or
// neither null.
void permute(float* out, float* row_weights, const float* inp, const float* weights,
             const std::int32_t* indices, PermuteShape s);

// out (R, C) = sum of each token's rows of inp (R*K, C), first choice first; weights (R, K) = row_weights
// (R*K) in the tokens' order, both or neither null.
void unpermute(float* out, float* weights, const float* inp, const float* row_weights,
               const std::int32_t* indices, PermuteShape s);

}  // namespace cpu
}  // namespace kernels
