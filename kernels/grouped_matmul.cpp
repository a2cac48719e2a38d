#include "kernels/grouped_matmul.h"

#include "kernels/matmul.h"

namespace kernels::cpu {
namespace {

// of_group(g, first row, shape) for each group that has rows.
template <class OfGroup>
void for_each_group(std::span<const std::int64_t> offsets, GroupedShape s, const OfGroup& of_group) {
  for (std::size_t g = 0; g + 1 < offsets.size(); ++g)
    if (offsets[g + 1] > offsets[g])
      of_group(static_cast<std::int64_t>(g), offsets[g], MatmulShape{offsets[g + 1] - offsets[g], s.N, s.K});
}

}  // namespace

void grouped_matmul_forward(float* out, const float* inp, const float* weight, const float* bias,
                            std::span<const std::int64_t> offsets, GroupedShape s) {
  for_each_group(offsets, s, [&](std::int64_t g, std::int64_t row, MatmulShape of_group) {
    matmul_forward(out + row * s.N, inp + row * s.K, weight + g * s.N * s.K, bias ? bias + g * s.N : nullptr,
                   nullptr, of_group);
  });
}

void grouped_matmul_backward_input(float* dinp, const float* dout, const float* weight,
                                   std::span<const std::int64_t> offsets, GroupedShape s) {
  for_each_group(offsets, s, [&](std::int64_t g, std::int64_t row, MatmulShape of_group) {
    matmul_backward_input(dinp + row * s.K, dout + row * s.N, weight + g * s.N * s.K, false, of_group);
  });
}

void grouped_matmul_backward_weight(float* dweight, float* dbias, const float* dout, const float* inp,
                                    std::span<const std::int64_t> offsets, GroupedShape s) {
  for_each_group(offsets, s, [&](std::int64_t g, std::int64_t row, MatmulShape of_group) {
    matmul_backward_weight(dweight + g * s.N * s.K, dbias ? dbias + g * s.N : nullptr, dout + row * s.N,
                           inp + row * s.K, of_group);
  });
}

}  // namespace kernels::cpu
