#include <algorithm>

#include "kernels/cuda/chunked_head.h"
#include "kernels/cuda/cross_entropy.h"

namespace kernels::cuda {

void head_and_loss_chunked(const Context& context, Products& products, const ChunkedHead& h,
                           std::int64_t rows_at_once) {
  const Type type = h.hidden.type;
  const std::int64_t fit = context.scratch_bytes / 2 / (h.V * size_of(type));
  const std::int64_t most = std::clamp<std::int64_t>(std::min(fit, rows_at_once), 1, h.R);
  const std::int64_t bytes = ceil_div(most * h.V * size_of(type), kScratchAlignment) * kScratchAlignment;
  const Tensor logits{context.scratch_for<std::byte>(bytes), type};
  const Context rest{context.stream, context.scratch + bytes, context.scratch_bytes - bytes};
  const auto from = [](auto tensor, std::int64_t elements) {
    tensor.data =
        const_cast<std::byte*>(static_cast<const std::byte*>(tensor.data)) + elements * size_of(tensor.type);
    return tensor;
  };
  for (std::int64_t row = 0; row < h.R; row += most) {
    const std::int64_t rows = std::min(most, h.R - row);
    const ConstTensor hidden = from(h.hidden, row * h.C);
    products.run(
        rest,
        {.M = rows, .N = h.V, .K = h.C, .a = hidden, .b = h.weight, .out = logits, .transpose_b = true});
    cross_entropy_forward_backward(rest, logits, h.losses + row, h.targets + row, h.scale, h.loss_scale, rows,
                                   h.V);
    products.run(
        rest, {.M = rows, .N = h.C, .K = h.V, .a = logits, .b = h.weight, .out = from(h.dhidden, row * h.C)});
    products.run(rest, {.M = h.V,
                        .N = h.C,
                        .K = rows,
                        .a = logits,
                        .b = hidden,
                        .out = h.dweight,
                        .transpose_a = true,
                        .addend = h.dweight});
  }
}

}  // namespace kernels::cuda
