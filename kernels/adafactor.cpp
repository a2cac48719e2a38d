#include "kernels/adafactor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

// torch.optim.Adafactor's defaults.
constexpr double kLeastSize = 1e-3;
constexpr float kEps = std::numeric_limits<float>::epsilon();

KERNELS_INLINE double squares(const float* values, std::int64_t count, float scale) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(values[i] * scale);
    sum += value * value;
  }
  return sum;
}

// What a gradient is multiplied by: one over the root of its estimated square.
struct Estimate {
  const float* columns;  // moments of columns, or of a vector's elements
  float factor;          // of these: the row's moment over the mean of all rows'
  float rsqrt(std::int64_t j) const { return 1.0f / std::sqrt(std::max(factor * columns[j], kEps * kEps)); }
};

KERNELS_MULTIVERSION double update_squares(const float* gradient, const Estimate& of, float scale,
                                           std::int64_t cols) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < cols; ++j) {
    const double update = static_cast<double>(of.rsqrt(j) * (gradient[j] * scale));
    sum += update * update;
  }
  return sum;
}

KERNELS_MULTIVERSION void apply(float* parameter, const float* gradient, const Estimate& of, float scale,
                                float shrink, float step, std::int64_t cols) {
#pragma omp simd
  for (std::int64_t j = 0; j < cols; ++j)
    parameter[j] = parameter[j] * shrink - step * (of.rsqrt(j) * (gradient[j] * scale));
}

void move(float& moment, double towards, double by) {
  moment = static_cast<float>(double{moment} + by * (towards - double{moment}));
}

// Each thread has columns of its own, whose sums run in the order of rows.
void move_columns(const AdafactorTensor& t, std::int64_t matrix, float scale, double by) {
  const float* const gradient = t.gradient + matrix * t.rows * t.cols;
  float* const moments = t.column_moment + matrix * t.cols;
  constexpr std::int64_t kColumns = 64;
  const std::int64_t blocks = (t.cols + kColumns - 1) / kColumns;
  parallel_ranges(blocks, kColumns * t.rows, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * kColumns, width = std::min(kColumns, t.cols - first);
      double sums[kColumns] = {};
      for (std::int64_t i = 0; i < t.rows; ++i)
        for (std::int64_t j = 0; j < width; ++j) {
          const double value = static_cast<double>(gradient[i * t.cols + first + j] * scale);
          sums[j] += value * value;
        }
      for (std::int64_t j = 0; j < width; ++j)
        move(moments[first + j], sums[j] / static_cast<double>(t.rows), by);
    }
  });
}

}  // namespace

void adafactor(const AdafactorTensor& t, const float* gradient_scale, const AdamWSettings& settings) {
  const float scale = gradient_scale ? *gradient_scale : 1.0f;
  const double steps = static_cast<double>(settings.step), by = std::pow(steps, kAdafactorDecayPower);
  const std::int64_t all_rows = t.matrices * t.rows;
  const double count = static_cast<double>(all_rows * t.cols);
  static thread_local std::vector<double> of_rows_storage;  // sums of a row each, then added in order
  of_rows_storage.assign(static_cast<std::size_t>(2 * all_rows), 0.0);
  double* const of_rows = of_rows_storage.data();
  const auto sum_of_rows = [=] {
    double sum = 0;
    for (std::int64_t i = 0; i < all_rows; ++i) sum += of_rows[i];
    return sum;
  };

  if (!t.column_moment)
    for (std::int64_t j = 0; j < t.cols; ++j) {
      const double g = static_cast<double>(t.gradient[j] * scale);
      move(t.row_moment[j], g * g, by);
    }
  parallel_ranges(all_rows, 2 * t.cols, [=, &t](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      of_rows[i] = squares(t.parameter + i * t.cols, t.cols, 1.0f);
      if (t.column_moment)
        move(t.row_moment[i], squares(t.gradient + i * t.cols, t.cols, scale) / static_cast<double>(t.cols),
             by);
    }
  });
  const double size = std::sqrt(sum_of_rows() / count);
  for (std::int64_t m = 0; t.column_moment && m < t.matrices; ++m) move_columns(t, m, scale, by);

  // The factor that all estimates of a row have in common.
  double* const factors = of_rows + all_rows;
  for (std::int64_t m = 0; m < t.matrices; ++m) {
    double mean = 0;
    for (std::int64_t i = 0; t.column_moment && i < t.rows; ++i)
      mean += double{t.row_moment[m * t.rows + i]} / static_cast<double>(t.rows);
    for (std::int64_t i = m * t.rows; i < (m + 1) * t.rows; ++i)
      factors[i] = t.column_moment ? double{t.row_moment[i]} / std::max(mean, double{kEps}) : 1.0;
  }
  const auto estimate = [=, &t](std::int64_t row) {
    const float* const columns = t.column_moment ? t.column_moment + row / t.rows * t.cols : t.row_moment;
    return Estimate{columns, static_cast<float>(factors[row])};
  };
  parallel_ranges(all_rows, 2 * t.cols, [=, &t](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      of_rows[i] = update_squares(t.gradient + i * t.cols, estimate(i), scale, t.cols);
  });
  const double root_mean_square = std::sqrt(sum_of_rows() / count);
  const double rate = std::min(double{settings.learning_rate}, 1 / std::sqrt(steps));
  const float step = static_cast<float>(std::max(kLeastSize, size) * rate / std::max(1.0, root_mean_square));
  const float shrink =
      t.decay ? static_cast<float>(1 - double{settings.learning_rate} * settings.weight_decay) : 1.0f;
  parallel_ranges(all_rows, 3 * t.cols, [=, &t](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      apply(t.parameter + i * t.cols, t.gradient + i * t.cols, estimate(i), scale, shrink, step, t.cols);
  });
}

}  // namespace kernels::cpu
