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

// Half of what a multiprocessor of compute capability 9.0 has, 228 KB, without the 1 KB that it reserves for
// each block.
constexpr std::size_t kMostShared = 113 << 10;
constexpr std::size_t kPartials = 2 * kWarps * sizeof(float);

// Which results for a row a kernel finds: loss and gradient; or, where ranks divide the vocabulary, first the
// statistics of a part, then loss and gradient of it from the statistics of all parts.
enum class Does { all, statistics, gradient };

struct Arguments {
  float* losses;
  const std::int32_t* targets;
  float scale;
  const float* loss_scale;
  std::int64_t V, words;
  // For ranks that divide the vocabulary.
  std::int64_t first = 0, rows = 0;
  int ranks = 0;
  float* statistics = nullptr;            // (R, 3)
  const float* all_statistics = nullptr;  // (ranks, R, 3)
};

// What the loss needs to know of a row of logits, or of a part of the row.
struct RowLoss {
  float highest, sum;  // the largest logit, and the sum of exponentials below it
  float target = 0;    // the target's logit; 0 where the target is another part's
};

CUDA_DEVICE RowLoss of_all_parts(const Arguments& a, std::int64_t row) {
  const auto at = [&](int rank) { return a.all_statistics + (rank * a.rows + row) * kLossStatistics; };
  RowLoss whole{kLowest, 0};
  for (int rank = 0; rank < a.ranks; ++rank) whole.highest = fmaxf(whole.highest, at(rank)[0]);
  for (int rank = 0; rank < a.ranks; ++rank) {
    whole.sum += at(rank)[1] * exp2_fast((at(rank)[0] - whole.highest) * kLog2e);
    whole.target += at(rank)[2];
  }
  return whole;
}

// Shared memory: two numbers for each warp, and behind them the row where it is kept.
template <class T, int Width, bool Kept, Does Do>
CUDA_KERNEL(kThreads)
cross_entropy_kernel(T* logits_to_dlogits, Arguments a) {
  float* const partials = shared_memory<float>();
  const std::int64_t row = block_index().x, V = a.V, words = a.words;
  T* const logits = logits_to_dlogits + row * V;
  const std::int64_t first = static_cast<std::int64_t>(thread_index()) * Width;
  const std::int64_t stride = static_cast<std::int64_t>(block_size()) * Width;
  const float nothing[Width] = {};
  if (Do != Does::statistics && a.targets[row] < 0) {
    for (std::int64_t v = first; v < V; v += stride) store<Width>(logits + v, nothing);
    if (thread_index() == 0) a.losses[row] = 0;
    return;
  }
  // The target among this part's columns; vocabularies are far below 2^31.
  const auto of_part = static_cast<int>(a.targets[row] - a.first);
  constexpr int kElsewhere = -1;
  const int target = of_part >= 0 && of_part < words ? of_part : kElsewhere;

  // Whole vectors. The first thread also has the words behind them, and padding beside these, which counts
  // for nothing whatever its values are.
  const std::int64_t whole = words / Width * Width, rest = whole + first;
  const auto load_rest = [=](float(&x)[Width], const T* from) {
    load<Width>(x, from + rest);
#pragma unroll
    for (int w = 0; w < Width; ++w)
      if (rest + w >= words) x[w] = -INFINITY;
  };
  // A thread reads only what it has copied itself, so nobody waits for others.
  const T* row_values = logits;
  if constexpr (Kept) {
    T* const kept = reinterpret_cast<T*>(partials + 2 * kWarps);
    for (std::int64_t v = first; v < whole; v += stride) copy_async(kept + v, logits + v, true);
    if (rest < words) copy_async(kept + rest, logits + rest, true);
    commit_copies();
    wait_for_copies<0>();
    row_values = kept;
  }
  RowLoss loss{};
  if constexpr (Do == Does::gradient) {
    loss = of_all_parts(a, row);
  } else {
    // Powers of 2 are in hardware. A logit of -inf needs no branch: with a finite bound its power is 0 by
    // itself. Otherwise the kernel's instructions would bound it, and not its bytes.
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
    loss.highest = block_max(bound, partials);
    loss.sum = block_sum(own_sum * exp2_fast((bound - loss.highest) * kLog2e), partials + kWarps);
    if (thread_index() == 0 && target != kElsewhere) loss.target = to_float(logits[target]);
  }
  if constexpr (Do == Does::statistics) {
    float* const own = a.statistics + row * kLossStatistics;
    if (thread_index() == 0) own[0] = loss.highest, own[1] = loss.sum, own[2] = loss.target;
  } else {
    if (thread_index() == 0) a.losses[row] = logf(loss.sum) - (loss.target - loss.highest);
    sync_block();  // the target's logit is read before any thread writes gradients

    const float one = a.loss_scale == nullptr ? a.scale : a.scale * *a.loss_scale;  // of a gradient
    const float factor = one / loss.sum, base = loss.highest * kLog2e;
    const auto store_gradient = [&](float(&x)[Width], std::int64_t v) {
      const int at = target == kElsewhere ? kElsewhere : target - static_cast<int>(v);  // of the target in x
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
    for (std::int64_t v = ceil_div(words, Width) * Width + first; v < V; v += stride)
      store<Width>(logits + v, nothing);
  }
}

template <Does Do>
void launch(const Context& context, Tensor logits, std::int64_t R, const Arguments& arguments) {
  const std::int64_t V = arguments.V;
  with_type(logits.type, [&]<class T>(T) {
    const auto start_kernel = [&]<int Width, bool Kept>() {
      start(context,
            {.grid = {static_cast<int>(R), 1, 1},
             .threads = threads_for(ceil_div(V, Width), kThreads),
             .shared_bytes = kPartials + (Kept ? static_cast<std::size_t>(V) * sizeof(T) : 0)},
            cross_entropy_kernel<T, Width, Kept, Do>, logits.as<T>(), arguments);
    };
    if (V % kVector<T> != 0) return start_kernel.template operator()<1, false>();
    if constexpr (Do == Does::all)  // the others read a row once
      if (kPartials + static_cast<std::size_t>(V) * sizeof(T) <= kMostShared)
        return start_kernel.template operator()<kVector<T>, true>();
    start_kernel.template operator()<kVector<T>, false>();
  });
}

}  // namespace

void cross_entropy_forward_backward(const Context& context, Tensor logits_to_dlogits, float* losses,
                                    const std::int32_t* targets, float scale, const float* loss_scale,
                                    std::int64_t R, std::int64_t V, std::int64_t words) {
  launch<Does::all>(context, logits_to_dlogits, R, {losses, targets, scale, loss_scale, V, words});
}

void cross_entropy_statistics(const Context& context, float* statistics, ConstTensor logits,
                              const std::int32_t* targets, std::int64_t R, std::int64_t V,
                              VocabularyPart part) {
  Arguments arguments{nullptr, targets, 0, nullptr, V, part.count, part.first, R};
  arguments.statistics = statistics;
  launch<Does::statistics>(context, {const_cast<void*>(logits.data), logits.type}, R, arguments);  // reads it
}

void cross_entropy_of_part(const Context& context, Tensor logits_to_dlogits, float* losses,
                           const std::int32_t* targets, const float* statistics, std::int64_t ranks,
                           float scale, const float* loss_scale, std::int64_t R, std::int64_t V,
                           VocabularyPart part) {
  Arguments arguments{losses, targets, scale, loss_scale, V, part.count, part.first, R};
  arguments.ranks = static_cast<int>(ranks);
  arguments.all_statistics = statistics;
  launch<Does::gradient>(context, logits_to_dlogits, R, arguments);
}

}  // namespace kernels::cuda
