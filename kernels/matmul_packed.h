// Products in fp32 whose factors are both packed for tiles in registers.
//
// By AVX-512: elements are packed as they are; 384 products are summed at a time, then these sums are added.
//
// By AMX, whose tiles of bf16 do 16 times the arithmetic of fp32's vectors a cycle: each element is split
// into three bf16 numbers that add up to it, 8 bits each of its 24, and six of the nine products of parts are
// summed in fp32: those left out are below 2^-24 of what they would be added to. (G. Henry, P. T. P. Tang, A.
// Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations, 2019,
// arXiv 1904.06376.) Errors are fp32's own, of sums. An infinite element's products are NaN, and what is
// below 2^-126 is zero.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/blas_product.h"
#include "kernels/packed_tile.h"

namespace kernels::cpu {

// Whether such a product is faster here than the BLAS's.
bool takes_packed_product(std::int64_t M, std::int64_t N, std::int64_t K);

// out (M, N) = scale * sums + bias (N) + added (M, N). bias and added may be null; added lies as out does,
// and may be the same memory.
struct Fp32Result {
  float* out;
  std::int64_t stride;  // from row to row
  const float *bias = nullptr, *added = nullptr;
  float scale = 1;
};

// The sums are a (M, K) times b (K, N). On all threads, or within a parallel region on the calling one.
void packed_fp32_product(const Fp32Result& result, Factor a, Factor b, std::int64_t M, std::int64_t N,
                         std::int64_t K);

// What forms large products of fp32: OpenBLAS; tiles in vectors of any processor (for tests) or of AVX-512;
// or AMX with elements in parts, emulated or not.
enum class Fp32Products { blas, plain, avx512, emulated_split, split };
const char* name(Fp32Products path);
// Those that run here.
std::vector<Fp32Products> fp32_products();
Fp32Products fastest_fp32_products();
// Those of the chosen way; null where that is the BLAS.
const TileKernels<float>* fp32_kernels();
// For tests and benchmarks; one that runs here.
void use_fp32_products(Fp32Products path);

}  // namespace kernels::cpu
