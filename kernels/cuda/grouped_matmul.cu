// A block makes a tile of one group's product. The groups' offsets on the device tell which group and rows it
// has: the grid has as many blocks as there can be tiles, and those left over do nothing.
//   tensor cores   16-bit operands whose rows are whole vectors: tiles of 128 x 128 by eight warps, two
//                  by four; slices of 32 of the summed dimension pass through shared memory, three of
//                  them under way
//   plain          anything else: a tile of 16 x 16, a thread an element, for small models and checks in fp32
#include <algorithm>

#include "kernels/cuda/grouped_matmul.h"
#include "kernels/cuda/shared_tile.h"

namespace kernels::cuda {
namespace {

// What is multiplied: out (M, N) = a (M, K) b (K, N) of each group.
//   forward  a = inp (rows, K),  b = weight (N, K) transposed
//   input    a = dout (rows, N), b = weight (N, K)
//   weight   a = dout (rows, N) transposed, b = inp (rows, K)
enum class Form { forward, input, weight };

// A group's tiles of rows (forward, input), or the group (weight).
struct Tile {
  int group, first_row, rows;  // the tile's in `first_row`, of the group in `rows` behind it
};

// Tile number `index` of all groups' tiles of `height` rows; group < 0: there are not so many tiles.
CUDA_DEVICE Tile tile_of_rows(const std::int32_t* offsets, int groups, int index, int height) {
  for (int g = 0; g < groups; ++g) {
    const int rows = offsets[g + 1] - offsets[g], tiles = (rows + height - 1) / height;
    if (index < tiles) return {g, offsets[g] + index * height, rows - index * height};
    index -= tiles;
  }
  return {-1, 0, 0};
}

constexpr int kThreads = 256;
constexpr int kTile = 128;
constexpr int kSlice = 32;
constexpr int kStages = 3;
constexpr int kWarpsAcross = 4;
constexpr int kWarpRows = 64, kWarpColumns = kTile / kWarpsAcross;

// A slice of an operand lies as (128, 32) if its summed dimension is contiguous in memory, else as (32, 128).
using Contiguous = SharedTile<kSlice>;
using Across = SharedTile<kTile>;
constexpr int kContiguous = Contiguous::elements(kTile), kAcross = Across::elements(kSlice);

template <Form F>
inline constexpr int kSliceOfA = F == Form::weight ? kAcross : kContiguous;
template <Form F>
inline constexpr int kSliceOfB = F == Form::forward ? kContiguous : kAcross;
template <Form F>
inline constexpr int kSharedBytes = kStages*(kSliceOfA<F> + kSliceOfB<F>)*2;

// A fragment of A (16 x 16) from rows of its transpose: the tile's rows are k.
template <int Columns, class T>
CUDA_DEVICE void load_a_transposed(std::uint32_t (&a)[4], const T* tile, int k, int m) {
  const Place place = place_by_columns(lane_index());
  load_matrices_transposed(a, tile + SharedTile<Columns>::offset(k + place.row, m + place.column));
}

template <class T, class G>
struct Arguments {
  G* out;
  const T *a, *b, *bias;
  const std::int32_t* offsets;
  int groups, N, K;  // of the weight (groups, N, K)
};

// Shared memory: kSharedBytes<F>.
template <Form F, class T, class G>
CUDA_KERNEL(kThreads)
grouped_tensor_cores_kernel(Arguments<T, G> arguments) {
  const int N = arguments.N, K = arguments.K;
  const std::int64_t weight_size = static_cast<std::int64_t>(N) * K;
  // The tile of the result: which of its rows and columns exist, and over how many elements it sums.
  Tile tile;
  int rows, columns, depth;
  const T *a, *b;
  G* out;
  std::int64_t out_stride;
  const int first_column = block_index().x * kTile;
  if constexpr (F == Form::weight) {
    const int first_row = block_index().y * kTile, group = block_index().z;
    const std::int64_t begin = arguments.offsets[group];
    tile = {group, first_row, N - first_row};
    depth = static_cast<int>(arguments.offsets[group + 1] - begin);
    rows = N - first_row, columns = K - first_column;
    a = arguments.a + begin * N + first_row;
    b = arguments.b + begin * K + first_column;
    out = arguments.out + group * weight_size + static_cast<std::int64_t>(first_row) * K + first_column;
    out_stride = K;
  } else {
    tile = tile_of_rows(arguments.offsets, arguments.groups, block_index().y, kTile);
    if (tile.group < 0) return;
    constexpr bool kForward = F == Form::forward;
    rows = tile.rows, columns = (kForward ? N : K) - first_column, depth = kForward ? K : N;
    a = arguments.a + static_cast<std::int64_t>(tile.first_row) * depth;
    b = arguments.b + tile.group * weight_size +
        (kForward ? static_cast<std::int64_t>(first_column) * K : first_column);
    out_stride = kForward ? N : K;
    out = arguments.out + tile.first_row * out_stride + first_column;
  }

  T* const stages = shared_memory<T>();
  const int slices = (depth + kSlice - 1) / kSlice;
  const auto stage = [&](int slice) { return stages + slice % kStages * (kSliceOfA<F> + kSliceOfB<F>); };
  const auto copy_slice = [&](int slice) {
    if (slice < slices) {
      const int k = slice * kSlice;
      T* const to = stage(slice);
      if constexpr (F == Form::weight)
        copy_tile<kTile, kSlice>(to, a + static_cast<std::int64_t>(k) * N, N, depth - k, rows);
      else
        copy_tile<kSlice, kTile>(to, a + k, depth, rows, depth - k);
      if constexpr (F == Form::forward)
        copy_tile<kSlice, kTile>(to + kSliceOfA<F>, b + k, K, columns, depth - k);
      else
        copy_tile<kTile, kSlice>(to + kSliceOfA<F>, b + static_cast<std::int64_t>(k) * K, K, depth - k,
                                 columns);
    }
    commit_copies();
  };
  for (int slice = 0; slice < kStages - 1; ++slice) copy_slice(slice);

  const int row = warp_index() / kWarpsAcross * kWarpRows,
            column = warp_index() % kWarpsAcross * kWarpColumns;
  float sums[kWarpRows / 16][kWarpColumns / 8][4] = {};
  for (int slice = 0; slice < slices; ++slice) {
    wait_for_copies<kStages - 2>();
    sync_block();  // the slice has arrived, and all are done with the one whose place is filled next
    copy_slice(slice + kStages - 1);
    const T* const of_a = stage(slice);
    const T* const of_b = of_a + kSliceOfA<F>;
#pragma unroll
    for (int k = 0; k < kSlice; k += 16) {
      std::uint32_t lines[kWarpRows / 16][4];
#pragma unroll
      for (int m = 0; m < kWarpRows / 16; ++m) {
        if constexpr (F == Form::weight)
          load_a_transposed<kTile>(lines[m], of_a, k, row + m * 16);
        else
          load_a<kSlice>(lines[m], of_a, row + m * 16, k);
      }
#pragma unroll
      for (int n = 0; n < kWarpColumns / 8; n += 2) {
        std::uint32_t across[4];
        if constexpr (F == Form::forward)
          load_b_transposed<kSlice>(across, of_b, column + n * 8, k);
        else
          load_b<kTile>(across, of_b, k, column + n * 8);
#pragma unroll
        for (int m = 0; m < kWarpRows / 16; ++m) {
          multiply_add<T>(sums[m][n], lines[m], across[0], across[1]);
          multiply_add<T>(sums[m][n + 1], lines[m], across[2], across[3]);
        }
      }
    }
  }
  wait_for_copies<0>();

#pragma unroll
  for (int m = 0; m < kWarpRows / 16; ++m)
#pragma unroll
    for (int n = 0; n < kWarpColumns / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Place place = accumulator_place(lane_index(), i);
        const int to_row = row + m * 16 + place.row, to_column = column + n * 8 + place.column;
        if (to_row >= rows || to_column >= columns) continue;
        G& to = out[to_row * out_stride + to_column];
        float sum = sums[m][n][i];
        if constexpr (F == Form::weight) sum += to_float(to);
        if constexpr (F == Form::forward)
          if (arguments.bias != nullptr)
            sum += to_float(
                arguments.bias[static_cast<std::int64_t>(tile.group) * N + first_column + to_column]);
        to = from_float<G>(sum);
      }
}

constexpr int kPlainTile = 16, kPlainThreads = kPlainTile * kPlainTile;

// Shared memory: two tiles of 16 x 17 floats.
template <Form F, class T, class G>
CUDA_KERNEL(kPlainThreads)
grouped_plain_kernel(Arguments<T, G> arguments) {
  const int N = arguments.N, K = arguments.K;
  const std::int64_t weight_size = static_cast<std::int64_t>(N) * K;
  constexpr int kStride = kPlainTile + 1;
  float* const of_a = shared_memory<float>();
  float* const of_b = of_a + kPlainTile * kStride;
  const int x = thread_index() % kPlainTile, y = thread_index() / kPlainTile;
  Tile tile;
  int depth;
  std::int64_t begin = 0;  // the group's first row, where rows are summed
  if constexpr (F == Form::weight) {
    const int first_row = block_index().y * kPlainTile, group = block_index().z;
    begin = arguments.offsets[group];
    tile = {group, first_row, N - first_row};
    depth = static_cast<int>(arguments.offsets[group + 1] - begin);
  } else {
    tile = tile_of_rows(arguments.offsets, arguments.groups, block_index().y, kPlainTile);
    if (tile.group < 0) return;
    depth = F == Form::forward ? K : N;
  }
  const int columns = F == Form::forward ? N : K;
  const int row = tile.first_row + y, column = block_index().x * kPlainTile + x;
  const T* const weight = arguments.b + (F == Form::weight ? 0 : tile.group * weight_size);
  float sum = 0;
  for (int k = 0; k < depth; k += kPlainTile) {
    // Element (y, k + x) of a, and (k + y, x) of b, read along their rows.
    float a = 0, b = 0;
    if constexpr (F == Form::weight) {
      if (k + y < depth && tile.first_row + x < N)
        a = to_float(arguments.a[(begin + k + y) * N + tile.first_row + x]);
      of_a[x * kStride + y] = a;
      if (k + y < depth && column < columns) b = to_float(arguments.b[(begin + k + y) * K + column]);
      of_b[y * kStride + x] = b;
    } else {
      if (y < tile.rows && k + x < depth)
        a = to_float(arguments.a[static_cast<std::int64_t>(row) * depth + k + x]);
      of_a[y * kStride + x] = a;
      if constexpr (F == Form::forward) {
        const int n = block_index().x * kPlainTile + y;
        if (n < N && k + x < depth) b = to_float(weight[static_cast<std::int64_t>(n) * K + k + x]);
        of_b[x * kStride + y] = b;
      } else {
        if (k + y < depth && column < columns)
          b = to_float(weight[static_cast<std::int64_t>(k + y) * K + column]);
        of_b[y * kStride + x] = b;
      }
    }
    sync_block();
    for (int i = 0; i < kPlainTile; ++i) sum += of_a[y * kStride + i] * of_b[i * kStride + x];
    sync_block();
  }
  if (y >= tile.rows || column >= columns) return;
  if constexpr (F == Form::weight) {
    G& to = arguments.out[tile.group * weight_size + static_cast<std::int64_t>(row) * K + column];
    to = from_float<G>(to_float(to) + sum);
  } else {
    if constexpr (F == Form::forward)
      if (arguments.bias != nullptr)
        sum += to_float(arguments.bias[static_cast<std::int64_t>(tile.group) * N + column]);
    arguments.out[static_cast<std::int64_t>(row) * columns + column] = from_float<G>(sum);
  }
}

// dbias (groups, N) += the sums over each group's rows, in fp32. A thread a column.
template <class T, class G>
CUDA_KERNEL(kThreads)
grouped_bias_kernel(G* dbias, const T* dout, const std::int32_t* offsets, int N) {
  const int n = block_index().x * kThreads + thread_index(), group = block_index().y;
  if (n >= N) return;
  float sum = 0;
  for (std::int64_t row = offsets[group]; row < offsets[group + 1]; ++row) sum += to_float(dout[row * N + n]);
  G& to = dbias[static_cast<std::int64_t>(group) * N + n];
  to = from_float<G>(to_float(to) + sum);
}

// The most tiles of the groups' rows: each group may leave one tile not full.
int row_tiles(const GroupedRows& rows, int height) {
  return static_cast<int>(rows.R / height + std::min(rows.groups, rows.R));
}

template <Form F, class T, class G>
void multiply(const Context& context, const Arguments<T, G>& arguments, const GroupedRows& rows) {
  const std::int64_t columns = F == Form::forward ? arguments.N : arguments.K;
  const auto launch = [&](int side, int threads, std::size_t shared_bytes) {
    const int across = static_cast<int>(ceil_div(columns, side));
    if (F == Form::weight)
      return Launch{.grid = {across, static_cast<int>(ceil_div(arguments.N, side)), arguments.groups},
                    .threads = threads,
                    .shared_bytes = shared_bytes};
    return Launch{
        .grid = {across, row_tiles(rows, side), 1}, .threads = threads, .shared_bytes = shared_bytes};
  };
  constexpr int kElements = 8;  // of a 16-byte vector
  if constexpr (sizeof(T) == 2) {
    if (arguments.N % kElements == 0 && arguments.K % kElements == 0)
      return start(context, launch(kTile, kThreads, kSharedBytes<F>), grouped_tensor_cores_kernel<F, T, G>,
                   arguments);
  }
  constexpr std::size_t kPlainShared = 2 * kPlainTile * (kPlainTile + 1) * sizeof(float);
  start(context, launch(kPlainTile, kPlainThreads, kPlainShared), grouped_plain_kernel<F, T, G>, arguments);
}

template <class T, class G>
Arguments<T, G> arguments_of(Tensor out, ConstTensor a, ConstTensor b, ConstTensor bias,
                             const GroupedRows& rows, GroupedShape s) {
  return {out.as<G>(),
          a.as<T>(),
          b.as<T>(),
          bias.as<T>(),
          rows.offsets,
          static_cast<int>(rows.groups),
          static_cast<int>(s.N),
          static_cast<int>(s.K)};
}

}  // namespace

void grouped_matmul_forward(const Context& context, Tensor out, ConstTensor inp, ConstTensor weight,
                            ConstTensor bias, GroupedRows rows, GroupedShape s) {
  with_type(inp.type, [&]<class T>(T) {
    multiply<Form::forward>(context, arguments_of<T, T>(out, inp, weight, bias, rows, s), rows);
  });
}

void grouped_matmul_backward_input(const Context& context, Tensor dinp, ConstTensor dout, ConstTensor weight,
                                   GroupedRows rows, GroupedShape s) {
  with_type(dout.type, [&]<class T>(T) {
    multiply<Form::input>(context, arguments_of<T, T>(dinp, dout, weight, {}, rows, s), rows);
  });
}

void grouped_matmul_backward_weight(const Context& context, Tensor dweight, Tensor dbias, ConstTensor dout,
                                    ConstTensor inp, GroupedRows rows, GroupedShape s) {
  with_type(dout.type, [&]<class T>(T) {
    with_type(dweight.type, [&]<class G>(G) {
      multiply<Form::weight>(context, arguments_of<T, G>(dweight, dout, inp, {}, rows, s), rows);
    });
    if (dbias)
      with_type(dbias.type, [&]<class G>(G) {
        start(context,
              {.grid = {static_cast<int>(ceil_div(s.N, kThreads)), static_cast<int>(rows.groups), 1},
               .threads = kThreads},
              grouped_bias_kernel<T, G>, dbias.as<G>(), dout.as<T>(), rows.offsets, static_cast<int>(s.N));
      });
  });
}

}  // namespace kernels::cuda
