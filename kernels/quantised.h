// Linear layers whose weights are stored in 2 to 8 bits and multiplied in that form: y = x W^T (+ bias)
// (+ residual). A weight is scale * code + minimum, with a scale and a minimum for each group of columns of a
// row; or scale * (code - middle), with a scale alone. The numbers of a group are in fp16. In a format in
// blocks they are products of an fp16 number for each 256 columns of a row and an integer of 8 bits for each
// group. GGUF's formats are among these as they are: see kKernelFormats.
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
#include "kernels/grouped_matmul.h"
#include "kernels/matmul.h"

namespace kernels {

// How a weight (N, K) lies in memory: tiles of 16 rows (the last may have fewer), one after the other.
//
// The numbers of a tile of r rows are, for each group of columns, r scales in fp16 and r minima, where it has
// them. In blocks they are, for each 256 columns, r factors of scales in fp16 and, with minima, r factors of
// minima; then for each group r signed integers and, with minima, r unsigned ones. The scale is the first
// factor times the signed integer, the minimum is minus the second times the unsigned one.
//
// Its codes are, for each 32 columns, planes: (bits, r, 4) bytes in all. 8 bits are one plane. Others are a
// plane of the low 4 bits, or of 2 where the code has fewer than 4, and behind it one of the bits above, if
// there are any. The columns are taken in fours, which are side by side in a plane. Codes of 8 bits have them
// in order. Otherwise columns 4 i .. 4 i + 3 are followed by those 16 further. The f-th four of a plane of b
// bits is in line f b / 8 of the plane's (b, r, 4), shifted by f b % 8 bits.
struct QuantisedFormat {
  int bits;             // 2 to 6, or 8
  std::int64_t group;   // columns: 16 or a multiple of 32, in blocks 16 or 32; divides K
  bool minima = true;   // false: minimum_of() the scale
  bool blocks = false;  // K is a multiple of 256

  static constexpr std::int64_t kTileRows = 16, kColumns = 32, kBlock = 256;
  static constexpr int middle(int bits) { return 1 << (bits - 1); }
  constexpr int last_code() const { return (1 << bits) - 1; }
  constexpr float minimum_of(float scale) const { return -static_cast<float>(middle(bits)) * scale; }
  constexpr std::int64_t numbers_of_group() const { return minima ? 2 : 1; }
  // Each choice is a constant, so that nobody who reads a number divides for it.
  constexpr std::int64_t groups_of_block() const { return group == 16 ? kBlock / 16 : kBlock / 32; }
  constexpr std::int64_t code_bytes(std::int64_t rows, std::int64_t K) const { return rows * K * bits / 8; }
  constexpr std::int64_t number_bytes(std::int64_t rows, std::int64_t K) const {
    constexpr std::int64_t kHalf = sizeof(std::uint16_t);
    return rows * numbers_of_group() *
           (blocks ? K / kBlock * (kHalf + groups_of_block()) : K / group * kHalf);
  }
  bool operator==(const QuantisedFormat&) const = default;
};

// The formats that there are kernels for. Without blocks a group may be of any multiple of 32 columns.
inline constexpr QuantisedFormat kKernelFormats[] = {
    {4, 32, true},         // Q4_1
    {4, 32, false},        // Q4_0
    {5, 32, true},         // Q5_1
    {5, 32, false},        // Q5_0
    {8, 32, true},         // none of GGUF's
    {8, 32, false},        // Q8_0
    {2, 16, true, true},   // Q2_K
    {3, 16, false, true},  // Q3_K
    {4, 32, true, true},   // Q4_K
    {5, 32, true, true},   // Q5_K
    {6, 16, false, true},  // Q6_K
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

// Codes of a weight (N, K) by rows, 0 .. 2^bits - 1; scales and minima (N, K / group). Codes that come from a
// format in blocks also bring the factors of their scales and minima (N, K / 256), which fp16 holds exactly;
// the scales and minima are the full values all the same. The factors of others are empty.
struct GroupedCodes {
  std::span<const std::uint8_t> codes;
  std::span<const float> scales, minima;
  std::span<const float> block_scales = {}, block_minima = {};
};

namespace cpu {

// Whether kKernelFormats has it.
bool is_kernel_format(QuantisedFormat format);

// weight (N, K) from codes. They stay as they are in a format with minima. Without minima they are shifted so
// that zero gets the middle code. False where that cannot be, and the weight then is unspecified:
//  - a code does not fit in the format's bits, once shifted;
//  - the format has no minima and some group's minimum is no whole number of scales;
//  - the format is in blocks and the codes bring no factors, or some scale or minimum is not its factor times
//    an integer of 8 bits, by more than a thousandth of the factor.
[[nodiscard]] bool pack_quantised(QuantisedWeight weight, const GroupedCodes& from, std::int64_t N,
                                  std::int64_t K);

// weight from values (N, K), rounded to the nearest code that there is with the stored scale and minimum.
// Without blocks:
//  - in 4 and 5 bits with minima each group's minimum gets the first code and its maximum the last;
//  - in 8 bits zero gets the middle code, and the largest magnitude is 127 codes from it;
//  - otherwise zero gets the middle code, and the scale is the least with which both ends have a code.
// In blocks a group's scale and minimum are rounded to the nearest integer times their factor. The factor of
// scales is the largest of 256 columns / 127, that of minima the least one / -255, both rounded up to fp16.
// Before that they are
//  - with minima: the group's minimum, or zero if that is less, and the scale that gives the maximum the last
//    code;
//  - without: as without blocks.
void quantise(QuantisedWeight weight, const float* values, std::int64_t N, std::int64_t K);

// out (M, N) = inp (M, K) * weight (N, K)^T + bias (N) + residual (M, N). bias and residual may be null;
// residual may be the same memory as out.
void matmul_quantised(float* out, const float* inp, QuantisedWeight weight, const float* bias,
                      const float* residual, MatmulShape s);

// As grouped_matmul_forward() (kernels/grouped_matmul.h): out (rows, N) = inp (rows, K) * weight of the
// group^T + bias (groups, N), which may be null. The weights of the groups are one quantised matrix
// (groups * N, K), or with `group_rows` one in which a group's N rows begin that many after those of the
// group before. Where there is more than one group, that number is a multiple of kTileRows. Each row has the
// bits that matmul_quantised() would give it.
void grouped_matmul_quantised(float* out, const float* inp, QuantisedWeight weight, const float* bias,
                              std::span<const std::int64_t> offsets, GroupedShape s,
                              std::int64_t group_rows = 0);

// As embedding_forward() (kernels/embedding.h), by rows of weight (V, C).
void embedding_quantised(float* out, const std::int32_t* tokens, QuantisedWeight weight,
                         const float* position_weight, const std::int32_t* positions, EmbeddingShape s);

// values (N, K): what the weight stands for.
void dequantise(float* values, QuantisedWeight weight, std::int64_t N, std::int64_t K);
// values (count, K): rows first .. first + count of weight (N, K), by the calling thread.
void dequantise_rows(float* values, QuantisedWeight weight, std::int64_t first, std::int64_t count,
                     std::int64_t N, std::int64_t K);

// Which instructions products of codes are formed by: "AVX-512 VNNI", "AVX2", "plain".
enum class IntegerProducts { plain, avx2, avx512_vnni };
const char* name(IntegerProducts path);
IntegerProducts fastest_integer_products();
// For tests and benchmarks; a path that the processor has.
void use_integer_products(IntegerProducts path);

}  // namespace cpu
}  // namespace kernels
