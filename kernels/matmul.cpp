#include "kernels/matmul.h"

#include <algorithm>
#include <cstring>

#include "kernels/blas.h"
#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

int blas_int(std::int64_t n) {
  return static_cast<int>(n);
}

// Up to this many rows, y = x W^T is bound by reading W once; a BLAS packs W first, which reads and writes it
// again.
constexpr std::int64_t kMaxStreamedRows = 8;
constexpr int kLanes = 16;  // an AVX-512 register, two of AVX2

// Four lanes are a register of every machine's baseline, so that this type is safe in multiversioned code. (A
// chain of sixteen scalar additions, which is what the compiler makes of a loop, takes as long as the
// products themselves.)
KERNELS_INLINE float sum_lanes(const float (&lanes)[kLanes]) {
  using Quarter = float __attribute__((vector_size(16)));
  Quarter quarters[4];
  static_assert(sizeof quarters == sizeof lanes);
  std::memcpy(quarters, lanes, sizeof quarters);
  const Quarter sums = (quarters[0] + quarters[1]) + (quarters[2] + quarters[3]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// products[m][n] = inp row m . weight row n, for M rows of inp and N of weight, each weight row read once.
// The weight is asked for one group of rows ahead: its rows are too short for the processor's own prefetchers
// to get up to speed, and a model's weights come from memory, not from a cache.
template <int M, int N>
KERNELS_INLINE void dot_rows(float (&products)[kMaxStreamedRows][4], const float* inp, const float* weight,
                             std::int64_t K) {
  float lanes[M][N][kLanes] = {};
  const std::int64_t whole = K - K % kLanes;
  for (std::int64_t k = 0; k < whole; k += kLanes) {
    for (int n = 0; n < N; ++n) __builtin_prefetch(weight + (N + n) * K + k);
    for (int m = 0; m < M; ++m)
      for (int n = 0; n < N; ++n)
#pragma omp simd
        for (int lane = 0; lane < kLanes; ++lane)
          lanes[m][n][lane] += inp[m * K + k + lane] * weight[n * K + k + lane];
  }
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      float sum = sum_lanes(lanes[m][n]);
      for (std::int64_t k = whole; k < K; ++k) sum += inp[m * K + k] * weight[n * K + k];
      products[m][n] = sum;
    }
  }
}

template <int M>
KERNELS_INLINE void stream_rows(float* out, const float* inp, const float* weight, const float* bias,
                                const float* residual, MatmulShape s, std::int64_t begin, std::int64_t end) {
  constexpr int kStep = M <= 2 ? 4 : 2;
  float products[kMaxStreamedRows][4];
  std::int64_t n = begin;
  const auto store = [&](int columns) {
    for (int m = 0; m < M; ++m)
      for (int i = 0; i < columns; ++i) {
        const std::int64_t at = m * s.N + n + i;
        out[at] = products[m][i] + (bias ? bias[n + i] : 0.0f) + (residual ? residual[at] : 0.0f);
      }
  };
  for (; n + kStep <= end; n += kStep) {
    dot_rows<M, kStep>(products, inp, weight + n * s.K, s.K);
    store(kStep);
  }
  for (; n < end; ++n) {
    dot_rows<M, 1>(products, inp, weight + n * s.K, s.K);
    store(1);
  }
}

// Columns [begin, end) of out.
KERNELS_MULTIVERSION void matmul_streamed(float* out, const float* inp, const float* weight,
                                          const float* bias, const float* residual, MatmulShape s,
                                          std::int64_t begin, std::int64_t end) {
  switch (s.M) {
    case 1:
      return stream_rows<1>(out, inp, weight, bias, residual, s, begin, end);
    case 2:
      return stream_rows<2>(out, inp, weight, bias, residual, s, begin, end);
    case 3:
      return stream_rows<3>(out, inp, weight, bias, residual, s, begin, end);
    case 4:
      return stream_rows<4>(out, inp, weight, bias, residual, s, begin, end);
    case 5:
      return stream_rows<5>(out, inp, weight, bias, residual, s, begin, end);
    case 6:
      return stream_rows<6>(out, inp, weight, bias, residual, s, begin, end);
    case 7:
      return stream_rows<7>(out, inp, weight, bias, residual, s, begin, end);
    case 8:
      return stream_rows<8>(out, inp, weight, bias, residual, s, begin, end);
  }
}

KERNELS_MULTIVERSION void add_rows(float* out, const float* a, const float* b, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

// out (M, N) = bias + residual, whichever are there (one must be).
void preload(float* out, const float* bias, const float* residual, MatmulShape s) {
  parallel_ranges(s.M, s.N, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t m = begin; m < end; ++m) {
      float* row = out + m * s.N;
      const float* residual_row = residual ? residual + m * s.N : nullptr;
      if (bias && residual)
        add_rows(row, bias, residual_row, s.N);
      else
        std::copy_n(bias ? bias : residual_row, s.N, row);
    }
  });
}

// sums (begin..end) += column sums of dout (M, N).
KERNELS_MULTIVERSION void add_column_sums(float* sums, const float* dout, MatmulShape s, std::int64_t begin,
                                          std::int64_t end) {
  constexpr std::int64_t kColumns = 256;  // of partial sums, on the stack
  constexpr std::int64_t kRows = 64;      // summed before they join the total: keeps rounding errors short
  for (std::int64_t first = begin; first < end; first += kColumns) {
    const std::int64_t width = std::min(kColumns, end - first);
    for (std::int64_t top = 0; top < s.M; top += kRows) {
      const std::int64_t bottom = std::min(s.M, top + kRows);
      float partial[kColumns] = {};
      for (std::int64_t m = top; m < bottom; ++m)
#pragma omp simd
        for (std::int64_t n = 0; n < width; ++n) partial[n] += dout[m * s.N + first + n];
#pragma omp simd
      for (std::int64_t n = 0; n < width; ++n) sums[first + n] += partial[n];
    }
  }
}

}  // namespace

void matmul_forward(float* out, const float* inp, const float* weight, const float* bias,
                    const float* residual, MatmulShape s) {
  if (s.M <= kMaxStreamedRows) {
    parallel_ranges(s.N, s.K, [=](std::int64_t begin, std::int64_t end) {
      matmul_streamed(out, inp, weight, bias, residual, s, begin, end);
    });
    return;
  }
  const bool preloaded = bias || (residual && residual != out);
  if (preloaded) preload(out, bias, residual, s);
  const float beta = preloaded || residual ? 1.0f : 0.0f;
  blas().sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, blas_int(s.M), blas_int(s.N), blas_int(s.K), 1.0f,
               inp, blas_int(s.K), weight, blas_int(s.K), beta, out, blas_int(s.N));
}

void matmul_backward_input(float* dinp, const float* dout, const float* weight, bool accumulate,
                           MatmulShape s) {
  blas().sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, blas_int(s.M), blas_int(s.K), blas_int(s.N), 1.0f,
               dout, blas_int(s.N), weight, blas_int(s.K), accumulate ? 1.0f : 0.0f, dinp, blas_int(s.K));
}

void matmul_backward_weight(float* dweight, float* dbias, const float* dout, const float* inp, MatmulShape s,
                            bool accumulate) {
  if (dbias && !accumulate) std::fill_n(dbias, s.N, 0.0f);
  if (dbias)
    parallel_ranges(
        s.N, s.M, [=](std::int64_t begin, std::int64_t end) { add_column_sums(dbias, dout, s, begin, end); });
  blas().sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, blas_int(s.N), blas_int(s.K), blas_int(s.M), 1.0f,
               dout, blas_int(s.N), inp, blas_int(s.K), accumulate ? 1.0f : 0.0f, dweight, blas_int(s.K));
}

}  // namespace kernels::cpu
