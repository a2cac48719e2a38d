// A block a row, which is read twice and written once: maximum and sum of exponentials in one pass (online
// softmax, Milakov & Gimelshein 2018, arXiv 1805.02867), then the gradient.
#include "kernels/cuda/cross_entropy.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr float kLog2e = 1.44269504088896341f;
constexpr float kLowest = -1e30f;  // below every logit that is not -inf, and finite in base 2
constexpr int kWarps = kThreads / kWarp;

// Shared memory: two numbers for each warp.
template <class T, int Width>
CUDA_KERNEL(kThreads)
cross_entropy_kernel(T* logits_to_dlogits, float* losses, const std::int32_t* targets, float scale,
                     const float* loss_scale, std::int64_t V) {
  float* const partials = shared_memory<float>();
  const std::int64_t row = block_index().x;
  T* const logits = logits_to_dlogits + row * V;
  const std::int64_t first = static_cast<std::int64_t>(thread_index()) * Width;
  const std::int64_t stride = static_cast<std::int64_t>(block_size()) * Width;
  const std::int32_t target = targets[row];
  if (target < 0) {
    const float nothing[Width] = {};
    for (std::int64_t v = first; v < V; v += stride) store<Width>(logits + v, nothing);
    if (thread_index() == 0) losses[row] = 0;
    return;
  }

  // Exponents of 2, which the hardware knows, and no branch on a logit of -inf: below a finite bound it is 0
  // by itself. The kernel is else bound by its instructions and not by its bytes.
  float bound = kLowest, own_sum = 0;
  for (std::int64_t v = first; v < V; v += stride) {
    float x[Width];
    load<Width>(x, logits + v);
    float highest = bound;
#pragma unroll
    for (int w = 0; w < Width; ++w) highest = fmaxf(highest, x[w]);
    if (highest > bound) {
      own_sum *= exp2_fast((bound - highest) * kLog2e);
      bound = highest;
    }
    const float base = bound * kLog2e;
#pragma unroll
    for (int w = 0; w < Width; ++w) own_sum += exp2_fast(fmaf(x[w], kLog2e, -base));
  }
  const float highest = block_max(bound, partials);
  const float sum = block_sum(own_sum * exp2_fast((bound - highest) * kLog2e), partials + kWarps);
  // Its value is read before any thread writes gradients, and the loss before the barrier below.
  if (thread_index() == 0) losses[row] = logf(sum) - (to_float(logits[target]) - highest);
  sync_block();

  const float one = loss_scale == nullptr ? scale : scale * *loss_scale;  // of a gradient
  const float factor = one / sum, base = highest * kLog2e;
  for (std::int64_t v = first; v < V; v += stride) {
    float x[Width];
    load<Width>(x, logits + v);
    const auto at = static_cast<int>(target - v);  // of the target in x; vocabularies are far below 2^31
#pragma unroll
    for (int w = 0; w < Width; ++w) {
      x[w] = exp2_fast(fmaf(x[w], kLog2e, -base)) * factor;
      if (w == at) x[w] -= one;
    }
    store<Width>(logits + v, x);
  }
}

}  // namespace

void cross_entropy_forward_backward(const Context& context, Tensor logits_to_dlogits, float* losses,
                                    const std::int32_t* targets, float scale, const float* loss_scale,
                                    std::int64_t R, std::int64_t V) {
  with_type(logits_to_dlogits.type, [&]<class T>(T) {
    const auto launch = [&]<int Width>() {
      start(context,
            {.grid = {static_cast<int>(R), 1, 1},
             .threads = threads_for(ceil_div(V, Width), kThreads),
             .shared_bytes = 2 * kWarps * sizeof(float)},
            cross_entropy_kernel<T, Width>, logits_to_dlogits.as<T>(), losses, targets, scale, loss_scale, V);
    };
    V % kVector<T> == 0 ? launch.template operator()<kVector<T>>() : launch.template operator()<1>();
  });
}

}  // namespace kernels::cuda
