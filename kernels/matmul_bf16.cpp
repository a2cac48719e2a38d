#include "kernels/matmul_bf16.h"

#include <algorithm>
#include <cstddef>

#include "kernels/bf16_values.h"
#include "kernels/packed_product.h"
#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

const Bf16Kernels* kernels_of(Bf16Products path) {
  switch (path) {
    case Bf16Products::plain:
      return &plain_bf16_kernels();
    case Bf16Products::emulated_amx:
      return &emulated_amx_bf16_kernels();
    case Bf16Products::avx512_bf16:
      return avx512_bf16_kernels();
    case Bf16Products::amx:
      return amx_bf16_kernels();
  }
  return nullptr;
}

// Chosen when a product first needs it: a process has to ask the system for AMX, which commands that compute
// nothing do not need.
const Bf16Kernels*& chosen() {
  static const Bf16Kernels* kernels = kernels_of(fastest_bf16_products());
  return kernels;
}

// Up to this many rows, a product is bound by reading its weight once (kernels/matmul.cpp).
constexpr std::int64_t kMaxStreamedRows = 8;

// What becomes of sums: packed_product().
struct Epilogue {
  bf16* narrow = nullptr;
  float* wide = nullptr;
  std::int64_t stride = 0;
  const bf16 *bias = nullptr, *added = nullptr;  // added (M, N), as the result lies; may be the result
  float scale = 1;                               // of the sums

  void finish(const float* sums, std::int64_t from, std::int64_t row, std::int64_t column, std::int64_t rows,
              std::int64_t columns) const;
  void ask_for(std::int64_t row, std::int64_t column, std::int64_t rows) const;
};

KERNELS_MULTIVERSION void finish_rows(const Epilogue& e, const float* sums, std::int64_t stride,
                                      std::int64_t row, std::int64_t column, std::int64_t rows,
                                      std::int64_t columns) {
  const bf16* const bias = e.bias ? e.bias + column : nullptr;
  for (std::int64_t i = 0; i < rows; ++i, sums += stride) {
    const std::int64_t at = (row + i) * e.stride + column;
    const bf16* const added = e.added ? e.added + at : nullptr;
    if (e.wide)
      finish_row(e.wide + at, sums, bias, added, columns, e.scale);
    else
      finish_row(e.narrow + at, sums, bias, added, columns, e.scale);
  }
}

void Epilogue::finish(const float* sums, std::int64_t from, std::int64_t row, std::int64_t column,
                      std::int64_t rows, std::int64_t columns) const {
  finish_rows(*this, sums, from, row, column, rows, columns);
}

void Epilogue::ask_for(std::int64_t row, std::int64_t column, std::int64_t rows) const {
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t at = (row + i) * stride + column;
    if (wide)
      cpu::ask_for(wide + at);
    else
      cpu::ask_for((added ? added : narrow) + at);
  }
}

void product(PackedFactor<bf16> a, PackedFactor<bf16> b, const Epilogue& epilogue, std::int64_t M,
             std::int64_t N, std::int64_t K) {
  packed_product(bf16_kernels(), a, b, epilogue, M, N, K);
}

// For few rows: each weight row read once.
void streamed(const Epilogue& epilogue, const bf16* inp, const bf16* weight, MatmulShape s) {
  const auto dots = chosen()->dots;
  parallel_ranges(s.N, s.K, [&](std::int64_t begin, std::int64_t end) {
    float products[kMaxStreamedRows * 4];
    for (std::int64_t n = begin; n < end; n += 4) {
      const std::int64_t count = std::min<std::int64_t>(4, end - n);
      dots(products, inp, weight + n * s.K, s.M, count, s.K);
      epilogue.finish(products, 4, 0, n, s.M, count);
    }
  });
}

// sums (begin..end) += scale * column sums of dout (M, N).
KERNELS_MULTIVERSION void add_column_sums(bf16* sums, const bf16* dout, float scale, MatmulShape s,
                                          std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kColumns = 256;
  for (std::int64_t first = begin; first < end; first += kColumns) {
    const std::int64_t width = std::min(kColumns, end - first);
    float total[kColumns] = {};
    for (std::int64_t m = 0; m < s.M; ++m)
#pragma omp simd
      for (std::int64_t n = 0; n < width; ++n) total[n] += widened(dout[m * s.N + first + n]);
    for (std::int64_t n = 0; n < width; ++n)
      sums[first + n] = rounded(widened(sums[first + n]) + scale * total[n]);
  }
}

}  // namespace

const char* name(Bf16Products path) {
  switch (path) {
    case Bf16Products::plain:
      return "fp32 multiplications";
    case Bf16Products::emulated_amx:
      return "AMX, emulated";
    case Bf16Products::avx512_bf16:
      return "AVX-512 BF16";
    case Bf16Products::amx:
      return "AMX";
  }
  return "";
}

std::vector<Bf16Products> bf16_products() {
  std::vector<Bf16Products> here;
  for (const Bf16Products path :
       {Bf16Products::plain, Bf16Products::emulated_amx, Bf16Products::avx512_bf16, Bf16Products::amx})
    if (kernels_of(path)) here.push_back(path);
  return here;
}

Bf16Products fastest_bf16_products() {
  return amx_bf16_kernels()      ? Bf16Products::amx
         : avx512_bf16_kernels() ? Bf16Products::avx512_bf16
                                 : Bf16Products::plain;
}

void use_bf16_products(Bf16Products path) {
  chosen() = kernels_of(path);
}

const Bf16Kernels& bf16_kernels() {
  return *chosen();
}

void matmul_forward(WideOrNarrow out, const bf16* inp, const bf16* weight, const bf16* bias,
                    const bf16* residual, MatmulShape s, FactorScales scales) {
  const Epilogue epilogue{out.narrow, out.wide, s.N, bias, residual, scales.of_sums()};
  if (s.M <= kMaxStreamedRows) return streamed(epilogue, inp, weight, s);
  product({inp, s.K, false}, {weight, s.K, false}, epilogue, s.M, s.N, s.K);
}

void matmul_backward_input(bf16* dinp, const bf16* dout, const bf16* weight, bool accumulate, MatmulShape s,
                           FactorScales scales) {
  product({dout, s.N, false}, {weight, s.K, true},
          {.narrow = dinp, .stride = s.K, .added = accumulate ? dinp : nullptr, .scale = scales.of_sums()},
          s.M, s.K, s.N);
}

void matmul_backward_weight(bf16* dweight, bf16* dbias, const bf16* dout, const bf16* inp, MatmulShape s,
                            bool accumulate, FactorScales scales) {
  if (dbias && !accumulate) std::fill_n(dbias, s.N, bf16{});
  if (dbias)
    parallel_ranges(s.N, s.M, [=](std::int64_t begin, std::int64_t end) {
      add_column_sums(dbias, dout, scales.first, s, begin, end);
    });
  product(
      {dout, s.N, true}, {inp, s.K, true},
      {.narrow = dweight, .stride = s.K, .added = accumulate ? dweight : nullptr, .scale = scales.of_sums()},
      s.N, s.K, s.M);
}

}  // namespace kernels::cpu
