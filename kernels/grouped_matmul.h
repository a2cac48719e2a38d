// Products of experts: rows of one group after the other, each group with a weight of its own; group g has
// the rows offsets[g] .. offsets[g + 1]. Composed of matmul.h, a group at a time, so that sums are formed in
// the same order on any number of threads as there. T: float or bf16.
#pragma once
#include <cstdint>
#include <span>

namespace kernels::cpu {

// A group's weight is (N, K), its bias (N).
struct GroupedShape {
  std::int64_t N, K;
};

// out (rows, N) = inp (rows, K) * weight of the group (groups, N, K)^T + bias (groups, N), which may be null.
template <class T>
void grouped_matmul_forward(T* out, const T* inp, const T* weight, const T* bias,
                            std::span<const std::int64_t> offsets, GroupedShape s);

// dinp (rows, K) = dout (rows, N) * weight of the group.
template <class T>
void grouped_matmul_backward_input(T* dinp, const T* dout, const T* weight,
                                   std::span<const std::int64_t> offsets, GroupedShape s);

// dweight (groups, N, K) += dout^T * inp over each group's rows; dbias (groups, N) +=, may be null.
template <class T>
void grouped_matmul_backward_weight(T* dweight, T* dbias, const T* dout, const T* inp,
                                    std::span<const std::int64_t> offsets, GroupedShape s);

}  // namespace kernels::cpu
