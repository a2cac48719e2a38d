// A layer's KV cache on the CPU: where a token's key and value lie, and in which type.
//
// Keys and values are (blocks, G, block_size, D) each; the tokens [i * block_size, (i + 1) * block_size) of
// sequence b are in block block_table[b * blocks_per_sequence + i] (paged attention, Kwon et al. 2023, arXiv
// 2309.06180). A contiguous cache is one block a sequence, and needs no table. Where a window or chunks let a
// cache be shorter than the sequence, token t lies in place t modulo its length.
#pragma once
#include <cstdint>

namespace kernels::cpu {

struct KvCache {
  // fp32; with is_bf16, bf16; with scales, e4m3 (OCP 8-bit floating point, arXiv 2209.05433); with is_int8,
  // each row is D int8 codes followed by the fp32 step that they are multiples of.
  void *k = nullptr, *v = nullptr;
  std::int64_t block_size = 0;                // tokens
  const std::int32_t* block_table = nullptr;  // (B, blocks_per_sequence)
  std::int64_t blocks_per_sequence = 1;
  // (2, G): what is stored is a key or value divided by its head's scale, keys' first, rounded to the
  // nearest; beyond 448 it is 448.
  const float* scales = nullptr;
  bool is_bf16 = false;                           // keys and values are rounded to the nearest
  bool is_int8 = false;                           // ... to the nearest of 127 steps up to the row's largest
  static constexpr std::int64_t kScaleBytes = 4;  // of a row of int8

  bool is_fp8() const { return scales != nullptr; }
  // The row of D elements, counted over the whole cache, that holds token t of sequence b and head g of G.
  // The tokens up to the end of its block follow.
  std::int64_t row(std::int64_t b, std::int64_t g, std::int64_t t, std::int64_t G) const {
    const std::int64_t block =
        block_table == nullptr ? b
                               : block_table[b * blocks_per_sequence + t / block_size % blocks_per_sequence];
    return (block * G + g) * block_size + (t < block_size ? t : t % block_size);
  }
  // The tokens of a sequence that there is room for.
  std::int64_t tokens() const { return block_size * blocks_per_sequence; }
  // Tokens from t on that lie one after the other.
  std::int64_t run(std::int64_t t) const { return block_size - (t < block_size ? t : t % block_size); }
};

// k, v (B, G, capacity, D).
inline KvCache contiguous_cache(float* k, float* v, std::int64_t capacity) {
  return {.k = k, .v = v, .block_size = capacity};
}

}  // namespace kernels::cpu
