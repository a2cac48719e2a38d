// Rotary position embedding (Su et al. 2021, arXiv 2104.09864). Elements (i, i + D/2) of a head form a pair,
// as in Hugging Face's rotate_half.
#pragma once
#include <cstdint>

namespace kernels {

// How the base frequencies are stretched for long contexts.
struct RopeScaling {
  enum class Kind { none, linear, llama3, yarn } kind = Kind::none;
  double factor = 1.0;                             // linear and llama3
  double low_freq_factor = 1.0;                    // llama3 (Llama 3.1's config.json: 1)
  double high_freq_factor = 4.0;                   // llama3 (Llama 3.1's config.json: 4)
  double original_max_position_embeddings = 8192;  // llama3 and yarn
  double beta_fast = 32, beta_slow = 1;            // yarn: turns within the original length
  bool truncate = true;                            // yarn: blends between whole dimensions
  double attention_factor = 0;                     // yarn: of cosines and sines; 0: 0.1 ln(factor) + 1
};

struct RopeShape {
  std::int64_t B, T, H, G, D;
};

namespace cpu {

// table (P, D): for each position the D/2 cosines, then the D/2 sines. Frequencies in double. The first
// `rotated` / 2 of the D/2 pairs turn, as if D were `rotated`, and the others stay as they are; 0: all turn.
void rope_table(float* table, double theta, const RopeScaling& scaling, std::int64_t P, std::int64_t D,
                std::int64_t rotated = 0);

// Rotates the H query and G key heads of packed qkv (B, T, (H + 2G) * D) in place; values are left alone.
// positions (B): where each sequence's new tokens start; null means zero.
void rope_forward(float* qkv, const float* table, const std::int32_t* positions, RopeShape s);

// The transposed rotation, on dqkv (B, T, (H + 2G) * D) in place. Training positions start at zero.
void rope_backward(float* dqkv, const float* table, RopeShape s);

}  // namespace cpu
}  // namespace kernels
