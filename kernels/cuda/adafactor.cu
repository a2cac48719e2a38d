#include <limits>

#include "kernels/cuda/adafactor.h"
#include "kernels/cuda/update.h"

namespace kernels::cuda {
namespace {

// A block reads a tile of so many rows and kWarp vectors of columns; a warp of it takes every eighth row.
constexpr int kRows = 64;
constexpr int kThreads = kUpdateThreads, kWarps = kThreads / kWarp;

struct Shape {
  std::int64_t rows, cols;  // of a matrix
  int matrices;
  bool is_matrix;  // else a vector, of one row, whose second moments are those of its columns

  std::int64_t row_tiles() const { return ceil_div(rows, kRows); }
  std::int64_t count() const { return matrices * rows * cols; }
};

// A thread's elements of its block's tile.
template <int Width>
struct Tile {
  int matrix;
  std::int64_t column, first_row, end_row;
  bool has_columns;
  std::int64_t index;  // of the tile among all

  CUDA_DEVICE explicit Tile(const Shape& s)
      : matrix(block_index().z),
        column((static_cast<std::int64_t>(block_index().x) * kWarp + lane_index()) * Width),
        first_row(static_cast<std::int64_t>(block_index().y) * kRows + warp_index()),
        end_row(static_cast<std::int64_t>(block_index().y + 1) * kRows),
        has_columns(column < s.cols),
        index((static_cast<std::int64_t>(block_index().z) * grid_size().y + block_index().y) * grid_size().x +
              block_index().x) {
    if (end_row > s.rows) end_row = s.rows;
  }
  // The index of the element at a row and this thread's first column.
  CUDA_DEVICE std::int64_t at(const Shape& s, std::int64_t row) const {
    return (matrix * s.rows + row) * s.cols + column;
  }
};

// of_columns (row tiles, matrices, cols), of_rows (column tiles, matrices, rows): sums of squares over a
// tile.
template <class G, int Width>
CUDA_KERNEL(kThreads)
adafactor_squares_kernel(float* of_columns, float* of_rows, const G* gradient, const double* gradient_scale,
                         Shape s) {
  const Tile<Width> tile(s);
  const float scale = static_cast<float>(*gradient_scale);
  float columns[Width] = {};
#pragma unroll 4
  for (std::int64_t row = tile.first_row; row < tile.end_row; row += kWarps) {
    float g[Width] = {}, sum = 0;
    if (tile.has_columns) load<Width>(g, gradient + tile.at(s, row));
#pragma unroll
    for (int w = 0; w < Width; ++w) {
      const float square = g[w] * scale * (g[w] * scale);
      columns[w] += square;
      sum += square;
    }
    sum = warp_sum(sum);
    if (lane_index() == 0) of_rows[(block_index().x * s.matrices + tile.matrix) * s.rows + row] = sum;
  }
  float* const all = shared_memory<float>();  // (warps, lanes, Width)
#pragma unroll
  for (int w = 0; w < Width; ++w) all[thread_index() * Width + w] = columns[w];
  sync_block();
  const std::int64_t first = static_cast<std::int64_t>(block_index().x) * kWarp * Width;
  for (int i = thread_index(); i < kWarp * Width && first + i < s.cols; i += kThreads) {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += all[warp * kWarp * Width + i];
    of_columns[(block_index().y * s.matrices + tile.matrix) * s.cols + first + i] = sum;
  }
}

// Moves the moments of columns, then those of rows, a thread each, towards the mean of `tiles` sums, which
// lie `all` apart.
CUDA_DEVICE void move_moment(float* moment, const float* sums, std::int64_t tiles, std::int64_t all,
                             std::int64_t of, double by) {
  double sum = 0;
#pragma unroll 8
  for (std::int64_t tile = 0; tile < tiles; ++tile) sum += static_cast<double>(sums[tile * all]);
  const double before = static_cast<double>(*moment);
  *moment = static_cast<float>(before + by * (sum / static_cast<double>(of) - before));
}
CUDA_KERNEL(kThreads)
adafactor_moments_kernel(float* column_moment, float* row_moment, const float* of_columns,
                         const float* of_rows, int column_tiles, int row_tiles, const double* gradient_scale,
                         const AdamWStep* step, Shape s) {
  if (*gradient_scale == 0) return;
  const std::int64_t columns = s.matrices * s.cols, rows = s.matrices * s.rows;
  const std::int64_t i = static_cast<std::int64_t>(block_index().x) * kThreads + thread_index();
  if (i < columns)
    move_moment(column_moment + i, of_columns + i, row_tiles, columns, s.rows, step->adafactor_by);
  else if (s.is_matrix && i - columns < rows)
    move_moment(row_moment + (i - columns), of_rows + (i - columns), column_tiles, rows, s.cols,
                step->adafactor_by);
}

// means (matrices): the mean of the moments of each matrix's rows, by a block each.
CUDA_KERNEL(kThreads) adafactor_means_kernel(double* means, const float* row_moment, std::int64_t rows) {
  const float* const own = row_moment + block_index().x * rows;
  double sum = 0;
#pragma unroll 8
  for (std::int64_t i = thread_index(); i < rows; i += kThreads) sum += static_cast<double>(own[i]);
  sum = block_sum_in_double<kThreads>(sum, shared_memory<double>());
  if (thread_index() == 0) means[block_index().x] = sum / static_cast<double>(rows);
}

// Factor of a gradient: one over the root of its estimated square. The estimate is a column's moment times a
// row's over the mean of all rows', at least kEps^2. torch.optim.Adafactor's eps.
constexpr float kEps = std::numeric_limits<float>::epsilon();
struct Estimates {
  const float *row_moment, *column_moment;
  const double* means;

  template <int Width>
  CUDA_DEVICE void of_columns(float (&rsqrt)[Width], const Tile<Width>& tile, const Shape& s) const {
#pragma unroll
    for (int w = 0; w < Width; ++w)
      rsqrt[w] = tile.has_columns ? 1 / sqrtf(column_moment[tile.matrix * s.cols + tile.column + w]) : 0;
  }
  CUDA_DEVICE float of_row(int matrix, std::int64_t row, const Shape& s) const {
    if (!s.is_matrix) return 1;
    const double mean = means[matrix], least = static_cast<double>(kEps);
    return 1 / sqrtf(row_moment[matrix * s.rows + row] / static_cast<float>(mean > least ? mean : least));
  }
};
CUDA_DEVICE float update_of(float g, float of_row, float of_column) {
  return g * fminf(of_row * of_column, 1 / kEps);
}

// partials: for each tile, the sum of the squares of the scaled gradients.
template <class G, int Width>
CUDA_KERNEL(kThreads)
adafactor_update_squares_kernel(double* partials, const G* gradient, Estimates of,
                                const double* gradient_scale, Shape s) {
  const Tile<Width> tile(s);
  const float scale = static_cast<float>(*gradient_scale);
  float columns[Width], sum = 0;
  of.of_columns(columns, tile, s);
#pragma unroll 4
  for (std::int64_t row = tile.first_row; row < tile.end_row; row += kWarps) {
    const float of_row = of.of_row(tile.matrix, row, s);
    float g[Width] = {};
    if (tile.has_columns) load<Width>(g, gradient + tile.at(s, row));
#pragma unroll
    for (int w = 0; w < Width; ++w) {
      const float update = update_of(g[w] * scale, of_row, columns[w]);
      sum += update * update;
    }
  }
  const double all = block_sum_in_double<kThreads>(static_cast<double>(sum), shared_memory<double>());
  if (thread_index() == 0) partials[tile.index] = all;
}

// squares: of the parameter, and of the updates.
template <class P, class G, int Width>
CUDA_KERNEL(kThreads)
adafactor_kernel(P* parameter, const G* gradient, float* master, Estimates of, const double* squares,
                 const double* gradient_scale, const AdamWStep* step, bool decay, std::uint64_t stream,
                 Shape s) {
  if (*gradient_scale == 0) return;
  const Tile<Width> tile(s);
  const float scale = static_cast<float>(*gradient_scale), shrink = decay ? step->shrink : 1.0f;
  const Moved<P> moved{parameter, master, rounding_key(step->step, stream)};
  constexpr double kLeastSize = 1e-3;  // torch.optim.Adafactor's second eps
  const auto count = static_cast<double>(s.matrices * s.rows * s.cols);
  const double size = sqrt(squares[0] / count), update_size = sqrt(squares[1] / count);
  const auto step_size = static_cast<float>((size > kLeastSize ? size : kLeastSize) * step->adafactor_rate /
                                            (update_size > 1 ? update_size : 1.0));
  float columns[Width];
  of.of_columns(columns, tile, s);
  if (!tile.has_columns) return;
#pragma unroll 2
  for (std::int64_t row = tile.first_row; row < tile.end_row; row += kWarps) {
    const float of_row = of.of_row(tile.matrix, row, s);
    const std::int64_t i = tile.at(s, row);
    float value[Width], g[Width];
    moved.load(value, i);
    load<Width>(g, gradient + i);
    Pack<P, Width> out;
#pragma unroll
    for (int w = 0; w < Width; ++w) {
      value[w] = value[w] * shrink - step_size * update_of(g[w] * scale, of_row, columns[w]);
      out.values[w] = moved.rounded_at(i + w, value[w]);
    }
    moved.store(i, value, out);
  }
}

void move(const Context& context, const AdafactorTensor& t, const double* gradient_scale,
          const AdamWStep* step, bool decay) {
  const Shape s{t.rows, t.cols, static_cast<int>(t.matrices), t.column_moment != nullptr};
  // The moments of a vector are those of the columns of one row.
  float* const column_moment = s.is_matrix ? t.column_moment : t.row_moment;
  constexpr std::size_t kSumBytes = kThreads * sizeof(double);
  ScratchArrays arrays{context};
  with_type(t.parameter.type, [&]<class P>(P) {
    with_type(t.gradient.type, [&]<class G>(G) {
      const auto launch = [&]<int Width>() {
        const std::int64_t column_tiles = ceil_div(s.cols, kWarp * Width), row_tiles = s.row_tiles();
        const std::int64_t tiles = s.matrices * row_tiles * column_tiles;
        double* const squares = arrays.next<double>(2);
        double* const means = arrays.next<double>(s.matrices);
        double* const partials = arrays.next<double>(tiles);
        float* const of_columns = arrays.next<float>(row_tiles * s.matrices * s.cols);
        float* const of_rows = arrays.next<float>(column_tiles * s.matrices * s.rows);
        const Index3 grid{static_cast<int>(column_tiles), static_cast<int>(row_tiles), s.matrices};
        const G* const gradient = t.gradient.as<G>();
        // This comes first, so that the three passes over the gradient follow each other: a gradient that
        // fits in the second-level cache is then read from memory once.
        const ConstTensor value =
            t.master != nullptr ? ConstTensor(t.master, Type::f32) : ConstTensor(t.parameter);
        sums_of_squares(arrays.rest, squares, value, 1, s.count());
        start(context, {.grid = grid, .threads = kThreads, .shared_bytes = kThreads * Width * sizeof(float)},
              adafactor_squares_kernel<G, Width>, of_columns, of_rows, gradient, gradient_scale, s);
        const std::int64_t moments = s.matrices * (s.cols + (s.is_matrix ? s.rows : 0));
        start(context, {.grid = {static_cast<int>(ceil_div(moments, kThreads)), 1, 1}, .threads = kThreads},
              adafactor_moments_kernel, column_moment, t.row_moment, of_columns, of_rows,
              static_cast<int>(column_tiles), static_cast<int>(row_tiles), gradient_scale, step, s);
        if (s.is_matrix)
          start(context, {.grid = {s.matrices, 1, 1}, .threads = kThreads, .shared_bytes = kSumBytes},
                adafactor_means_kernel, means, t.row_moment, s.rows);
        const Estimates of{t.row_moment, column_moment, means};
        start(context, {.grid = grid, .threads = kThreads, .shared_bytes = kSumBytes},
              adafactor_update_squares_kernel<G, Width>, partials, gradient, of, gradient_scale, s);
        add_up(context, squares + 1, partials, tiles);
        start(context, {.grid = grid, .threads = kThreads}, adafactor_kernel<P, G, Width>,
              t.parameter.as<P>(), gradient, t.master, of, squares, gradient_scale, step, decay, t.stream, s);
      };
      constexpr int kWidth = 4;
      t.cols % kWidth == 0 ? launch.template operator()<kWidth>() : launch.template operator()<1>();
    });
  });
}

}  // namespace

void adafactor(const Context& context, std::span<const AdafactorTensor> tensors, const double* gradient_scale,
               const AdamWStep* step, bool decay) {
  for (const AdafactorTensor& t : tensors) move(context, t, gradient_scale, step, decay);
}

}  // namespace kernels::cuda
