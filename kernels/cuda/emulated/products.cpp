#include "kernels/cuda/products.h"

#include "kernels/cuda/gelu.h"

namespace kernels::cuda {

struct Products::Implementation {
  bool deterministic;
};

Products::Products(bool deterministic)
    : implementation_(std::make_unique<Implementation>(Implementation{deterministic})) {}
Products::~Products() = default;

namespace {

void multiply(const Product& p) {
  if (is_fp8(p.a.type) && (p.transpose_a || !p.transpose_b || p.N % 16 != 0 || p.K % 16 != 0))
    throw CudaError("cuBLASLt has no algorithm for this product in fp8");
  const auto element = [](ConstTensor tensor, std::int64_t index) {
    float value = 0;
    with_any_type(tensor.type, [&]<class T>(T) { value = to_float(tensor.as<T>()[index]); });
    return value;
  };
  const auto put = [](Tensor tensor, std::int64_t index, float value) {
    with_type(tensor.type, [&]<class T>(T) { tensor.as<T>()[index] = from_float<T>(value); });
  };
  const std::int64_t lda = p.lda ? p.lda : p.transpose_a ? p.M : p.K;
  const std::int64_t ldb = p.ldb ? p.ldb : p.transpose_b ? p.K : p.N;
  const std::int64_t ldout = p.ldout ? p.ldout : p.N;
  if (p.epilogue == Epilogue::row_sums)
    for (std::int64_t m = 0; m < p.M; ++m) {
      float sum = 0;
      for (std::int64_t k = 0; k < p.K; ++k) sum += element(p.a, p.transpose_a ? k * lda + m : m * lda + k);
      put(p.row_sums, m, sum);
    }
  for (std::int64_t batch = 0; batch < p.batch; ++batch)
    for (std::int64_t m = 0; m < p.M; ++m)
      for (std::int64_t n = 0; n < p.N; ++n) {
        float sum = 0;
        for (std::int64_t k = 0; k < p.K; ++k)
          sum += element(p.a, batch * p.stride_a + (p.transpose_a ? k * lda + m : m * lda + k)) *
                 element(p.b, batch * p.stride_b + (p.transpose_b ? n * ldb + k : k * ldb + n));
        sum *= p.scale * (p.scale_a ? *p.scale_a : 1.0f) * (p.scale_b ? *p.scale_b : 1.0f);
        const std::int64_t at = batch * p.stride_out + m * ldout + n;
        if (p.addend) sum += element(p.addend, at);
        if (p.bias) sum += element(p.bias, n);
        if (p.epilogue == Epilogue::gelu) {
          put(p.pre_activation, at, sum);
          sum = gelu(sum);
        }
        if (p.epilogue == Epilogue::gelu_gradient) sum *= gelu_slope(element(p.pre_activation, at));
        put(p.out, at, sum);
      }
}

}  // namespace

void Products::run(const Context&, const Product& product) {
  emulation::submit([product] { multiply(product); });
}

bool Products::run_if_faster(const Context& context, const Product& fused, const Product&,
                             const std::function<void(const Context&)>&) {
  if (implementation_->deterministic && fused.epilogue == Epilogue::gelu) return false;
  run(context, fused);
  return true;
}

}  // namespace kernels::cuda
