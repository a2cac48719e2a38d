// The tensor-core product, at shapes on both sides of its tiles' borders.
#include "kernels/cuda/gemm_tensor_cores.h"
#include "kernels/cuda/products.h"
#include "tests/cuda/on_gpu.h"

namespace cuda = kernels::cuda;
using cuda::Type;
using tests::DeviceArray;

TEST_CASE("the tensor-core product is as accurate as a plain one, whatever the order of threads") {
  struct Shape {
    std::int64_t M, N, K;
  };
  for (const Shape s : {Shape{16, 8, 8}, Shape{130, 40, 72}, Shape{20, 129, 128}}) {
    CAPTURE(s.M, s.N, s.K);
    const auto inp = tests::normal_tensor(s.M * s.K, 1, Type::bf16),
               weight = tests::normal_tensor(s.N * s.K, 2, Type::bf16);
    std::vector<double> exact;
    std::vector<float> plain;
    for (std::int64_t m = 0; m < s.M; ++m)
      for (std::int64_t n = 0; n < s.N; ++n) {
        double sum = 0;
        float sum_f32 = 0;
        for (std::int64_t k = 0; k < s.K; ++k) {
          const float x = inp[static_cast<std::size_t>(m * s.K + k)],
                      w = weight[static_cast<std::size_t>(n * s.K + k)];
          sum += static_cast<double>(x) * static_cast<double>(w);
          sum_f32 += x * w;
        }
        exact.push_back(sum);
        plain.push_back(sum_f32);
      }
    const auto values = tests::in_every_order([&] {
      DeviceArray x(inp, Type::bf16), w(weight, Type::bf16), out(s.M * s.N, Type::bf16);
      cuda::gemm_tensor_cores(tests::no_scratch(), out, x, w, s.M, s.N, s.K);
      return out.values();
    });
    tests::check_as_accurate_as_plain(values, tests::rounded(plain, Type::bf16), exact, Type::bf16,
                                      test::kForward);
  }
}

// What the device asks of matrix products: transposed operands, rows farther apart than they are long,
// batches at strides, biases, and adding to what is there.
TEST_CASE("products take transposed, strided and batched operands, biases and addends") {
  const std::int64_t M = 5, N = 6, K = 8, batch = 2;
  for (const Type type : {Type::f32, Type::bf16, Type::f16})
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        CAPTURE(static_cast<int>(type), transpose_a, transpose_b);
        const std::int64_t lda = (transpose_a ? M : K) + 8, ldb = (transpose_b ? K : N) + 8, ldout = N + 2;
        const std::int64_t rows_a = transpose_a ? K : M, rows_b = transpose_b ? N : K;
        const auto a = tests::normal_tensor(batch * rows_a * lda, 1, type),
                   b = tests::normal_tensor(batch * rows_b * ldb, 2, type),
                   bias = tests::normal_tensor(N, 3, type),
                   before = tests::normal_tensor(batch * M * ldout, 4, type);
        std::vector<double> exact(before.begin(), before.end());
        std::vector<float> plain = before;
        for (std::int64_t i = 0; i < batch; ++i)
          for (std::int64_t m = 0; m < M; ++m)
            for (std::int64_t n = 0; n < N; ++n) {
              double sum = 0;
              for (std::int64_t k = 0; k < K; ++k)
                sum += static_cast<double>(a[static_cast<std::size_t>(
                           i * rows_a * lda + (transpose_a ? k * lda + m : m * lda + k))]) *
                       static_cast<double>(b[static_cast<std::size_t>(
                           i * rows_b * ldb + (transpose_b ? n * ldb + k : k * ldb + n))]);
              const auto at = static_cast<std::size_t>((i * M + m) * ldout + n);
              exact[at] += 0.5 * sum + static_cast<double>(bias[static_cast<std::size_t>(n)]);
              plain[at] = static_cast<float>(exact[at]);
            }
        tests::Scratch scratch;
        DeviceArray a_array(a, type), b_array(b, type), bias_array(bias, type), out(before, type);
        cuda::Products products(true);
        products.run(scratch.context(), {.M = M,
                                         .N = N,
                                         .K = K,
                                         .a = a_array,
                                         .b = b_array,
                                         .out = out,
                                         .transpose_a = transpose_a,
                                         .transpose_b = transpose_b,
                                         .bias = bias_array,
                                         .addend = out,
                                         .scale = 0.5f,
                                         .lda = lda,
                                         .ldb = ldb,
                                         .ldout = ldout,
                                         .batch = batch,
                                         .stride_a = rows_a * lda,
                                         .stride_b = rows_b * ldb,
                                         .stride_out = M * ldout});
        // The library rounds twice in 16 bits, before and behind the bias.
        tests::check_as_accurate_as_plain(out.values(), tests::rounded(plain, type), exact, type,
                                          2 * test::kForward);
      }
}
