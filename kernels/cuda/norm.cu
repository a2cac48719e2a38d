// A row is read once and kept in registers: by a warp where it is narrow, so that no warp waits for another,
// and by a block where it is wide; very wide rows lie in shared memory. In backward a warp or a block walks
// over many rows, and each of its threads keeps its columns' share of the weights' gradients.
#include <algorithm>
#include <initializer_list>

#include "kernels/cuda/early_start.h"
#include "kernels/cuda/norm.h"

namespace kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// The gains of columns from c on; 1 where a norm has none.
template <int Width, class T>
CUDA_DEVICE void load_gain(float (&gain)[Width], const T* weight, std::int64_t c) {
  if (weight != nullptr) return load<Width>(gain, weight + c);
#pragma unroll
  for (int w = 0; w < Width; ++w) gain[w] = 1;
}

// From AddedToInput.
template <class T>
struct Added {
  const T *other, *bias;
  T* sum;
};

// Elements i and following of x, in columns c and following, become the rounded sum, which is written.
template <int Width, class T>
CUDA_DEVICE void add_to_input(float (&x)[Width], const Added<T>& added, std::int64_t i, std::int64_t c) {
  float term[Width];
  load<Width>(term, added.other + i);
#pragma unroll
  for (int w = 0; w < Width; ++w) x[w] += term[w];
  if (added.bias != nullptr) {
    load<Width>(term, added.bias + c);
#pragma unroll
    for (int w = 0; w < Width; ++w) x[w] += term[w];
  }
  store<Width>(added.sum + i, x);
#pragma unroll
  for (int w = 0; w < Width; ++w) x[w] = to_float(from_float<T>(x[w]));
}

// The threads that share a row, and sum over it: a warp of a block, or the whole block.
template <bool Warp>
struct RowThreads {
  static constexpr int kRowsOfBlock = Warp ? kWarps : 1;
  static CUDA_DEVICE std::int64_t block_row() { return Warp ? warp_index() : 0; }
  static CUDA_DEVICE int index() { return Warp ? lane_index() : thread_index(); }
  static CUDA_DEVICE int count() { return Warp ? kWarp : block_size(); }
  static CUDA_DEVICE float sum(float x, float* partials) {
    return Warp ? warp_sum(x) : block_sum(x, partials);
  }
};

// The columns that a thread keeps in registers: `Vectors` vectors, a stride of all the row's threads apart.
template <int Width, int Vectors>
struct Columns {
  float of[Vectors][Width];
};

// C <= Vectors * Width * the row's threads. Shared memory: without Warp, a partial sum for each warp.
template <class T, int Width, int Vectors, bool Layer, bool Warp>
CUDA_KERNEL(kThreads)
norm_forward_kernel(T* out, float* mean_out, float* rstd_out, const T* inp, Added<T> added, const T* weight,
                    const T* bias, float eps, std::int64_t R, std::int64_t C, RowStrides strides) {
  using Threads = RowThreads<Warp>;
  let_next_kernel_begin();
  wait_for_kernel_before();
  const std::int64_t row =
      block_index().x * static_cast<std::int64_t>(Threads::kRowsOfBlock) + Threads::block_row();
  if (Warp && row >= R) return;
  float* const partials = shared_memory<float>();
  const std::int64_t first = static_cast<std::int64_t>(Threads::index()) * Width;
  const std::int64_t stride = static_cast<std::int64_t>(Threads::count()) * Width;

  Columns<Width, Vectors> x{};
#pragma unroll
  for (int v = 0; v < Vectors; ++v) {
    const std::int64_t c = first + v * stride;
    if (c < C) load<Width>(x.of[v], inp + row * strides.inp + c);
  }
  float sum = 0;
#pragma unroll
  for (int v = 0; v < Vectors; ++v) {
    const std::int64_t c = first + v * stride;
    if (c < C && added.other != nullptr) add_to_input(x.of[v], added, row * C + c, c);
#pragma unroll
    for (int w = 0; w < Width; ++w) sum += Layer ? x.of[v][w] : x.of[v][w] * x.of[v][w];
  }
  float mean = 0;
  float squares = Threads::sum(sum, partials);
  if (Layer) {
    mean = squares / static_cast<float>(C);
    sum = 0;
#pragma unroll
    for (int v = 0; v < Vectors; ++v)
#pragma unroll
      for (int w = 0; w < Width; ++w)
        if (first + v * stride < C) sum += (x.of[v][w] - mean) * (x.of[v][w] - mean);
    squares = Threads::sum(sum, partials);
  }
  const float rstd = 1 / sqrtf(squares / static_cast<float>(C) + eps);
  if (Threads::index() == 0) {
    if (Layer && mean_out != nullptr) mean_out[row] = mean;
    if (rstd_out != nullptr) rstd_out[row] = rstd;
  }
#pragma unroll
  for (int v = 0; v < Vectors; ++v) {
    const std::int64_t c = first + v * stride;
    if (c >= C) continue;
    float gain[Width], shift[Width] = {};
    load_gain(gain, weight, c);
    if (Layer && bias != nullptr) load<Width>(shift, bias + c);
#pragma unroll
    for (int w = 0; w < Width; ++w) gain[w] = (x.of[v][w] - mean) * rstd * gain[w] + shift[w];
    store<Width>(out + row * strides.out + c, gain);
  }
}

// The same for rows of any width, a block each. Shared memory: C floats of the row, then a partial sum for
// each warp.
template <class T, int Width, bool Layer>
CUDA_KERNEL_RESIDENT(kThreads, 8)
wide_norm_forward_kernel(T* out, float* mean_out, float* rstd_out, const T* inp, Added<T> added,
                         const T* weight, const T* bias, float eps, std::int64_t, std::int64_t C,
                         RowStrides strides) {
  let_next_kernel_begin();
  wait_for_kernel_before();
  const std::int64_t row = block_index().x;
  float* const values = shared_memory<float>();
  float* const partials = values + C;
  const std::int64_t first = static_cast<std::int64_t>(thread_index()) * Width;
  const std::int64_t stride = static_cast<std::int64_t>(block_size()) * Width;

  float sum = 0;
  for (std::int64_t c = first; c < C; c += stride) {
    float x[Width];
    load<Width>(x, inp + row * strides.inp + c);
    if (added.other != nullptr) add_to_input(x, added, row * C + c, c);
#pragma unroll
    for (int w = 0; w < Width; ++w) {
      values[c + w] = x[w];
      sum += Layer ? x[w] : x[w] * x[w];
    }
  }
  float mean = 0;
  float squares = block_sum(sum, partials);
  if (Layer) {
    mean = squares / static_cast<float>(C);
    sum = 0;
    for (std::int64_t c = first; c < C; c += stride)
#pragma unroll
      for (int w = 0; w < Width; ++w) sum += (values[c + w] - mean) * (values[c + w] - mean);
    squares = block_sum(sum, partials);
  }
  const float rstd = 1 / sqrtf(squares / static_cast<float>(C) + eps);
  if (thread_index() == 0) {
    if (Layer && mean_out != nullptr) mean_out[row] = mean;
    if (rstd_out != nullptr) rstd_out[row] = rstd;
  }
  for (std::int64_t c = first; c < C; c += stride) {
    float gain[Width], shift[Width] = {};
    load_gain(gain, weight, c);
    if (Layer && bias != nullptr) load<Width>(shift, bias + c);
#pragma unroll
    for (int w = 0; w < Width; ++w) gain[w] = (values[c + w] - mean) * rstd * gain[w] + shift[w];
    store<Width>(out + row * strides.out + c, gain);
  }
}

// partial_dweight, partial_dbias (blocks, C); the latter only for Layer. C <= Vectors * Width * the row's
// threads. A row is read once; what is needed twice is kept as it was read. Shared memory: two partial sums
// for each warp; with Warp, C floats for each of the weights' gradients. Strided: rows may be columns of
// wider rows; where they are not, one stride for all saves registers.
template <class T, int Width, int Vectors, bool Layer, bool Warp, bool Strided>
CUDA_KERNEL(kThreads)
norm_backward_kernel(T* dinp, float* partial_dweight, float* partial_dbias, const T* dout, const T* inp,
                     const T* weight, const float* mean_in, const float* rstd_in, std::int64_t R,
                     std::int64_t C, RowStrides strides) {
  using Threads = RowThreads<Warp>;
  if constexpr (!Strided) strides = {C, C, C};
  float* const partials = shared_memory<float>();
  const std::int64_t first = static_cast<std::int64_t>(Threads::index()) * Width;
  const std::int64_t stride = static_cast<std::int64_t>(Threads::count()) * Width;
  const float per_column = 1 / static_cast<float>(C);

  Columns<Width, Vectors> dweight{}, dbias{};
  const std::int64_t rows_at_once = static_cast<std::int64_t>(grid_size().x) * Threads::kRowsOfBlock;
  for (std::int64_t row =
           block_index().x * static_cast<std::int64_t>(Threads::kRowsOfBlock) + Threads::block_row();
       row < R; row += rows_at_once) {
    Pack<T, Width> gradient[Vectors]{}, normed[Vectors]{},
        total[Vectors]{};  // all loads before the first use
#pragma unroll
    for (int v = 0; v < Vectors; ++v) {
      const std::int64_t c = first + v * stride;
      if (c >= C) continue;
      gradient[v] = *reinterpret_cast<const Pack<T, Width>*>(dout + row * strides.out + c);
      normed[v] = *reinterpret_cast<const Pack<T, Width>*>(inp + row * strides.inp + c);
      total[v] = *reinterpret_cast<const Pack<T, Width>*>(dinp + row * strides.dinp + c);
    }
    const float rstd = rstd_in[row];
    const float mean = Layer ? mean_in[row] : 0;
    float sum_scaled = 0, sum_slope = 0;
#pragma unroll
    for (int v = 0; v < Vectors; ++v) {
      const std::int64_t c = first + v * stride;
      if (c >= C) continue;
      float gain[Width];
      load_gain(gain, weight, c);
#pragma unroll
      for (int w = 0; w < Width; ++w) {
        const float g = to_float(gradient[v].values[w]);
        const float x = (to_float(normed[v].values[w]) - mean) * rstd;
        sum_scaled += g * gain[w];
        sum_slope += g * gain[w] * x;
        dweight.of[v][w] += g * x;
        if (Layer) dbias.of[v][w] += g;
      }
    }
    const float scaled_mean = Layer ? Threads::sum(sum_scaled, partials) * per_column : 0;
    const float slope = Threads::sum(sum_slope, partials + kWarps) * per_column;
#pragma unroll
    for (int v = 0; v < Vectors; ++v) {
      const std::int64_t c = first + v * stride;
      if (c >= C) continue;
      float gain[Width], sum[Width];
      load_gain(gain, weight, c);
#pragma unroll
      for (int w = 0; w < Width; ++w) {
        const float x = (to_float(normed[v].values[w]) - mean) * rstd;
        sum[w] = to_float(total[v].values[w]) +
                 rstd * (to_float(gradient[v].values[w]) * gain[w] - scaled_mean - x * slope);
      }
      store<Width>(dinp + row * strides.dinp + c, sum);
    }
  }
  // With Warp, the warps of a block add their gradients one after the other.
  float* const shared_dweight = partials;
  float* const shared_dbias = partials + C;
  const std::int64_t mine = static_cast<std::int64_t>(block_index().x) * C;
  for (int turn = 0; turn < Threads::kRowsOfBlock; ++turn) {
    if (Warp && turn > 0) sync_block();
    if (Warp && warp_index() != turn) continue;
#pragma unroll
    for (int v = 0; v < Vectors; ++v) {
      const std::int64_t c = first + v * stride;
      if (c >= C) continue;
#pragma unroll
      for (int w = 0; w < Width; ++w) {
        if (Warp && turn > 0) dweight.of[v][w] += shared_dweight[c + w];
        if (Warp && Layer && turn > 0) dbias.of[v][w] += shared_dbias[c + w];
      }
      const bool ends = turn + 1 == Threads::kRowsOfBlock;
      store<Width>(ends ? partial_dweight + mine + c : shared_dweight + c, dweight.of[v]);
      if (Layer) store<Width>(ends ? partial_dbias + mine + c : shared_dbias + c, dbias.of[v]);
    }
  }
}

// The same for rows of any width. Shared memory: C floats for each of the weights' gradients, then two
// partial sums for each warp.
template <class T, int Width, bool Layer>
CUDA_KERNEL(kThreads)
wide_norm_backward_kernel(T* dinp, float* partial_dweight, float* partial_dbias, const T* dout, const T* inp,
                          const T* weight, const float* mean_in, const float* rstd_in, std::int64_t R,
                          std::int64_t C, RowStrides strides) {
  float* const dweight = shared_memory<float>();
  float* const dbias = dweight + C;
  float* const partials = dweight + (Layer ? 2 : 1) * C;
  const std::int64_t first = static_cast<std::int64_t>(thread_index()) * Width;
  const std::int64_t stride = static_cast<std::int64_t>(block_size()) * Width;
  const float per_column = 1 / static_cast<float>(C);

  for (std::int64_t c = first; c < C; c += stride)
#pragma unroll
    for (int w = 0; w < Width; ++w) {
      dweight[c + w] = 0;
      if (Layer) dbias[c + w] = 0;
    }
  for (std::int64_t row = block_index().x; row < R; row += grid_size().x) {
    const float rstd = rstd_in[row];
    const float mean = Layer ? mean_in[row] : 0;
    float sum_scaled = 0, sum_slope = 0;
    for (std::int64_t c = first; c < C; c += stride) {
      float gradient[Width], x[Width], gain[Width];
      load<Width>(gradient, dout + row * strides.out + c);
      load<Width>(x, inp + row * strides.inp + c);
      load_gain(gain, weight, c);
#pragma unroll
      for (int w = 0; w < Width; ++w) {
        const float normed = (x[w] - mean) * rstd;
        const float scaled = gradient[w] * gain[w];
        sum_scaled += scaled;
        sum_slope += scaled * normed;
        dweight[c + w] += gradient[w] * normed;
        if (Layer) dbias[c + w] += gradient[w];
      }
    }
    const float scaled_mean = Layer ? block_sum(sum_scaled, partials) * per_column : 0;
    const float slope = block_sum(sum_slope, partials + kWarps) * per_column;
    for (std::int64_t c = first; c < C; c += stride) {
      float gradient[Width], x[Width], gain[Width], total[Width];
      load<Width>(gradient, dout + row * strides.out + c);
      load<Width>(x, inp + row * strides.inp + c);
      load_gain(gain, weight, c);
      load<Width>(total, dinp + row * strides.dinp + c);
#pragma unroll
      for (int w = 0; w < Width; ++w) {
        const float normed = (x[w] - mean) * rstd;
        total[w] += rstd * (gradient[w] * gain[w] - scaled_mean - normed * slope);
      }
      store<Width>(dinp + row * strides.dinp + c, total);
    }
  }
  const std::int64_t mine = static_cast<std::int64_t>(block_index().x) * C;
  for (std::int64_t c = first; c < C; c += stride)
#pragma unroll
    for (int w = 0; w < Width; ++w) {
      partial_dweight[mine + c + w] = dweight[c + w];
      if (Layer) partial_dbias[mine + c + w] = dbias[c + w];
    }
}

// A total (C), and the partial sums (blocks, C) that it becomes the sum of, or that are added to it.
struct Partials {
  void* total;
  const float* sums;
};

// total = (or +=) the sum of partials, block after block; where the grid has two rows, two pairs of these
// side by side. All warps of the block sum a warp's 32 columns: each takes every kAddingWarps-th partial,
// several under way at a time; shared memory holds (kAddingWarps, 32) floats.
constexpr int kAddingWarps = 32, kAddingThreads = kAddingWarps * kWarp;
template <class G>
CUDA_KERNEL(kAddingThreads)
add_partials_kernel(Partials first, Partials second, int blocks, std::int64_t C, bool accumulate) {
  const Partials& mine = block_index().y == 0 ? first : second;
  G* const total = static_cast<G*>(mine.total);
  float* const sums = shared_memory<float>();
  const std::int64_t c = static_cast<std::int64_t>(block_index().x) * kWarp + lane_index();
  float sum = 0;
  if (c < C) {
#pragma unroll 8
    for (int block = warp_index(); block < blocks; block += kAddingWarps) sum += mine.sums[block * C + c];
  }
  sums[thread_index()] = sum;
  sync_block();
  if (warp_index() != 0 || c >= C) return;
  sum = 0;
  for (int warp = 0; warp < kAddingWarps; ++warp) sum += sums[warp * kWarp + lane_index()];
  total[c] = from_float<G>(accumulate ? to_float(total[c]) + sum : sum);
}

// partials (blocks, N): of each block's rows, which are contiguous. A thread sums Width columns.
template <class T, int Width>
CUDA_KERNEL(kThreads)
column_sums_kernel(float* partials, const T* dout, const float* scale, std::int64_t M, std::int64_t N) {
  const std::int64_t n = (static_cast<std::int64_t>(block_index().x) * block_size() + thread_index()) * Width;
  if (n >= N) return;
  const std::int64_t begin = M * block_index().y / grid_size().y,
                     end = M * (block_index().y + 1) / grid_size().y;
  float sums[Width] = {};
  for (std::int64_t m = begin; m < end; ++m) {
    float x[Width];
    load<Width>(x, dout + m * N + n);
#pragma unroll
    for (int w = 0; w < Width; ++w) sums[w] += x[w];
  }
  if (scale != nullptr)
#pragma unroll
    for (int w = 0; w < Width; ++w) sums[w] *= *scale;
  store<Width>(partials + block_index().y * N + n, sums);
}

template <class T>
bool vectors_fit(std::int64_t C) {
  return C % kVector<T> == 0;
}
// The same for rows that may be columns of wider rows.
template <class T>
bool vectors_fit(std::int64_t C, const RowStrides& strides, std::initializer_list<const void*> tensors) {
  return vectors_fit<T>(C) && vectors_fit<T>(strides.inp) && vectors_fit<T>(strides.out) &&
         vectors_fit<T>(strides.dinp) && std::all_of(tensors.begin(), tensors.end(), is_vector_aligned);
}

RowStrides known(RowStrides strides, std::int64_t C) {
  for (std::int64_t* const stride : {&strides.inp, &strides.out, &strides.dinp})
    if (*stride == 0) *stride = C;
  return strides;
}

// Tells body how a block of `threads` threads holds a row of C columns: body.operator()<Vectors,
// false>(threads), with Vectors 0 where the row is too wide for registers.
template <int Width, class Body>
void with_row_of_block(std::int64_t C, int threads, const Body& body) {
  const std::int64_t vectors = ceil_div(C, static_cast<std::int64_t>(threads) * Width);
  if (vectors == 1)
    body.template operator()<1, false>(threads);
  else if (vectors == 2)
    body.template operator()<2, false>(threads);
  else if (vectors <= 4)
    body.template operator()<4, false>(threads);
  else
    body.template operator()<0, false>(threads);
}

// The same for the forward pass; with true in place of false where a warp holds a row.
template <int Width, class Body>
void with_row_of_forward(std::int64_t C, const Body& body) {
  switch (ceil_div(C, kWarp * Width)) {
    case 1:
      return body.template operator()<1, true>(kThreads);
    case 2:
      return body.template operator()<2, true>(kThreads);
    case 3:
      return body.template operator()<3, true>(kThreads);
    case 4:
      return body.template operator()<4, true>(kThreads);
    case 5:
    case 6:
    case 7:
    case 8:
      return body.template operator()<8, true>(kThreads);
  }
  with_row_of_block<Width>(C, threads_for(ceil_div(C, Width), kThreads), body);
}

// The same for the backward pass. Two vectors a thread share what each row costs a thread anyway; more find
// no room beside the weights' gradients.
template <int Width, class Body>
void with_row_of_backward(std::int64_t C, const Body& body) {
  if (C <= kWarp * Width) return body.template operator()<1, true>(kThreads);
  with_row_of_block<Width>(C, threads_for(ceil_div(C, 2 * Width), kThreads), body);
}

template <bool Layer>
void forward(const Context& context, Tensor out, float* mean, float* rstd, ConstTensor inp,
             ConstTensor weight, ConstTensor bias, float eps, std::int64_t R, std::int64_t C,
             const RowStrides& strides, const AddedToInput& added) {
  with_type(inp.type, [&]<class T>(T) {
    const Added<T> sum{added.other.as<T>(), added.bias.as<T>(), added.sum.as<T>()};
    const auto launch = [&]<int Width>() {
      with_row_of_forward<Width>(C, [&]<int Vectors, bool Warp>(int threads) {
        const std::int64_t of_block = RowThreads<Warp>::kRowsOfBlock;
        const auto run = [&](auto kernel, std::int64_t floats) {
          start_early(context,
                      {.grid = {static_cast<int>(ceil_div(R, of_block)), 1, 1},
                       .threads = threads,
                       .shared_bytes = static_cast<std::size_t>(floats) * sizeof(float)},
                      kernel, out.as<T>(), mean, rstd, inp.as<T>(), sum, weight.as<T>(), bias.as<T>(), eps, R,
                      C, strides);
        };
        if constexpr (Vectors == 0)
          run(wide_norm_forward_kernel<T, Width, Layer>, C + kWarps);
        else
          run(norm_forward_kernel<T, Width, Vectors, Layer, Warp>, kWarps);
      });
    };
    const bool fit = vectors_fit<T>(C, strides, {out.data, inp.data, added.other.data, added.sum.data});
    fit ? launch.template operator()<kVector<T>>() : launch.template operator()<1>();
  });
}

// One total and its partial sums, or two of the same type.
void add_partials(const Context& context, Type type, const Partials& first, const Partials& second,
                  int blocks, std::int64_t C, bool accumulate = true) {
  with_type(type, [&]<class G>(G) {
    start(context,
          {.grid = {static_cast<int>(ceil_div(C, kWarp)), second.total == nullptr ? 1 : 2, 1},
           .threads = kAddingThreads,
           .shared_bytes = kAddingThreads * sizeof(float)},
          add_partials_kernel<G>, first, second, blocks, C, accumulate);
  });
}

// Enough warps on each multiprocessor that their loads overlap; the same number on every GPU, so that sums
// are in the same order.
int backward_blocks(std::int64_t R, int threads, std::int64_t rows_of_block) {
  constexpr int kMultiprocessors = 132, kThreadsEach = 1024, kMostEach = kNormBlocks / kMultiprocessors;
  return static_cast<int>(std::min<std::int64_t>(
      ceil_div(R, rows_of_block), kMultiprocessors * std::clamp(kThreadsEach / threads, 1, kMostEach)));
}

template <bool Layer>
void backward(const Context& context, Tensor dinp, Tensor dweight, Tensor dbias, ConstTensor dout,
              ConstTensor inp, ConstTensor weight, const float* mean, const float* rstd, std::int64_t R,
              std::int64_t C, const RowStrides& strides) {
  int blocks = 0;
  float *partial_dweight = nullptr, *partial_dbias = nullptr;
  with_type(inp.type, [&]<class T>(T) {
    const auto launch = [&]<int Width>() {
      with_row_of_backward<Width>(C, [&]<int Vectors, bool Warp>(int threads) {
        blocks = backward_blocks(R, threads, RowThreads<Warp>::kRowsOfBlock);
        partial_dweight = context.scratch_for<float>((Layer ? 2 : 1) * blocks * C);
        partial_dbias = partial_dweight + blocks * C;
        const auto run = [&](auto kernel, std::int64_t floats) {
          start(context,
                {.grid = {blocks, 1, 1},
                 .threads = threads,
                 .shared_bytes = static_cast<std::size_t>(floats) * sizeof(float)},
                kernel, dinp.as<T>(), partial_dweight, partial_dbias, dout.as<T>(), inp.as<T>(),
                weight.as<T>(), mean, rstd, R, C, strides);
        };
        const std::int64_t of_weights = (Layer ? 2 : 1) * C;
        if constexpr (Vectors == 0)
          run(wide_norm_backward_kernel<T, Width, Layer>, of_weights + 2 * kWarps);
        else if (Layer || (strides.inp == C && strides.out == C && strides.dinp == C))
          run(norm_backward_kernel<T, Width, Vectors, Layer, Warp, false>, Warp ? of_weights : 2 * kWarps);
        else
          run(norm_backward_kernel<T, Width, Vectors, Layer, Warp, !Layer>, Warp ? of_weights : 2 * kWarps);
      });
    };
    vectors_fit<T>(C, strides, {dinp.data, dout.data, inp.data}) ? launch.template operator()<kVector<T>>()
                                                                 : launch.template operator()<1>();
  });
  const Partials of_weight{dweight.data, partial_dweight}, of_bias{dbias.data, partial_dbias};
  const bool both = Layer && dweight && dbias && dweight.type == dbias.type;
  if (dweight) add_partials(context, dweight.type, of_weight, both ? of_bias : Partials{}, blocks, C);
  if (Layer && dbias && !both) add_partials(context, dbias.type, of_bias, {}, blocks, C);
}

}  // namespace

void layernorm_forward(const Context& context, Tensor out, float* mean, float* rstd, ConstTensor inp,
                       ConstTensor weight, ConstTensor bias, float eps, std::int64_t R, std::int64_t C,
                       const AddedToInput& added) {
  forward<true>(context, out, mean, rstd, inp, weight, bias, eps, R, C, known({}, C), added);
}

void rmsnorm_forward(const Context& context, Tensor out, float* rstd, ConstTensor inp, ConstTensor weight,
                     float eps, std::int64_t R, std::int64_t C, RowStrides strides,
                     const AddedToInput& added) {
  forward<false>(context, out, nullptr, rstd, inp, weight, {}, eps, R, C, known(strides, C), added);
}

void layernorm_backward(const Context& context, Tensor dinp, Tensor dweight, Tensor dbias, ConstTensor dout,
                        ConstTensor inp, ConstTensor weight, const float* mean, const float* rstd,
                        std::int64_t R, std::int64_t C) {
  backward<true>(context, dinp, dweight, dbias, dout, inp, weight, mean, rstd, R, C, known({}, C));
}

void rmsnorm_backward(const Context& context, Tensor dinp, Tensor dweight, ConstTensor dout, ConstTensor inp,
                      ConstTensor weight, const float* rstd, std::int64_t R, std::int64_t C,
                      RowStrides strides) {
  backward<false>(context, dinp, dweight, {}, dout, inp, weight, nullptr, rstd, R, C, known(strides, C));
}

void add_column_sums(const Context& context, Tensor dbias, ConstTensor dout, const float* scale,
                     std::int64_t M, std::int64_t N, bool accumulate) {
  constexpr std::int64_t kRowsEach = 32, kMostParts = 264;
  const int parts = static_cast<int>(std::clamp<std::int64_t>(M / kRowsEach, 1, kMostParts));
  float* const partials = context.scratch_for<float>(parts * N);
  with_any_type(dout.type, [&]<class T>(T) {
    const auto launch = [&]<int Width>() {
      start(context,
            {.grid = {static_cast<int>(ceil_div(N, kThreads * Width)), parts, 1}, .threads = kThreads},
            column_sums_kernel<T, Width>, partials, dout.as<T>(), scale, M, N);
    };
    vectors_fit<T>(N) ? launch.template operator()<kVector<T>>() : launch.template operator()<1>();
  });
  add_partials(context, dbias.type, {dbias.data, partials}, {}, parts, N, accumulate);
}

}  // namespace kernels::cuda
