// Linear layers whose weights are stored in 4 or 8 bits and multiplied in that form: y = x W^T (+ bias)
// (+ residual). A weight is scale * code + minimum, with an fp16 scale and an fp16 minimum for each group of
// columns of a row; or scale * (code - middle), with an fp16 scale alone. GGUF's Q4_1 and Q5_1 fit the first
// form exactly, Q4_0, Q5_0 and Q8_0 the second.
//
// The activations of each 32 columns are rounded to 16 bits, by the largest of them, so that products of
// codes are integers. Rounded to 8 bits, as ggml's Q8_1, they would move a model's perplexity by up to half a
// percent. With AVX-512 VNNI an instruction forms 4 products of 8 bits, so a product takes two of them; with
// AVX2 it forms 2 of 16 bits. All paths form the same integers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/embedding.h"
#include "kernels/matmul.h"

namespace kernels {

// How a weight (N, K) lies in memory: tiles of 16 rows (the last may have fewer), one after the other. In a
// tile of r rows the numbers are, for each group of columns, r scales in fp16 and r minima, where it has
// them. Its codes are, for each 32 columns, in 8 bits (8, r, 4), 4 columns of a row side by side; in 4 bits
// (4, r, 4), columns 4 i .. 4 i + 3 in the low halves and 16 columns further in the high halves.
struct QuantisedFormat {
  int bits;            // 4 or 8
  std::int64_t group;  // columns; a multiple of 32 that divides K
  bool minima = true;  // false: minimum_of() the scale

  static constexpr std::int64_t kTileRows = 16, kColumns = 32;
  static constexpr int middle(int bits) { return 1 << (bits - 1); }
  float minimum_of(float scale) const { return -static_cast<float>(middle(bits)) * scale; }
  std::int64_t numbers_of_group() const { return minima ? 2 : 1; }
  std::int64_t code_bytes(std::int64_t rows, std::int64_t K) const { return rows * K * bits / 8; }
  std::int64_t number_bytes(std::int64_t rows, std::int64_t K) const {
    return rows * (K / group) * numbers_of_group() * static_cast<std::int64_t>(sizeof(std::uint16_t));
  }
};

// codes: code_bytes(N, K); numbers: number_bytes(N, K).
struct QuantisedWeight {
  std::byte *codes, *numbers;
  QuantisedFormat format;

  // From row n on, n a multiple of kTileRows.
  QuantisedWeight from_row(std::int64_t n, std::int64_t K) const {
    return {codes + format.code_bytes(n, K), numbers + format.number_bytes(n, K), format};
  }
};

// Codes of a weight (N, K) by rows, 0 .. 2^bits - 1; scales and minima (N, K / group).
struct GroupedCodes {
  std::span<const std::uint8_t> codes;
  std::span<const float> scales, minima;
};

namespace cpu {

// weight (N, K) from codes. False where the format has no minima and some group's minimum is no whole number
// of scales, or codes around that number do not fit in its bits; the weight then is unspecified.
[[nodiscard]] bool pack_quantised(QuantisedWeight weight, const GroupedCodes& from, std::int64_t N,
                                  std::int64_t K);

// weight from values (N, K), rounded to the nearest code. In 4 bits with minima each group's minimum gets the
// first code and its maximum the last. Otherwise zero gets the middle code. In 8 bits the largest magnitude
// is 127 codes from it. In 4 bits the scale is the least with which both ends of the group have a code.
void quantise(QuantisedWeight weight, const float* values, std::int64_t N, std::int64_t K);

// out (M, N) = inp (M, K) * weight (N, K)^T + bias (N) + residual (M, N). bias and residual may be null;
// residual may be the same memory as out.
void matmul_quantised(float* out, const float* inp, QuantisedWeight weight, const float* bias,
                      const float* residual, MatmulShape s);

// As embedding_forward() (kernels/embedding.h), by rows of weight (V, C).
void embedding_quantised(float* out, const std::int32_t* tokens, QuantisedWeight weight,
                         const float* position_weight, const std::int32_t* positions, EmbeddingShape s);

// values (N, K): what the weight stands for.
void dequantise(float* values, QuantisedWeight weight, std::int64_t N, std::int64_t K);

// Which instructions products of codes are formed by: "AVX-512 VNNI", "AVX2", "plain".
enum class IntegerProducts { plain, avx2, avx512_vnni };
const char* name(IntegerProducts path);
IntegerProducts fastest_integer_products();
// For tests and benchmarks; a path that the processor has.
void use_integer_products(IntegerProducts path);

}  // namespace cpu
}  // namespace kernels
