// The softmax of standard attention, over scores in memory.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/attention_schedule.h"
#include "kernels/cuda/online_softmax.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// A block a row of scores. Shared memory: two numbers for each warp.
template <class T>
CUDA_KERNEL(kThreads)
softmax_forward_kernel(T* scores, AttentionSizes s) {
  const std::int64_t T_ = s.T;
  float* const partials = shared_memory<float>();
  T* const row = scores + static_cast<std::int64_t>(block_index().y) * T_ * T_ + block_index().x * T_;
  const int seen = block_index().x + 1, head = block_index().y % s.H;
  const int begin = first_visible_key(block_index().x, s.window, s.chunk);
  const float slope = s.slope(head);
  const auto score_of = [&](int t) {
    return to_float(row[t]) * s.scale + slope * static_cast<float>(t - block_index().x);
  };
  SoftmaxState state;
  if (s.sinks != nullptr && thread_index() == 0) state = {s.sink(head), 1};
  for (int t = begin + thread_index(); t < seen; t += block_size()) {
    const float x = score_of(t);
    state.raise(x);
    state.sum += exp_below(x, state.highest);
  }
  const float highest = block_max(state.highest, partials);
  const float sum = block_sum(state.sum * exp_below(state.highest, highest), partials + kWarps);
  for (int t = thread_index(); t < T_; t += block_size())
    row[t] = from_float<T>(t >= begin && t < seen ? expf(score_of(t) - highest) / sum : 0.0f);
}

// HasSinks: of_sinks is written.
template <class T, bool HasSinks>
CUDA_KERNEL(kThreads)
softmax_backward_kernel(T* gradients, const T* probabilities, float* of_sinks, AttentionSizes s) {
  const std::int64_t T_ = s.T;
  const std::int64_t at = static_cast<std::int64_t>(block_index().y) * T_ * T_ + block_index().x * T_;
  T* const gradient = gradients + at;
  const T* const p = probabilities + at;
  const int seen = block_index().x + 1;
  float product = 0;
  for (int t = thread_index(); t < seen; t += block_size()) product += to_float(p[t]) * to_float(gradient[t]);
  product = block_sum(product, shared_memory<float>());
  if constexpr (HasSinks) {
    float share = 0;
    for (int t = thread_index(); t < seen; t += block_size()) share += to_float(p[t]);
    share = block_sum(share, shared_memory<float>());
    if (thread_index() == 0) of_sinks[block_index().y * T_ + block_index().x] = (share - 1) * product;
  }
  for (int t = thread_index(); t < T_; t += block_size())
    gradient[t] =
        from_float<T>(t < seen ? s.scale * to_float(p[t]) * (to_float(gradient[t]) - product) : 0.0f);
}

Launch a_block_a_row(std::int64_t B, std::int64_t H, std::int64_t T) {
  return {.grid = {static_cast<int>(T), static_cast<int>(B * H), 1},
          .threads = threads_for(T, kThreads),
          .shared_bytes = 2 * kWarps * sizeof(float)};
}

}  // namespace

void causal_softmax_forward(const Context& context, Tensor scores, AttentionShape s, ConstTensor sinks) {
  with_type(scores.type, [&]<class Element>(Element) {
    start(context, a_block_a_row(s.B, s.H, s.T), softmax_forward_kernel<Element>, scores.as<Element>(),
          sizes(s, {.sinks = sinks}));
  });
}

void causal_softmax_backward(const Context& context, Tensor dprobabilities, ConstTensor probabilities,
                             AttentionShape s, float* of_sinks) {
  with_type(probabilities.type, [&]<class Element>(Element) {
    start(context, a_block_a_row(s.B, s.H, s.T),
          of_sinks != nullptr ? softmax_backward_kernel<Element, true>
                              : softmax_backward_kernel<Element, false>,
          dprobabilities.as<Element>(), probabilities.as<Element>(), of_sinks, sizes(s));
  });
}

}  // namespace kernels::cuda
