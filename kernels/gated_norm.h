// RMSNorm of a gated row, group by group, as Mamba-2 has it after its scan (Dao & Gu 2024, arXiv 2405.21060,
// section 7.1):
//   u = inp gate sigmoid(gate);   out = u / sqrt(mean of u^2 over its group + eps) weight
#pragma once
#include <cstdint>

namespace kernels {

// R rows of C columns, in G groups of C / G columns that lie together.
struct GatedNormShape {
  std::int64_t R, C, G;
};

namespace cpu {

// out (R, C); rstd (R, G) is kept for backward, may be null. inp (R, C); gate: row r is the C floats at gate
// + r gate_stride; weight (C).
void gated_norm_forward(float* out, float* rstd, const float* inp, const float* gate,
                        std::int64_t gate_stride, const float* weight, float eps, GatedNormShape s);

// dinp (R, C) = and dgate = (rows dgate_stride apart) gradients; dweight (C) +=.
void gated_norm_backward(float* dinp, float* dgate, std::int64_t dgate_stride, float* dweight,
                         const float* dout, const float* inp, const float* gate, std::int64_t gate_stride,
                         const float* weight, const float* rstd, GatedNormShape s);

}  // namespace cpu
}  // namespace kernels
