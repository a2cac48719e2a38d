#include "kernels/matmul_packed.h"

#include <algorithm>

#include "kernels/packed_product.h"
#include "kernels/packed_tile.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

const TileKernels<float>* kernels_of(Fp32Products path) {
  switch (path) {
    case Fp32Products::blas:
      return nullptr;
    case Fp32Products::plain:
      return &plain_fp32_kernels();
    case Fp32Products::avx512:
      return avx512_fp32_kernels();
    case Fp32Products::emulated_split:
      return &emulated_amx_split_kernels();
    case Fp32Products::split:
      return amx_split_kernels();
  }
  return nullptr;
}

const TileKernels<float>*& chosen() {
  static const TileKernels<float>* kernels = kernels_of(fastest_fp32_products());
  return kernels;
}

KERNELS_MULTIVERSION void finish_rows(const Fp32Result& r, const float* sums, std::int64_t stride,
                                      std::int64_t row, std::int64_t column, std::int64_t rows,
                                      std::int64_t columns) {
  const float* const bias = r.bias ? r.bias + column : nullptr;
  for (std::int64_t i = 0; i < rows; ++i, sums += stride) {
    const std::int64_t at = (row + i) * r.stride + column;
    finish_row(r.out + at, sums, bias, r.added ? r.added + at : nullptr, columns, r.scale);
  }
}

// What becomes of sums: packed_product().
struct Epilogue {
  const Fp32Result& result;

  void finish(const float* sums, std::int64_t stride, std::int64_t row, std::int64_t column,
              std::int64_t rows, std::int64_t columns) const {
    finish_rows(result, sums, stride, row, column, rows, columns);
  }
  void ask_for(std::int64_t row, std::int64_t column, std::int64_t rows) const {
    const float* const from = result.added ? result.added : result.out;
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* const line = from + (row + i) * result.stride + column;
      cpu::ask_for(line);
      cpu::ask_for(line + 16);
    }
  }
};

}  // namespace

const char* name(Fp32Products path) {
  switch (path) {
    case Fp32Products::blas:
      return "OpenBLAS";
    case Fp32Products::plain:
      return "tiles of any processor's vectors";
    case Fp32Products::avx512:
      return "AVX-512";
    case Fp32Products::emulated_split:
      return "AMX, of three parts in bf16, emulated";
    case Fp32Products::split:
      return "AMX, of three parts in bf16";
  }
  return "";
}

std::vector<Fp32Products> fp32_products() {
  std::vector<Fp32Products> here;
  for (const Fp32Products path : {Fp32Products::blas, Fp32Products::plain, Fp32Products::avx512,
                                  Fp32Products::emulated_split, Fp32Products::split})
    if (path == Fp32Products::blas || kernels_of(path)) here.push_back(path);
  return here;
}

Fp32Products fastest_fp32_products() {
  return amx_split_kernels()     ? Fp32Products::split
         : avx512_fp32_kernels() ? Fp32Products::avx512
                                 : Fp32Products::blas;
}

void use_fp32_products(Fp32Products path) {
  chosen() = kernels_of(path);
}

const TileKernels<float>* fp32_kernels() {
  return chosen();
}

bool takes_packed_product(std::int64_t M, std::int64_t N, std::int64_t K) {
  constexpr std::int64_t kLeast = 48, kLeastColumns = 32,
                         kLeastSummed = 64;  // below, packing takes as long as products
  return chosen() && M >= kLeast && N >= kLeastColumns && K >= kLeastSummed &&
         M * N * K >= chosen()->least_work;
}

void packed_fp32_product(const Fp32Result& result, Factor a, Factor b, std::int64_t M, std::int64_t N,
                         std::int64_t K) {
  packed_product<float>(*chosen(), {a.data, a.stride, a.transposed}, {b.data, b.stride, !b.transposed},
                        Epilogue{result}, M, N, K);
}

}  // namespace kernels::cpu
