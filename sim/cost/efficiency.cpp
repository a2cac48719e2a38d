#include "sim/cost/efficiency.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace sim {
namespace {

// The best matrix products that mamf-finder finds reach 0.80 of the peak on H100 and H200, 0.87 on A100, 0.78
// on B200 (S. Bekman, ml-engineering, compute/accelerator). Weights streamed through skinny products reach
// 0.87, 0.66, 0.67 of their bandwidth (tables of github.com/ai-dynamo/aiconfigurator). A copy in memory
// reaches 0.75 on H100 (2.52 TB/s), 0.78 on A100 (1.59), 0.73 on GB200 (5.8) (ml-engineering, network).
constexpr double kProduct = 0.80;
constexpr double kMemory = 0.75;

// Arithmetic outside tensor cores hides behind memory. Where it does not, it reaches half the peak, because
// it has no fused multiply-adds.
constexpr double kElementwise = 0.5;

// Forward FlashAttention by length, with causal pairs counted and head size 128: means of FlashAttention-3 on
// H100 (0.24, 0.39, 0.53, 0.61, 0.67) and FlashAttention-2 on A100 (0.28, 0.40, 0.49, 0.56, 0.56) in the
// tables of aiconfigurator, with 32 query and 8 key-value heads. Backward reaches at best 0.63 of the peak
// where forward reaches 0.73 (Dao 2023, arXiv 2307.08691, section 1).
struct LengthEfficiency {
  double length, efficiency;
};
constexpr std::array<LengthEfficiency, 5> kFlash{
    {{1024, 0.26}, {2048, 0.395}, {4096, 0.51}, {8192, 0.585}, {16384, 0.615}}};
constexpr double kFlashBackward = 0.63 / 0.73;

// The products of standard attention run in batches of small matrices.
constexpr double kStandardAttention = 0.5;

// The products of all experts together reach 0.52 of an H100's peak at 4 to 16 thousand tokens of Mixtral's
// shape. With few tokens they reach 0.80 to 0.87 of the bandwidth over the experts that are hit (tables of
// aiconfigurator). Rows that are gathered and scattered move at 0.60 to 0.70 of the bandwidth.
constexpr double kGroupedProduct = 0.52;
constexpr double kGroupedMemory = 0.83;
constexpr double kScattered = 0.65;

// FlashMLA on H800 reaches 3000 of 3350 GB/s where reading the cache is the limit, and 660 of 989 TFLOPS
// where arithmetic is (github.com/deepseek-ai/FlashMLA, README).
constexpr double kLatentMemory = 3000.0 / 3350;
constexpr double kLatentCompute = 660.0 / 989;

// Mamba-2's scan is as fast as FlashAttention-2 at 2 thousand tokens and six times as fast at 16 thousand, on
// an A100 with 64 states and heads of 64 (Dao & Gu 2024, arXiv 2405.21060, section 9.3 and figure 10). By the
// efficiencies above attention takes 33 and 188 ps per token and channel there. This gives the scan 33 and 31
// ps, in which it makes 768 FLOPs (chunks of 256). Its five kernels pass states and decays to each other
// through memory; this rate includes that.
constexpr double kScan = 0.077;
constexpr double kScanError = 1;

// 90th percentile of the error of a roofline with two such efficiencies and a launch cost, over 87,548
// products and over 1,125 attention, norm and decode kernels in the same tables.
constexpr double kProductError = 0.41;
constexpr double kKernelError = 0.46;

double flash_efficiency(std::int64_t length) {
  const double x = static_cast<double>(length);
  if (x <= kFlash.front().length) return kFlash.front().efficiency;
  const auto above = std::ranges::find_if(kFlash, [&](const LengthEfficiency& e) { return e.length >= x; });
  if (above == kFlash.end()) return kFlash.back().efficiency;
  const LengthEfficiency& below = *(above - 1);
  const double t = std::log(x / below.length) / std::log(above->length / below.length);
  return below.efficiency + t * (above->efficiency - below.efficiency);
}

}  // namespace

Efficiency datasheet_efficiency(const KernelSample& shape) {
  const double flash = flash_efficiency(shape.query_length);
  switch (info(shape.kind).curve) {
    case Curve::product:
    case Curve::newton_schulz:
      return {kProduct, kMemory, kProductError};
    case Curve::grouped_product:
      return {kGroupedProduct, kGroupedMemory, kKernelError};
    case Curve::scattered:
      return {kElementwise, kScattered, kKernelError};
    case Curve::latent_cached_attention:
      return {kLatentCompute, kLatentMemory, kKernelError};
    case Curve::flash_attention:
      return {is_backward(shape.kind) ? kFlashBackward * flash : flash, kMemory, kKernelError};
    case Curve::cached_attention:
      return {flash, kMemory, kKernelError};
    case Curve::standard_attention:
      return {kStandardAttention, kMemory, kKernelError};
    case Curve::scan:
      return {kScan, kMemory, kScanError};
    case Curve::streamed:
    case Curve::network:
      break;
  }
  return {kElementwise, kMemory, kKernelError};
}

}  // namespace sim
