// AdamW, Lion, SGD, gradient norm and clipping on the GPU; meanings as kernels/optimizer.h. Numbers that
// change from step to step lie in device memory, so that a captured step can be replayed.
#pragma once
#include <span>

#include "kernels/cuda/launch.h"
#include "kernels/optimizer.h"

namespace kernels::cuda {

// What does not change from element to element.
struct AdamWStep {
  float beta1, beta2, one_minus_beta1, one_minus_beta2, step_size, rsqrt_correction2, eps;
  float learning_rate;      // Lion's and SGD's step; AdamW's is step_size
  float shrink;             // 1 - learning rate * weight decay, for tensors that decay
  float weight_decay;       // SGD's, which is part of the gradient
  double adafactor_rate;    // its step over a parameter's size
  double adafactor_by;      // how far its moments move towards new squares
  float max_gradient_norm;  // 0: no clipping
  float loss_scale;         // what gradients have been multiplied by (fp16); 0: by nothing
  std::uint32_t step;       // keys the random numbers of stochastic rounding
};
AdamWStep adamw_step(const AdamWSettings& settings, float max_gradient_norm, float loss_scale = 0);

// One tensor of a multi-tensor call, (count) each: parameter and gradient of their own types, moments fp32.
// With a master copy (fp32) that is what is updated, and the parameter is its rounded value. A 16-bit
// parameter without one is rounded stochastically: up with the probability of the remainder, by a number that
// depends on the step, the tensor's stream and the element alone.
struct AdamWTensor {
  Tensor parameter;
  ConstTensor gradient;
  float *moment1, *moment2, *master;
  std::int64_t count;
  std::uint64_t stream;  // no other tensor of the model has the same
};

// gradient_scale: the clip factor, a device scalar; where it is 0 the step is skipped and nothing changes.
// `decay` is of all tensors of the call.
void adamw(const Context& context, std::span<const AdamWTensor> tensors, const double* gradient_scale,
           const AdamWStep* step, bool decay);

struct LionTensor {
  Tensor parameter;
  ConstTensor gradient;
  float *moment, *master;
  std::int64_t count;
  std::uint64_t stream;
};
// Types, master copies, rounding and skipped steps as adamw's.
void lion(const Context& context, std::span<const LionTensor> tensors, const double* gradient_scale,
          const AdamWStep* step, bool decay);

struct SgdTensor {
  Tensor parameter;
  ConstTensor gradient;
  float *moment, *master;
  std::int64_t count;
  std::uint64_t stream;
};
// Types, master copies, rounding and skipped steps as adamw's.
void sgd(const Context& context, std::span<const SgdTensor> tensors, const double* gradient_scale,
         const AdamWStep* step, bool decay);

// The gradient norm's three numbers (device memory).
struct GradientNorm {
  double sum_of_squares, norm, clip_scale;
};

struct GradientTensor {
  ConstTensor gradient;
  std::int64_t count;
};
// norm->sum_of_squares += factor * the sum of all squares, in double, in an order that depends on the counts
// alone.
void add_squares(const Context& context, GradientNorm* norm, std::span<const GradientTensor> gradients,
                 double factor);

// sums (batch): the sum of squares of each `count` of values, in double, in an order that depends on count
// alone.
void sums_of_squares(const Context& context, double* sums, ConstTensor values, std::int64_t batch,
                     std::int64_t count);

// The sum of `count` numbers, in an order that depends on count alone.
void add_up(const Context& context, double* sum, const double* parts, std::int64_t count);

// *found = 1 where any gradient is infinite or NaN. Gradients keep the loss's scale: dividing them in 16 bits
// would lose the smallest ones. The norm and the update divide by it instead.
void find_overflow(const Context& context, float* found, std::span<const GradientTensor> gradients);

// norm and clip_scale from sum_of_squares, with the loss's scale taken out: clip_scale is what the update
// multiplies gradients by. With a loss scale and a norm that is no finite number it is 0: the step is skipped
// (Micikevicius et al. 2018, arXiv 1710.03740).
void clip_scale(const Context& context, GradientNorm* norm, const AdamWStep* step);

}  // namespace kernels::cuda
