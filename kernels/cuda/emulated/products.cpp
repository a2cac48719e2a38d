#include "kernels/cuda/products.h"

namespace kernels::cuda {

struct Products::Implementation {};

Products::Products(bool) {}
Products::~Products() = default;

void Products::run(const Context&, const Product& p) {
  const auto element = [](ConstTensor tensor, std::int64_t index) {
    return tensor.type == Type::f32 ? tensor.as<float>()[index] : to_float(tensor.as<bf16>()[index]);
  };
  const std::int64_t lda = p.lda ? p.lda : p.transpose_a ? p.M : p.K;
  const std::int64_t ldb = p.ldb ? p.ldb : p.transpose_b ? p.K : p.N;
  const std::int64_t ldout = p.ldout ? p.ldout : p.N;
  for (std::int64_t batch = 0; batch < p.batch; ++batch)
    for (std::int64_t m = 0; m < p.M; ++m)
      for (std::int64_t n = 0; n < p.N; ++n) {
        float sum = 0;
        for (std::int64_t k = 0; k < p.K; ++k)
          sum += element(p.a, batch * p.stride_a + (p.transpose_a ? k * lda + m : m * lda + k)) *
                 element(p.b, batch * p.stride_b + (p.transpose_b ? n * ldb + k : k * ldb + n));
        sum *= p.scale;
        const std::int64_t at = batch * p.stride_out + m * ldout + n;
        if (p.addend) sum += element(p.addend, at);
        if (p.bias) sum += element(p.bias, n);
        if (p.out.type == Type::f32)
          p.out.as<float>()[at] = sum;
        else
          p.out.as<bf16>()[at] = to_bf16(sum);
      }
}

}  // namespace kernels::cuda
