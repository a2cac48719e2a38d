#include "kernels/cuda/hopper/tensor_map.h"

namespace kernels::cuda {

TensorMap map_heads_of_16_bits(const Heads<const std::uint16_t>& heads, std::int64_t count, std::int64_t T,
                               std::int64_t B, int box_tokens) {
  return {heads, count, T, B, box_tokens};
}

}  // namespace kernels::cuda
