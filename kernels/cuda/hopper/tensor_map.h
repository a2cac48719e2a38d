// Heads of packed rows as TMA takes a tensor: (D, heads, T, B), first index fastest, copied in boxes of 64
// columns of one head and some tokens of one sequence, which arrive swizzled by 128 bytes. What is copied are
// elements of 16 bits, whatever they stand for.
#pragma once
#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/types.h"

namespace kernels::cuda {

#ifdef __CUDACC__

// The driver's CUtensorMap.
struct alignas(64) TensorMap {
  std::uint64_t opaque[16];
};

#else

struct TensorMap {
  Heads<const std::uint16_t> heads;
  std::int64_t count, T, B;
  int box_tokens;

  int box_bytes() const { return box_tokens * 64 * static_cast<int>(sizeof(std::uint16_t)); }
  std::uint16_t at(int column, int head, int token, int sequence) const {
    const bool inside = column >= 0 && column < heads.D && head >= 0 && head < count && token >= 0 &&
                        token < T && sequence >= 0 && sequence < B;
    return inside ? heads.of(sequence * T, head).at(token)[column] : std::uint16_t{0};
  }
};

#endif

// A map of `count` heads of B sequences of T tokens; at most 256 tokens a box. Throws CudaError where the
// driver has no TMA or refuses: rows and heads must begin at multiples of 16 bytes.
TensorMap map_heads_of_16_bits(const Heads<const std::uint16_t>& heads, std::int64_t count, std::int64_t T,
                               std::int64_t B, int box_tokens);
template <class Element>
TensorMap map_heads(const Heads<Element>& heads, std::int64_t count, std::int64_t T, std::int64_t B,
                    int box_tokens) {
  static_assert(sizeof(Element) == sizeof(std::uint16_t));
  return map_heads_of_16_bits({reinterpret_cast<const std::uint16_t*>(heads.data), heads.row, heads.D}, count,
                              T, B, box_tokens);
}

}  // namespace kernels::cuda
