// Gradients of attention's sinks. A sink's probability in a row is exp(sink - lse), and its value is nothing.
// So the gradient of its score is this probability times minus the term that all scores of the row have in
// common.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_arguments.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;

// What a row contributes to its sink; rows are numbered as by AttentionSizes::statistic().
struct OfFlash {
  const float *lse, *delta;
  CUDA_DEVICE double operator()(std::int64_t row, float sink) const {
    return static_cast<double>(-expf(sink - lse[row]) * delta[row]);
  }
};
struct OfRows {
  const float* values;
  CUDA_DEVICE double operator()(std::int64_t row, float) const { return static_cast<double>(values[row]); }
};

// A block a head. Shared memory: a double a thread.
template <class S, class Of>
CUDA_KERNEL(kThreads)
sinks_backward_kernel(S* dsinks, bool add, Of of, int B, AttentionSizes s) {
  const int head = block_index().x;
  const float sink = s.sinks != nullptr ? s.sink(head) : 0;
  double sum = 0;
  for (int b = 0; b < B; ++b)
#pragma unroll 4
    for (int t = thread_index(); t < s.T; t += kThreads) sum += of(s.statistic(b, head, t), sink);
  sum = block_sum_in_double<kThreads>(sum, shared_memory<double>());
  if (thread_index() == 0)
    dsinks[head] = from_float<S>((add ? to_float(dsinks[head]) : 0) + static_cast<float>(sum));
}

template <class Of>
void launch(const Context& context, Tensor dsinks, bool add, const Of& of, AttentionShape s,
            ConstTensor sinks) {
  with_type(dsinks.type, [&]<class S>(S) {
    start(context,
          {.grid = {static_cast<int>(s.H), 1, 1},
           .threads = kThreads,
           .shared_bytes = kThreads * sizeof(double)},
          sinks_backward_kernel<S, Of>, dsinks.as<S>(), add, of, static_cast<int>(s.B),
          sizes(s, {.sinks = sinks}));
  });
}

}  // namespace

void attention_sinks_backward(const Context& context, Tensor dsinks, bool add, ConstTensor sinks,
                              const float* lse, AttentionShape s) {
  const float* const delta = context.scratch_for<float>(s.B * s.H * s.T);
  launch(context, dsinks, add, OfFlash{lse, delta}, s, sinks);
}

void add_sinks_of_rows(const Context& context, Tensor dsinks, bool add, const float* of_sinks,
                       AttentionShape s) {
  launch(context, dsinks, add, OfRows{of_sinks}, s, {});
}

}  // namespace kernels::cuda
