#include "kernels/matmul_split.h"

#include "kernels/bf16_tile.h"
#include "kernels/packed_product.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

const TileKernels<float>* kernels_of(Fp32Products path) {
  switch (path) {
    case Fp32Products::blas:
      return nullptr;
    case Fp32Products::emulated_split:
      return &emulated_amx_split_kernels();
    case Fp32Products::split:
      return amx_split_kernels();
  }
  return nullptr;
}

const TileKernels<float>*& chosen() {
  static const TileKernels<float>* kernels = amx_split_kernels();
  return kernels;
}

KERNELS_MULTIVERSION void scale_rows(float* out, std::int64_t out_stride, const float* sums,
                                     std::int64_t stride, const float* added, float scale, std::int64_t rows,
                                     std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; ++i) {
    float* const to = out + i * out_stride;
    const float *const from = sums + i * stride, *const other = added ? added + i * out_stride : nullptr;
    if (other) {
#pragma omp simd
      for (std::int64_t n = 0; n < columns; ++n) to[n] = scale * from[n] + other[n];
    } else {
#pragma omp simd
      for (std::int64_t n = 0; n < columns; ++n) to[n] = scale * from[n];
    }
  }
}

KERNELS_MULTIVERSION void finish_rows(const SplitResult& r, const float* sums, std::int64_t stride,
                                      std::int64_t row, std::int64_t column, std::int64_t rows,
                                      std::int64_t columns) {
  const float* const bias = r.bias ? r.bias + column : nullptr;
  for (std::int64_t i = 0; i < rows; ++i, sums += stride) {
    const std::int64_t at = (row + i) * r.stride + column;
    finish_row(r.out + at, sums, bias, r.added ? r.added + at : nullptr, columns);
  }
}

// What becomes of sums: packed_product().
struct Epilogue {
  const SplitResult& result;

  void finish(const float* sums, std::int64_t stride, std::int64_t row, std::int64_t column,
              std::int64_t rows, std::int64_t columns) const {
    if (result.scale == 1) return finish_rows(result, sums, stride, row, column, rows, columns);
    const std::int64_t at = row * result.stride + column;
    scale_rows(result.out + at, result.stride, sums, stride, result.added ? result.added + at : nullptr,
               result.scale, rows, columns);
  }
  void ask_for_added(std::int64_t row, std::int64_t column, std::int64_t rows) const {
    if (!result.added) return;
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* const line = result.added + (row + i) * result.stride + column;
      ask_for(line);
      ask_for(line + 16);
    }
  }
};

}  // namespace

const char* name(Fp32Products path) {
  switch (path) {
    case Fp32Products::blas:
      return "OpenBLAS";
    case Fp32Products::emulated_split:
      return "AMX, of three parts in bf16, emulated";
    case Fp32Products::split:
      return "AMX, of three parts in bf16";
  }
  return "";
}

std::vector<Fp32Products> fp32_products() {
  std::vector<Fp32Products> here;
  for (const Fp32Products path : {Fp32Products::blas, Fp32Products::emulated_split, Fp32Products::split})
    if (path == Fp32Products::blas || kernels_of(path)) here.push_back(path);
  return here;
}

void use_fp32_products(Fp32Products path) {
  chosen() = kernels_of(path);
}

bool takes_split_product(std::int64_t M, std::int64_t N, std::int64_t K) {
  constexpr std::int64_t kLeast = 48, kLeastSummed = 64;  // below, packing takes as long as products
  return chosen() && M >= kLeast && N >= kAmxColumns && K >= kLeastSummed;
}

void split_product(const SplitResult& result, Factor a, Factor b, std::int64_t M, std::int64_t N,
                   std::int64_t K) {
  packed_product<float>(*chosen(), {a.data, a.stride, a.transposed}, {b.data, b.stride, !b.transposed},
                        Epilogue{result}, M, N, K);
}

}  // namespace kernels::cpu
