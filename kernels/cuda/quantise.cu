// Quantising is two kernels over memory: the largest magnitude, block by block; then every block finds the
// largest of these, and rounds its part.
#include "kernels/cuda/quantise.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// Calls body(first of Width elements) for all of `count`, which Width divides.
template <int Width, class Body>
CUDA_DEVICE void for_each_vector(std::int64_t count, const Body& body) {
  const std::int64_t stride = static_cast<std::int64_t>(grid_size().x) * block_size() * Width;
  for (std::int64_t i = (static_cast<std::int64_t>(block_index().x) * block_size() + thread_index()) * Width;
       i < count; i += stride)
    body(i);
}

// Shared memory: a float a warp. NaN is no magnitude here: it stays NaN when it is rounded.
template <class T, int Width>
CUDA_KERNEL(kThreads)
largest_kernel(float* partials, const T* inp, std::int64_t count) {
  float largest = 0;
  for_each_vector<Width>(count, [&](std::int64_t i) {
    float x[Width];
    load<Width>(x, inp + i);
#pragma unroll
    for (int w = 0; w < Width; ++w) largest = fmaxf(largest, fabsf(x[w]));
  });
  largest = block_max(largest, shared_memory<float>());
  if (thread_index() == 0) partials[block_index().x] = largest;
}

// Shared memory: a float a warp.
template <class Out, class T, int Width>
CUDA_KERNEL(kThreads)
quantise_kernel(Out* out, float* scale, const T* inp, const float* partials, int parts, float most,
                std::int64_t count) {
  float largest = 0;
  for (int part = thread_index(); part < parts; part += block_size())
    largest = fmaxf(largest, partials[part]);
  largest = block_max(largest, shared_memory<float>());
  const float own_scale = largest > 0 ? largest / most : 1.0f;
  if (block_index().x == 0 && thread_index() == 0) *scale = own_scale;
  for_each_vector<Width>(count, [&](std::int64_t i) {
    float x[Width];
    load<Width>(x, inp + i);
#pragma unroll
    for (int w = 0; w < Width; ++w) x[w] /= own_scale;
    store<Width>(out + i, x);
  });
}

constexpr int kTile = 64;
constexpr int kPitch = kTile / 4 + 1;  // words from row to row: a column's bytes lie in different banks

struct alignas(16) Vector {
  std::uint32_t words[4];
};

// A block a tile: 16 bytes a thread in, 16 out. Shared memory: (kTile, kPitch) words.
CUDA_KERNEL(kThreads)
transpose_kernel(std::uint8_t* out, const std::uint8_t* inp, std::int64_t R, std::int64_t C,
                 std::int64_t ld_inp, std::int64_t ld_out) {
  std::uint32_t* const tile = shared_memory<std::uint32_t>();
  const std::int64_t first_row = static_cast<std::int64_t>(block_index().y) * kTile,
                     first_column = static_cast<std::int64_t>(block_index().x) * kTile;
  const int line = thread_index() / 4, part = thread_index() % 4;
  const std::int64_t row = first_row + line, column = first_column + part * 16;
  Vector in{};
  if (row < R && column < C) in = *reinterpret_cast<const Vector*>(inp + row * ld_inp + column);
#pragma unroll
  for (int w = 0; w < 4; ++w) tile[line * kPitch + part * 4 + w] = in.words[w];
  sync_block();
  const std::int64_t out_row = first_column + line, out_column = first_row + part * 16;
  if (out_row >= C || out_column >= ld_out) return;
  Vector turned;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    std::uint32_t word = 0;
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const std::uint32_t four = tile[(part * 16 + w * 4 + b) * kPitch + line / 4];
      word |= (four >> (line % 4 * 8) & 0xffu) << (b * 8);
    }
    turned.words[w] = word;
  }
  *reinterpret_cast<Vector*>(out + out_row * ld_out + out_column) = turned;
}

}  // namespace

void quantise(const Context& context, Tensor out, float* scale, ConstTensor inp, std::int64_t count) {
  float* const partials = context.scratch_for<float>(kQuantiseBlocks);
  with_type(inp.type, [&]<class T>(T) {
    with_fp8_type(out.type, [&]<class Out>(Out) {
      const auto launch = [&]<int Width>() {
        const Launch over{.grid = {blocks_for(count / Width, kThreads), 1, 1},
                          .threads = kThreads,
                          .shared_bytes = kWarps * sizeof(float)};
        static_assert(kQuantiseBlocks >= kMostBlocks);
        start(context, over, largest_kernel<T, Width>, partials, inp.as<T>(), count);
        start(context, over, quantise_kernel<Out, T, Width>, out.as<Out>(), scale, inp.as<T>(), partials,
              over.grid.x, largest_of(out.type), count);
      };
      constexpr int kWidth = 8;
      count % kWidth == 0 ? launch.template operator()<kWidth>() : launch.template operator()<1>();
    });
  });
}

void transpose_bytes(const Context& context, void* out, const void* inp, std::int64_t R, std::int64_t C,
                     std::int64_t ld_inp) {
  const std::int64_t ld_out = ceil_div(R, kFp8Multiple) * kFp8Multiple;
  start(context,
        {.grid = {static_cast<int>(ceil_div(C, kTile)), static_cast<int>(ceil_div(R, kTile)), 1},
         .threads = kThreads,
         .shared_bytes = kTile * kPitch * sizeof(std::uint32_t)},
        transpose_kernel, static_cast<std::uint8_t*>(out), static_cast<const std::uint8_t*>(inp), R, C,
        ld_inp, ld_out);
}

}  // namespace kernels::cuda
