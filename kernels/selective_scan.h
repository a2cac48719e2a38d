// The scan of a state-space layer, Mamba-2 (Dao & Gu 2024, arXiv 2405.21060): each head carries a state S (N,
// P) from token to token,
//   dt = softplus(dt_inp + dt_bias),  a = dt A,  A = -exp(A_log),
//   S[t] = exp(a[t]) S[t - 1] + B[t] (dt[t] x[t])^T,   y[t] = S[t]^T C[t] + D x[t],
// with B and C of N numbers, shared by the heads of a group. Forward and backward go chunk by chunk (section
// 6 there): within a chunk of Q tokens the scan is a masked product as attention's,
//   y = ((C B^T) * L) (dt x),   L[i, j] = exp(a[j + 1] + ... + a[i]) for j <= i,
// and only one state a chunk is carried on. A single token is the recurrence itself.
// FLOPs forward, a token and head: 2 Q N / (heads of a group) + 2 Q P + 4 N P.
#pragma once
#include <cstdint>

namespace kernels {

// B sequences of T tokens, H heads of P, G groups (G divides H) of N states, chunks of Q tokens.
struct SelectiveScanShape {
  std::int64_t B, T, H, P, G, N, Q;

  constexpr std::int64_t inner() const { return H * P; }                // columns of x and y
  constexpr std::int64_t columns() const { return H * P + 2 * G * N; }  // of a row x | B | C
  constexpr std::int64_t chunks() const { return (T + Q - 1) / Q; }
};

// dt's input: row (b, t) is the H floats at inp + (b T + t) stride.
struct ScanTimeSteps {
  const float* inp;
  std::int64_t stride;
  const float* bias;   // (H)
  const float* a_log;  // (H)
};

namespace cpu {

// out (B, T, H P); xbc (B, T, columns): a row is x | B | C; d (H).
// state (B, H, N, P), may be null: carried in from earlier tokens, and left as it is after the last. Where
// first_positions (B) is null or says 0 for a sequence, what the state holds on entry counts as zero.
void selective_scan_forward(float* out, float* state, const float* xbc, ScanTimeSteps dt, const float* d,
                            const std::int32_t* first_positions, SelectiveScanShape s);

// Gradients, from a state of zero: dxbc (B, T, columns) = ; ddt = (rows ddt_stride apart); dbias, da_log, dd
// (H) += . scratch: selective_scan_scratch(s) floats. Runs on at most B G threads.
struct ScanGradients {
  float* dxbc;
  float* ddt;
  std::int64_t ddt_stride;
  float *dbias, *da_log, *dd;
};
void selective_scan_backward(ScanGradients gradients, float* scratch, const float* dout, const float* xbc,
                             ScanTimeSteps dt, const float* d, SelectiveScanShape s);
std::int64_t selective_scan_scratch(SelectiveScanShape s);

}  // namespace cpu
}  // namespace kernels
