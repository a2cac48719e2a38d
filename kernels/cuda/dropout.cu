#include "kernels/cuda/dropout.h"
#include "kernels/cuda/random.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 8;

// Which elements are kept: by 24 random bits, as many as a float holds exactly.
class Draw {
 public:
  CUDA_DEVICE Draw(const DropoutStep& step, std::uint64_t stream)
      : key_(mix(mix(step.seed ^ mix(step.step)) ^ stream)),
        probability_(step.probability),
        factor_(1 / (1 - step.probability)) {}
  CUDA_DEVICE bool keeps(std::int64_t element) const {
    const std::uint64_t bits = mix(key_ + static_cast<std::uint64_t>(element)) >> 40;
    return static_cast<float>(bits) * 0x1p-24f >= probability_;
  }
  // What a kept element is multiplied by, so that the sum is as large as without dropout on average.
  CUDA_DEVICE float factor() const { return factor_; }

 private:
  std::uint64_t key_;
  float probability_, factor_;
};

template <class T, int Width>
CUDA_KERNEL(kThreads)
dropout_forward_kernel(T* out, std::int8_t* mask, const T* inp, const T* bias, const DropoutStep* step,
                       std::uint64_t stream, std::int64_t count, std::int64_t C) {
  const Draw draw(*step, stream);
  const std::int64_t stride = static_cast<std::int64_t>(grid_size().x) * block_size() * Width;
  for (std::int64_t i = (static_cast<std::int64_t>(block_index().x) * block_size() + thread_index()) * Width;
       i < count; i += stride) {
    float x[Width], shift[Width] = {};
    load<Width>(x, inp + i);
    if (bias != nullptr) load<Width>(shift, bias + i % C);
    Pack<std::int8_t, Width> kept;
#pragma unroll
    for (int w = 0; w < Width; ++w) {
      const bool keeps = draw.keeps(i + w);
      kept.values[w] = keeps ? 1 : 0;
      x[w] = keeps ? (x[w] + shift[w]) * draw.factor() : 0.0f;
    }
    store<Width>(out + i, x);
    if (mask != nullptr) *reinterpret_cast<Pack<std::int8_t, Width>*>(mask + i) = kept;
  }
}

template <class T, int Width>
CUDA_KERNEL(kThreads)
dropout_backward_kernel(T* dinp, const T* dout, const std::int8_t* mask, const DropoutStep* step,
                        std::uint64_t stream, std::int64_t count) {
  const Draw draw(*step, stream);
  const std::int64_t stride = static_cast<std::int64_t>(grid_size().x) * block_size() * Width;
  for (std::int64_t i = (static_cast<std::int64_t>(block_index().x) * block_size() + thread_index()) * Width;
       i < count; i += stride) {
    float x[Width];
    load<Width>(x, dout + i);
    Pack<std::int8_t, Width> kept{};
    if (mask != nullptr) kept = *reinterpret_cast<const Pack<std::int8_t, Width>*>(mask + i);
#pragma unroll
    for (int w = 0; w < Width; ++w)
      x[w] = (mask != nullptr ? kept.values[w] != 0 : draw.keeps(i + w)) ? x[w] * draw.factor() : 0.0f;
    store<Width>(dinp + i, x);
  }
}

}  // namespace

void dropout_forward(const Context& context, Tensor out, std::int8_t* mask, ConstTensor inp, ConstTensor bias,
                     const DropoutStep* step, std::uint64_t stream, std::int64_t R, std::int64_t C) {
  with_type(out.type, [&]<class T>(T) {
    const auto launch = [&]<int Width>() {
      start(context, {.grid = {blocks_for(R * C / Width, kThreads), 1, 1}, .threads = kThreads},
            dropout_forward_kernel<T, Width>, out.as<T>(), mask, inp.as<T>(), bias.as<T>(), step, stream,
            R * C, C);
    };
    C % kWidth == 0 ? launch.template operator()<kWidth>() : launch.template operator()<1>();
  });
}

void dropout_backward(const Context& context, Tensor dinp, ConstTensor dout, const std::int8_t* mask,
                      const DropoutStep* step, std::uint64_t stream, std::int64_t count) {
  with_type(dinp.type, [&]<class T>(T) {
    const auto launch = [&]<int Width>() {
      start(context, {.grid = {blocks_for(count / Width, kThreads), 1, 1}, .threads = kThreads},
            dropout_backward_kernel<T, Width>, dinp.as<T>(), dout.as<T>(), mask, step, stream, count);
    };
    count % kWidth == 0 ? launch.template operator()<kWidth>() : launch.template operator()<1>();
  });
}

}  // namespace kernels::cuda
