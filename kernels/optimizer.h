// AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101) as torch.optim.AdamW, Lion (Chen et al. 2023, arXiv
// 2302.06675), SGD with momentum, and the gradient norm for clipping.
#pragma once
#include <cstdint>
#include <span>

namespace kernels {

struct AdamWSettings {
  float learning_rate, beta1, beta2, eps, weight_decay;
  std::int64_t step;  // 1 for the first
};

// One tensor of a multi-tensor call, all (count) long.
struct AdamWTensor {
  float* parameter;
  const float* gradient;
  float* moment1;
  float* moment2;
  std::int64_t count;
  bool decay;  // weight decay applies (matrices, not norms and biases)
};

// One tensor of a multi-tensor call, all (count) long.
struct LionTensor {
  float* parameter;
  const float* gradient;
  float* moment;
  std::int64_t count;
  bool decay;
};

// One tensor of a multi-tensor call, all (count) long.
struct SgdTensor {
  float* parameter;
  const float* gradient;
  float* moment;
  std::int64_t count;
  bool decay;
};

namespace cpu {

// gradient_scale (a device scalar, e.g. the clip factor) multiplies every gradient first; null means 1.
void adamw(std::span<const AdamWTensor> tensors, const float* gradient_scale, const AdamWSettings& settings);

// parameter -= learning_rate * (sign(beta1 * moment + (1 - beta1) * gradient) + weight_decay * parameter),
// then moment = beta2 * moment + (1 - beta2) * gradient (algorithm 2); eps and step have no part in it.
void lion(std::span<const LionTensor> tensors, const float* gradient_scale, const AdamWSettings& settings);

// moment = beta1 * moment + gradient + weight_decay * parameter, parameter -= learning_rate * moment
// (torch.optim.SGD with momentum beta1, of no dampening); beta2, eps and step have no part in it.
void sgd(std::span<const SgdTensor> tensors, const float* gradient_scale, const AdamWSettings& settings);

// sum_of_squares[0] += sum over all elements of gradient^2, accumulated in double, order fixed.
void squared_norm(double* sum_of_squares, std::span<const float* const> gradients,
                  std::span<const std::int64_t> counts);

// norm = sqrt(sum_of_squares); scale = max_norm > 0 && norm > max_norm ? max_norm / (norm + 1e-6) : 1
// (torch.nn.utils.clip_grad_norm_).
void clip_scale(float* norm, float* scale, const double* sum_of_squares, float max_norm);

}  // namespace cpu
}  // namespace kernels
