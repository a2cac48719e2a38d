#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/adafactor.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/strided_rows.h"
#include "kernels/cuda/update.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = kUpdateThreads;

template <class P, class T>
CUDA_DEVICE Moved<P> moved(const T& tensor, const AdamWStep& step) {
  return {tensor.parameter.template as<P>(), tensor.master, rounding_key(step.step, tensor.stream)};
}

template <class P, class G, int Width>
CUDA_KERNEL(kThreads)
adamw_kernel(CUDA_GRID_CONSTANT TensorGroup<AdamWTensor> group, const double* gradient_scale,
             const AdamWStep* step, bool decay) {
  if (*gradient_scale == 0) return;
  const OwnTensor own = own_tensor(group);
  const AdamWTensor& t = group.of[own.tensor];
  const AdamWStep s = *step;
  const float scale = static_cast<float>(*gradient_scale);
  const float shrink = decay ? s.shrink : 1.0f;
  move_elements<Width, 2>(
      moved<P>(t, s), t.gradient.as<G>(), Moments<2>{{t.moment1, t.moment2}}, t.count,
      own_elements<Width>(own.block, own.blocks), [&](float& value, float g, float(&moments)[2]) {
        auto& [m, v] = moments;
        g *= scale;
        m = s.beta1 * m + s.one_minus_beta1 * g;
        v = s.beta2 * v + s.one_minus_beta2 * g * g;
        value = value * shrink - s.step_size * m / (sqrtf(v) * s.rsqrt_correction2 + s.eps);
      });
}

template <class P, class G, int Width>
CUDA_KERNEL(kThreads)
lion_kernel(CUDA_GRID_CONSTANT TensorGroup<LionTensor> group, const double* gradient_scale,
            const AdamWStep* step, bool decay) {
  if (*gradient_scale == 0) return;
  const OwnTensor own = own_tensor(group);
  const LionTensor& t = group.of[own.tensor];
  const AdamWStep s = *step;
  const float scale = static_cast<float>(*gradient_scale);
  const float shrink = decay ? s.shrink : 1.0f;
  move_elements<Width, 1>(moved<P>(t, s), t.gradient.as<G>(), Moments<1>{{t.moment}}, t.count,
                          own_elements<Width>(own.block, own.blocks),
                          [&](float& value, float g, float(&moments)[1]) {
                            float& m = moments[0];
                            g *= scale;
                            const float direction = s.beta1 * m + s.one_minus_beta1 * g;
                            const float signed_step = direction > 0   ? s.learning_rate
                                                      : direction < 0 ? -s.learning_rate
                                                                      : direction;  // zero or NaN
                            m = s.beta2 * m + s.one_minus_beta2 * g;
                            value = value * shrink - signed_step;
                          });
}

template <class P, class G, int Width>
CUDA_KERNEL(kThreads)
sgd_kernel(CUDA_GRID_CONSTANT TensorGroup<SgdTensor> group, const double* gradient_scale,
           const AdamWStep* step, bool decay) {
  if (*gradient_scale == 0) return;
  const OwnTensor own = own_tensor(group);
  const SgdTensor& t = group.of[own.tensor];
  const AdamWStep s = *step;
  const float scale = static_cast<float>(*gradient_scale);
  const float weight_decay = decay ? s.weight_decay : 0.0f;
  move_elements<Width, 1>(moved<P>(t, s), t.gradient.as<G>(), Moments<1>{{t.moment}}, t.count,
                          own_elements<Width>(own.block, own.blocks),
                          [&](float& value, float g, float(&moments)[1]) {
                            float& m = moments[0];
                            m = s.beta1 * m + (g * scale + weight_decay * value);
                            value -= s.learning_rate * m;
                          });
}

// The unit in which squares are summed, a block each.
constexpr std::int64_t kNormChunk = 1 << 14;

struct Values {
  ConstTensor tensor;
  std::int64_t count;
};

// partials: of each block, over a unit of its tensor.
template <class G, int Width>
CUDA_KERNEL(kThreads)
squares_kernel(double* partials, CUDA_GRID_CONSTANT TensorGroup<Values> group) {
  const OwnTensor own = own_tensor(group);
  const Values& values = group.of[own.tensor];
  const G* const x = values.tensor.as<G>();
  const std::int64_t begin = own.block * kNormChunk;
  const std::int64_t end = begin + kNormChunk < values.count ? begin + kNormChunk : values.count;
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = begin + thread_index() * Width; i < end; i += kThreads * Width) {
    float of[Width];
    load<Width>(of, x + i);
#pragma unroll
    for (int w = 0; w < Width; ++w) sum += static_cast<double>(of[w]) * static_cast<double>(of[w]);
  }
  sum = block_sum_in_double<kThreads>(sum, shared_memory<double>());
  if (thread_index() == 0) partials[block_index().x] = sum;
}

// sums = factor * the sum of each block's `count` partial sums; with or without what was there before.
CUDA_KERNEL(kThreads)
add_squares_kernel(double* sums, const double* partials, std::int64_t count, double factor, bool add) {
  const double* const own = partials + block_index().x * count;
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = thread_index(); i < count; i += kThreads) sum += own[i];
  sum = block_sum_in_double<kThreads>(sum, shared_memory<double>());
  if (thread_index() == 0) sums[block_index().x] = (add ? sums[block_index().x] : 0) + factor * sum;
}

constexpr std::size_t kSumBytes = kThreads * sizeof(double);  // of shared memory, for block_sum_in_double

std::int64_t chunks_of(std::int64_t count) {
  return ceil_div(count, kNormChunk);
}

// partials: of each unit of each tensor, in their order.
void launch_squares(const Context& context, double* partials, std::span<const Values> tensors) {
  constexpr int kWidth = 8;
  const auto width = [](const Values& v) {
    return v.count % kWidth == 0 && is_vector_aligned(v.tensor.data) ? kWidth : 1;
  };
  const auto alike = [&](const Values& a, const Values& b) {
    return a.tensor.type == b.tensor.type && width(a) == width(b);
  };
  in_groups(
      tensors, alike, [](const Values& v) { return static_cast<int>(chunks_of(v.count)); },
      [&](const TensorGroup<Values>& group, int blocks) {
        with_type(group.of[0].tensor.type, [&]<class G>(G) {
          const Launch launch{.grid = {blocks, 1, 1}, .threads = kThreads, .shared_bytes = kSumBytes};
          width(group.of[0]) == 1 ? start(context, launch, squares_kernel<G, 1>, partials, group)
                                  : start(context, launch, squares_kernel<G, kWidth>, partials, group);
        });
        partials += blocks;
      });
}

void launch_sums(const Context& context, double* sums, const double* partials, std::int64_t batch,
                 std::int64_t count, double factor, bool add) {
  start(context, {.grid = {static_cast<int>(batch), 1, 1}, .threads = kThreads, .shared_bytes = kSumBytes},
        add_squares_kernel, sums, partials, count, factor, add);
}

CUDA_KERNEL(kWarp) clip_scale_kernel(GradientNorm* norm, const AdamWStep* step) {
  if (thread_index() != 0) return;
  const double loss_scale = step->loss_scale > 0 ? step->loss_scale : 1.0;
  const double total = sqrt(norm->sum_of_squares) / loss_scale;
  const double most = step->max_gradient_norm;
  norm->norm = total;
  const bool overflowed = step->loss_scale > 0 && !(total < INFINITY);
  const double clip = most > 0 && total > most ? most / (total + 1e-6) : 1.0;
  norm->clip_scale = overflowed ? 0.0 : clip / loss_scale;
}

template <class G, int Width>
CUDA_KERNEL(kThreads)
find_overflow_kernel(float* found, const G* gradient, std::int64_t count) {
  bool any = false;
  const OwnElements<Width> own = own_elements<Width>();
  for (std::int64_t i = own.first; i < count; i += own.stride) {
    float g[Width];
    load<Width>(g, gradient + i);
#pragma unroll
    for (int w = 0; w < Width; ++w) any |= !(fabsf(g[w]) < INFINITY);
  }
  if (any_in_block(any) && thread_index() == 0) *found = 1;
}

}  // namespace

AdamWStep adamw_step(const AdamWSettings& settings, float max_gradient_norm, float loss_scale) {
  const double beta1 = settings.beta1, beta2 = settings.beta2, steps = static_cast<double>(settings.step);
  return {
      .beta1 = settings.beta1,
      .beta2 = settings.beta2,
      .one_minus_beta1 = static_cast<float>(1 - beta1),
      .one_minus_beta2 = static_cast<float>(1 - beta2),
      .step_size = static_cast<float>(settings.learning_rate / (1 - std::pow(beta1, steps))),
      .rsqrt_correction2 = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, steps))),
      .eps = settings.eps,
      .learning_rate = settings.learning_rate,
      .shrink = static_cast<float>(1 - double{settings.learning_rate} * settings.weight_decay),
      .weight_decay = settings.weight_decay,
      .adafactor_rate = std::min(double{settings.learning_rate}, 1 / std::sqrt(steps)),
      .adafactor_by = std::pow(steps, kAdafactorDecayPower),
      .max_gradient_norm = max_gradient_norm,
      .loss_scale = loss_scale,
      .step = static_cast<std::uint32_t>(settings.step),
  };
}

void adamw(const Context& context, std::span<const AdamWTensor> tensors, const double* gradient_scale,
           const AdamWStep* step, bool decay) {
  update_in_groups(
      tensors, [&]<class P, class G, int Width>(const Launch& launch, const TensorGroup<AdamWTensor>& group) {
        start(context, launch, adamw_kernel<P, G, Width>, group, gradient_scale, step, decay);
      });
}

void lion(const Context& context, std::span<const LionTensor> tensors, const double* gradient_scale,
          const AdamWStep* step, bool decay) {
  update_in_groups(
      tensors, [&]<class P, class G, int Width>(const Launch& launch, const TensorGroup<LionTensor>& group) {
        start(context, launch, lion_kernel<P, G, Width>, group, gradient_scale, step, decay);
      });
}

void sgd(const Context& context, std::span<const SgdTensor> tensors, const double* gradient_scale,
         const AdamWStep* step, bool decay) {
  update_in_groups(
      tensors, [&]<class P, class G, int Width>(const Launch& launch, const TensorGroup<SgdTensor>& group) {
        start(context, launch, sgd_kernel<P, G, Width>, group, gradient_scale, step, decay);
      });
}

void add_squares(const Context& context, GradientNorm* norm, std::span<const GradientTensor> gradients,
                 double factor) {
  std::vector<Values> tensors;
  std::int64_t chunks = 0;
  for (const GradientTensor& g : gradients) {
    tensors.push_back({g.gradient, g.count});
    chunks += chunks_of(g.count);
  }
  double* const partials = context.scratch_for<double>(chunks);
  launch_squares(context, partials, tensors);
  launch_sums(context, &norm->sum_of_squares, partials, 1, chunks, factor, true);
}

void sums_of_squares(const Context& context, double* sums, ConstTensor values, std::int64_t batch,
                     std::int64_t count) {
  const std::int64_t chunks = chunks_of(count);
  double* const partials = context.scratch_for<double>(batch * chunks);
  std::vector<Values> tensors;
  for (std::int64_t i = 0; i < batch; ++i) tensors.push_back({from_row(values, i, count), count});
  launch_squares(context, partials, tensors);
  launch_sums(context, sums, partials, batch, chunks, 1.0, false);
}

void add_up(const Context& context, double* sum, const double* parts, std::int64_t count) {
  launch_sums(context, sum, parts, 1, count, 1.0, false);
}

void find_overflow(const Context& context, float* found, std::span<const GradientTensor> gradients) {
  for (const GradientTensor& g : gradients)
    with_type(g.gradient.type, [&]<class G>(G) {
      const auto launch = [&]<int Width>() {
        start(context, {.grid = {blocks_for(g.count / Width, kThreads), 1, 1}, .threads = kThreads},
              find_overflow_kernel<G, Width>, found, g.gradient.as<G>(), g.count);
      };
      g.count % kVector<G> == 0 ? launch.template operator()<kVector<G>>() : launch.template operator()<1>();
    });
}

void clip_scale(const Context& context, GradientNorm* norm, const AdamWStep* step) {
  start(context, {.threads = kWarp}, clip_scale_kernel, norm, step);
}

}  // namespace kernels::cuda
