#include "kernels/grouped_matmul.h"

#include "kernels/matmul.h"
#include "kernels/matmul_bf16.h"

namespace kernels::cpu {
namespace {

// of_group(g, first row, shape) for each group that has rows.
template <class OfGroup>
void for_each_group(std::span<const std::int64_t> offsets, GroupedShape s, const OfGroup& of_group) {
  for (std::size_t g = 0; g + 1 < offsets.size(); ++g)
    if (offsets[g + 1] > offsets[g])
      of_group(static_cast<std::int64_t>(g), offsets[g], MatmulShape{offsets[g + 1] - offsets[g], s.N, s.K});
}

// What a product writes.
float* written(float* out) {
  return out;
}
WideOrNarrow written(bf16* out) {
  return {.narrow = out};
}

}  // namespace

template <class T>
void grouped_matmul_forward(T* out, const T* inp, const T* weight, const T* bias,
                            std::span<const std::int64_t> offsets, GroupedShape s) {
  for_each_group(offsets, s, [&](std::int64_t g, std::int64_t row, MatmulShape of_group) {
    matmul_forward(written(out + row * s.N), inp + row * s.K, weight + g * s.N * s.K,
                   bias ? bias + g * s.N : nullptr, static_cast<const T*>(nullptr), of_group);
  });
}

template <class T>
void grouped_matmul_backward_input(T* dinp, const T* dout, const T* weight,
                                   std::span<const std::int64_t> offsets, GroupedShape s) {
  for_each_group(offsets, s, [&](std::int64_t g, std::int64_t row, MatmulShape of_group) {
    matmul_backward_input(dinp + row * s.K, dout + row * s.N, weight + g * s.N * s.K, false, of_group);
  });
}

template <class T>
void grouped_matmul_backward_weight(T* dweight, T* dbias, const T* dout, const T* inp,
                                    std::span<const std::int64_t> offsets, GroupedShape s) {
  for_each_group(offsets, s, [&](std::int64_t g, std::int64_t row, MatmulShape of_group) {
    matmul_backward_weight(dweight + g * s.N * s.K, dbias ? dbias + g * s.N : nullptr, dout + row * s.N,
                           inp + row * s.K, of_group);
  });
}

using Offsets = std::span<const std::int64_t>;
template void grouped_matmul_forward(float*, const float*, const float*, const float*, Offsets, GroupedShape);
template void grouped_matmul_forward(bf16*, const bf16*, const bf16*, const bf16*, Offsets, GroupedShape);
template void grouped_matmul_backward_input(float*, const float*, const float*, Offsets, GroupedShape);
template void grouped_matmul_backward_input(bf16*, const bf16*, const bf16*, Offsets, GroupedShape);
template void grouped_matmul_backward_weight(float*, float*, const float*, const float*, Offsets,
                                             GroupedShape);
template void grouped_matmul_backward_weight(bf16*, bf16*, const bf16*, const bf16*, Offsets, GroupedShape);

}  // namespace kernels::cpu
