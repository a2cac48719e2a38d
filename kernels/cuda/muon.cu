#include <algorithm>
#include <cmath>

#include "kernels/cuda/muon.h"
#include "kernels/cuda/update.h"

namespace kernels::cuda {
namespace {

template <class U, class G, int Width>
CUDA_KERNEL(kUpdateThreads)
muon_momentum_kernel(U* update, const G* gradient, float* moment, std::int64_t count,
                     const double* gradient_scale, const AdamWStep* step) {
  const float scale = static_cast<float>(*gradient_scale), beta = step->beta1, rest = step->one_minus_beta1;
  const OwnElements<Width> own = own_elements<Width>();
  for (std::int64_t i = own.first; i < count; i += own.stride) {
    float g[Width], m[Width], ahead[Width];
    load<Width>(g, gradient + i);
    load<Width>(m, moment + i);
#pragma unroll
    for (int w = 0; w < Width; ++w) {
      g[w] *= scale;
      m[w] += rest * (g[w] - m[w]);
      ahead[w] = scale == 0 ? 0 : g[w] + beta * (m[w] - g[w]);
    }
    if (scale != 0) store<Width>(moment + i, m);
    store<Width>(update + i, ahead);
  }
}

template <class P, class U, int Width>
CUDA_KERNEL(kUpdateThreads)
apply_update_kernel(P* parameter, const U* update, float* master, std::int64_t count,
                    const double* gradient_scale, const AdamWStep* step, bool decay, std::uint64_t stream) {
  if (*gradient_scale == 0) return;
  const float shrink = decay ? step->shrink : 1.0f, rate = step->learning_rate;
  move_elements<Width, 0>(Moved<P>{parameter, master, rounding_key(step->step, stream)}, update, Moments<0>{},
                          count, own_elements<Width>(), [&](float& value, float ahead, const auto&) {
                            value = value * shrink - rate * ahead;
                          });
}

// out = inp (matrices, count) times `size` over each matrix's Frobenius norm.
template <class T, int Width>
CUDA_KERNEL(kUpdateThreads)
normalise_kernel(T* out, const T* inp, const double* squares, float size, std::int64_t count) {
  constexpr double kLeast = 1e-7;  // a matrix of zeros stays one
  const int matrix = block_index().y;
  const double norm = sqrt(squares[matrix]);
  const auto scale = static_cast<float>(static_cast<double>(size) / (norm > kLeast ? norm : kLeast));
  const OwnElements<Width> own = own_elements<Width>();
  for (std::int64_t i = own.first; i < count; i += own.stride) {
    float x[Width];
    load<Width>(x, inp + matrix * count + i);
#pragma unroll
    for (int w = 0; w < Width; ++w) x[w] *= scale;
    store<Width>(out + matrix * count + i, x);
  }
}

void normalise(const Context& context, Tensor out, Tensor inp, const double* squares, float size,
               std::int64_t matrices, std::int64_t count) {
  with_type(inp.type, [&]<class T>(T) {
    const auto launch = [&]<int Width>() {
      start(context,
            {.grid = {blocks_for(count / Width, kUpdateThreads), static_cast<int>(matrices), 1},
             .threads = kUpdateThreads},
            normalise_kernel<T, Width>, out.as<T>(), inp.as<T>(), squares, size, count);
    };
    count % kVector<T> == 0 ? launch.template operator()<kVector<T>>() : launch.template operator()<1>();
  });
}

// X becomes aX + (bA + cA^2) X with A = X X^T. Kept is only Y = X / s, where s grows by a in each iteration:
// then the first term needs no factor, and all terms but one product are plain addends. b A is a product
// scaled by b s^2. cA^2 + bA is the next product, of b A by itself, scaled by c / b^2. After the last
// iteration s is 1.
void iterate(Products& products, Tensor update, const MuonShape& s, std::int64_t matrices, bool tf32,
             ScratchArrays arrays) {
  const std::int64_t r = std::min(s.rows, s.cols), all = s.rows * s.cols, element = size_of(update.type);
  const bool wide = s.rows <= s.cols;
  double* const squares = arrays.next<double>(matrices);
  const auto array = [&](std::int64_t elements) {
    return Tensor{arrays.next<std::byte>(matrices * elements * element), update.type};
  };
  const Tensor other = array(all), gram = array(r * r), factor = array(r * r);
  sums_of_squares(arrays.rest, squares, update, matrices, all);
  const double steps = kMuonStepSize * std::sqrt(static_cast<double>(std::max(s.rows, s.cols)));
  const double growth = std::pow(kMuonLinear, kMuonIterations);
  normalise(arrays.rest, other, update, squares, static_cast<float>(steps * growth), matrices, all);

  const auto multiply = [&](Product product) {
    product.tf32 = tf32;
    product.batch = matrices;
    products.run(arrays.rest, product);
  };
  static_assert(kMuonIterations % 2 == 1);  // so that the last one's result lies in `update`
  Tensor x = other, next = update;
  double size = 1 / (growth * steps);
  for (int iteration = 0; iteration < kMuonIterations; ++iteration) {
    multiply({.M = r,
              .N = r,
              .K = std::max(s.rows, s.cols),
              .a = x,
              .b = x,
              .out = gram,
              .transpose_a = !wide,
              .transpose_b = wide,
              .scale = static_cast<float>(kMuonCubic * size * size),
              .stride_a = all,
              .stride_b = all,
              .stride_out = r * r});
    multiply({.M = r,
              .N = r,
              .K = r,
              .a = gram,
              .b = gram,
              .out = factor,
              .addend = gram,
              .scale = static_cast<float>(kMuonQuintic / (kMuonCubic * kMuonCubic)),
              .stride_a = r * r,
              .stride_b = r * r,
              .stride_out = r * r});
    multiply({.M = s.rows,
              .N = s.cols,
              .K = r,
              .a = wide ? factor : x,
              .b = wide ? x : factor,
              .out = next,
              .addend = x,
              .scale = static_cast<float>(1 / kMuonLinear),
              .stride_a = wide ? r * r : all,
              .stride_b = wide ? all : r * r,
              .stride_out = all});
    std::swap(x, next);
    size *= kMuonLinear;
  }
}

}  // namespace

void muon_momentum(const Context& context, std::span<const MuonMomentumTensor> tensors,
                   const double* gradient_scale, const AdamWStep* step) {
  for (const MuonMomentumTensor& t : tensors)
    with_update_types(t.update.type, t.gradient.type, t.count,
                      [&]<class U, class G, int Width>(const Launch& launch) {
                        start(context, launch, muon_momentum_kernel<U, G, Width>, t.update.as<U>(),
                              t.gradient.as<G>(), t.moment, t.count, gradient_scale, step);
                      });
}

void orthogonalise(const Context& context, Products& products, Tensor update, MuonShape s, bool tf32) {
  const std::int64_t r = std::min(s.rows, s.cols), all = s.rows * s.cols, element = size_of(update.type);
  const std::int64_t each = (all + 2 * r * r) * element;
  const std::int64_t at_once = std::clamp<std::int64_t>(context.scratch_bytes / 2 / each, 1, s.matrices);
  for (std::int64_t first = 0; first < s.matrices; first += at_once) {
    const Tensor part{update.as<std::byte>() + first * all * element, update.type};
    iterate(products, part, s, std::min(at_once, s.matrices - first), tf32, {context});
  }
}

void apply_update(const Context& context, std::span<const MuonTensor> tensors, const double* gradient_scale,
                  const AdamWStep* step, bool decay) {
  for (const MuonTensor& t : tensors)
    with_update_types(t.parameter.type, t.update.type, t.count,
                      [&]<class P, class U, int Width>(const Launch& launch) {
                        start(context, launch, apply_update_kernel<P, U, Width>, t.parameter.as<P>(),
                              t.update.as<U>(), t.master, t.count, gradient_scale, step, decay, t.stream);
                      });
}

}  // namespace kernels::cuda
