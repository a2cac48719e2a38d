// A layer's KV cache: where a token's key and value lie, and in which type.
//
// Keys and values are (blocks, G, block_size, D) each; the tokens [i * block_size, (i + 1) * block_size) of
// sequence b are in block block_table[b * blocks_per_sequence + i] (paged attention, Kwon et al. 2023, arXiv
// 2309.06180). A contiguous cache is one block a sequence, and needs no table.
#pragma once
#include "kernels/attention.h"
#include "kernels/cuda/types.h"

namespace kernels::cuda {

// Tokens that follow each other in memory begin at a multiple of kCacheRun: block sizes are multiples of it.
inline constexpr int kCacheRun = 16;

struct KvCache {
  Tensor k, v;  // of the queries' type; e4m3 where there are scales
  std::int64_t block_size = 0;
  const std::int32_t* block_table = nullptr;  // (B, blocks_per_sequence)
  std::int64_t blocks_per_sequence = 1;
  // (G) each, both or none: what is stored is a key or value divided by its head's scale, and rounded to
  // e4m3; beyond 448 it is 448.
  const float *k_scale = nullptr, *v_scale = nullptr;

  bool is_fp8() const { return k_scale != nullptr; }
  std::int64_t capacity() const { return blocks_per_sequence * block_size; }  // tokens of a sequence
};

// k, v (B, G, capacity, D).
inline KvCache contiguous_cache(Tensor k, Tensor v, std::int64_t capacity) {
  return {.k = k, .v = v, .block_size = capacity};
}

// Division of numbers below 2^31 by one that is known before a kernel starts, as a product (Granlund,
// Montgomery 1994, "Division by invariant integers using multiplication").
class Divisor {
 public:
  Divisor() = default;
  explicit Divisor(std::uint32_t divisor) : divisor_(divisor) {
    std::uint32_t log2 = 0;
    while ((std::uint64_t{1} << log2) < divisor) ++log2;
    if (log2 == 0) return;
    multiplier_ = static_cast<std::uint32_t>(((std::uint64_t{1} << (31 + log2)) + divisor - 1) / divisor);
    shift_ = log2 - 1;
  }

  CUDA_HOST_DEVICE std::uint32_t quotient(std::uint32_t x) const {
    if (divisor_ == 1) return x;
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(x) * multiplier_ >> 32) >> shift_;
  }
  CUDA_HOST_DEVICE std::uint32_t divisor() const { return divisor_; }

 private:
  std::uint32_t divisor_ = 1, multiplier_ = 0, shift_ = 0;
};

}  // namespace kernels::cuda
