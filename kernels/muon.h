// Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon): a matrix's step is its momentum, made
// orthogonal by Newton-Schulz iterations. The step is scaled to the root mean square of AdamW's steps, 0.2
// (Liu et al. 2025, arXiv 2502.16982, section 2.2), so that one learning rate serves both.
#pragma once
#include <cstdint>

#include "kernels/optimizer.h"

namespace kernels {

// The number of iterations, Jordan's coefficients a, b, c, with which an iteration turns X into
// aX + bXX^T X + c(XX^T)^2 X, and the step's root mean square.
inline constexpr int kMuonIterations = 5;
inline constexpr double kMuonLinear = 3.4445, kMuonCubic = -4.7750, kMuonQuintic = 2.0315;
inline constexpr double kMuonStepSize = 0.2;

struct MuonShape {
  std::int64_t matrices, rows, cols;  // one behind the other
};

namespace cpu {

// moment (count) moves towards the gradient by 1 - beta1; update (count) is where it would be after one more
// such step by the same gradient (Nesterov). gradient_scale multiplies every gradient first; null means 1.
void muon_momentum(float* update, const float* gradient, float* moment, std::int64_t count,
                   const float* gradient_scale, const AdamWSettings& settings);

// update (matrices, rows, cols): each matrix U S V^T becomes about 0.2 sqrt(max(rows, cols)) U V^T, by the
// iterations above. The calling thread holds up to
// 2 (r^2 + r c) floats meanwhile, r the lesser of rows and cols.
void orthogonalise(float* update, MuonShape s);

// parameter (count) = parameter (1 - learning_rate weight_decay) - learning_rate update; without decay the
// first factor is 1.
void apply_update(float* parameter, const float* update, std::int64_t count, bool decay,
                  const AdamWSettings& settings);

}  // namespace cpu
}  // namespace kernels
