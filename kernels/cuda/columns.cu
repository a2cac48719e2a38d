#include "kernels/cuda/columns.h"
#include "kernels/cuda/strided_rows.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;

enum class Columnwise { add, put, take };

// A thread takes Width elements of the narrow matrix at a time. Taking, the wide one is read.
template <class T, int Width, Columnwise Way>
CUDA_KERNEL(kThreads)
columns_kernel(T* out, const T* inp, float scale, std::int64_t count, std::int64_t C, std::int64_t width,
               std::int64_t first) {
  const std::int64_t stride = static_cast<std::int64_t>(grid_size().x) * kThreads * Width;
  for (std::int64_t i = (static_cast<std::int64_t>(block_index().x) * kThreads + thread_index()) * Width;
       i < count; i += stride) {
    const std::int64_t wide = i / C * width + first + i % C;
    float x[Width], sum[Width] = {};
    load<Width>(x, inp + (Way == Columnwise::take ? wide : i));
    if (Way == Columnwise::add) load<Width>(sum, out + wide);
#pragma unroll
    for (int w = 0; w < Width; ++w) sum[w] += scale * x[w];
    store<Width>(out + (Way == Columnwise::take ? i : wide), sum);
  }
}

template <Columnwise Way>
void run(const Context& context, Tensor out, ConstTensor inp, float scale, std::int64_t R, Columns columns) {
  const std::int64_t C = columns.C, width = columns.width, first = columns.first;
  with_type(out.type, [&]<class T>(T) {
    const auto launch = [&]<int Width>() {
      start(context, {.grid = {blocks_for(R * C / Width, kThreads), 1, 1}, .threads = kThreads},
            columns_kernel<T, Width, Way>, out.as<T>(), inp.as<T>(), scale, R * C, C, width, first);
    };
    const bool whole_vectors = C % kVector<T> == 0 && width % kVector<T> == 0 && first % kVector<T> == 0 &&
                               is_vector_aligned(out.data) && is_vector_aligned(inp.data);
    whole_vectors ? launch.template operator()<kVector<T>>() : launch.template operator()<1>();
  });
}

}  // namespace

void add_columns(const Context& context, Tensor out, ConstTensor inp, float scale, std::int64_t R,
                 Columns columns) {
  run<Columnwise::add>(context, out, inp, scale, R, columns);
}
void put_columns(const Context& context, Tensor out, ConstTensor inp, std::int64_t R, Columns columns) {
  run<Columnwise::put>(context, out, inp, 1, R, columns);
}
void take_columns(const Context& context, Tensor out, ConstTensor inp, float scale, std::int64_t R,
                  Columns columns) {
  run<Columnwise::take>(context, out, inp, scale, R, columns);
}

}  // namespace kernels::cuda
