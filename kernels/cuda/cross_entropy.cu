// A block a row: maximum and sum of exponentials in one pass (online softmax, Milakov & Gimelshein 2018,
// arXiv 1805.02867), then the gradient. A row that leaves room for a second block on a multiprocessor waits
// in shared memory between the two, so that it is read once and written once; a longer one is read twice.
#include "kernels/cuda/cross_entropy.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr float kLog2e = 1.44269504088896341f;
constexpr float kLowest = -1e30f;  // below every logit that is not -inf, and finite in base 2
constexpr int kWarps = kThreads / kWarp;

// Half of what a multiprocessor of compute capability 9.0 has, 228 KB, less the 1 KB that it keeps for each
// block.
constexpr std::size_t kMostShared = 113 << 10;
constexpr std::size_t kPartials = 2 * kWarps * sizeof(float);

// Shared memory: two numbers for each warp; behind them the row where it is kept.
template <class T, int Width, bool Kept>
CUDA_KERNEL(kThreads)
cross_entropy_kernel(T* logits_to_dlogits, float* losses, const std::int32_t* targets, float scale,
                     const float* loss_scale, std::int64_t V, std::int64_t words) {
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

  // Whole vectors; behind them the first thread has what is left of the words, beside padding that counts for
  // nothing, whatever stands there.
  const std::int64_t whole = words / Width * Width, rest = whole + first;
  const auto load_rest = [=](float(&x)[Width], const T* from) {
    load<Width>(x, from + rest);
#pragma unroll
    for (int w = 0; w < Width; ++w)
      if (rest + w >= words) x[w] = -INFINITY;
  };
  // A thread reads what it has copied itself: nobody waits for others.
  const T* row_values = logits;
  if constexpr (Kept) {
    T* const kept = reinterpret_cast<T*>(partials + 2 * kWarps);
    for (std::int64_t v = first; v < whole; v += stride) copy_async(kept + v, logits + v, true);
    if (rest < words) copy_async(kept + rest, logits + rest, true);
    commit_copies();
    wait_for_copies<0>();
    row_values = kept;
  }
  // Exponents of 2, which the hardware knows, and no branch on a logit of -inf: below a finite bound it is 0
  // by itself. The kernel is else bound by its instructions and not by its bytes.
  float bound = kLowest, own_sum = 0;
  const auto add = [&](const float(&x)[Width]) {
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
  };
  for (std::int64_t v = first; v < whole; v += stride) {
    float x[Width];
    load<Width>(x, row_values + v);
    add(x);
  }
  if (rest < words) {
    float x[Width];
    load_rest(x, row_values);
    add(x);
  }
  const float highest = block_max(bound, partials);
  const float sum = block_sum(own_sum * exp2_fast((bound - highest) * kLog2e), partials + kWarps);
  // Its value is read before any thread writes gradients, and the loss before the barrier below.
  if (thread_index() == 0) losses[row] = logf(sum) - (to_float(logits[target]) - highest);
  sync_block();

  const float one = loss_scale == nullptr ? scale : scale * *loss_scale;  // of a gradient
  const float factor = one / sum, base = highest * kLog2e;
  const auto store_gradient = [&](float(&x)[Width], std::int64_t v) {
    const auto at = static_cast<int>(target - v);  // of the target in x; vocabularies are far below 2^31
#pragma unroll
    for (int w = 0; w < Width; ++w) {
      x[w] = exp2_fast(fmaf(x[w], kLog2e, -base)) * factor;
      if (w == at) x[w] -= one;
    }
    store<Width>(logits + v, x);
  };
  for (std::int64_t v = first; v < whole; v += stride) {
    float x[Width];
    load<Width>(x, row_values + v);
    store_gradient(x, v);
  }
  if (rest < words) {
    float x[Width];
    load_rest(x, row_values);
    store_gradient(x, rest);
  }
  const float nothing[Width] = {};
  for (std::int64_t v = ceil_div(words, Width) * Width + first; v < V; v += stride)
    store<Width>(logits + v, nothing);
}

}  // namespace

void cross_entropy_forward_backward(const Context& context, Tensor logits_to_dlogits, float* losses,
                                    const std::int32_t* targets, float scale, const float* loss_scale,
                                    std::int64_t R, std::int64_t V, std::int64_t words) {
  with_type(logits_to_dlogits.type, [&]<class T>(T) {
    const auto launch = [&]<int Width, bool Kept>() {
      start(context,
            {.grid = {static_cast<int>(R), 1, 1},
             .threads = threads_for(ceil_div(V, Width), kThreads),
             .shared_bytes = kPartials + (Kept ? static_cast<std::size_t>(V) * sizeof(T) : 0)},
            cross_entropy_kernel<T, Width, Kept>, logits_to_dlogits.as<T>(), losses, targets, scale,
            loss_scale, V, words);
    };
    if (V % kVector<T> != 0) return launch.template operator()<1, false>();
    const bool fits = kPartials + static_cast<std::size_t>(V) * sizeof(T) <= kMostShared;
    fits ? launch.template operator()<kVector<T>, true>() : launch.template operator()<kVector<T>, false>();
  });
}

}  // namespace kernels::cuda
