// Linear layers in bf16: the products of kernels/matmul.h on 16-bit tensors, sums in fp32. By AMX's tiles
// or AVX-512 BF16's dot products of pairs where the processor has them, otherwise by fp32 multiplications.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/cuda/types.h"
#include "kernels/matmul.h"

namespace kernels::cpu {

using cuda::bf16;

// A tensor that a product writes: one of the two is there.
struct WideOrNarrow {
  bf16* narrow = nullptr;
  float* wide = nullptr;
};

// What the elements of a product's two factors are multiplied by, in the order of the arguments: other than 1
// where they are codes of fp8 (kernels/fp8.h).
struct FactorScales {
  float first = 1, second = 1;
  float of_sums() const { return first * second; }
};

// out (M, N) = inp (M, K) * weight (N, K)^T + bias (N) + residual (M, N). bias and residual may be null;
// residual may be the same memory as out.
void matmul_forward(WideOrNarrow out, const bf16* inp, const bf16* weight, const bf16* bias,
                    const bf16* residual, MatmulShape s, FactorScales scales = {});

// dinp (M, K) = dout (M, N) * weight (N, K); with accumulate, += instead of =.
void matmul_backward_input(bf16* dinp, const bf16* dout, const bf16* weight, bool accumulate, MatmulShape s,
                           FactorScales scales = {});

// dweight (N, K) += dout (M, N)^T * inp (M, K); dbias (N) += column sums of dout, where dbias is not null.
// Sums of one call are rounded once, when they join what is there. Without accumulate, = in the place of +=.
void matmul_backward_weight(bf16* dweight, bf16* dbias, const bf16* dout, const bf16* inp, MatmulShape s,
                            bool accumulate = true, FactorScales scales = {});

// Which instructions form bf16 products. emulated_amx does AMX's steps without AMX, for tests.
enum class Bf16Products { plain, emulated_amx, avx512_bf16, amx };
const char* name(Bf16Products path);
// Those that run here.
std::vector<Bf16Products> bf16_products();
Bf16Products fastest_bf16_products();
// For tests and benchmarks; one that runs here.
void use_bf16_products(Bf16Products path);

}  // namespace kernels::cpu
