#include "kernels/cached_tiles.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/bf16_values.h"
#include "kernels/cuda/types.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {
namespace {

// Rows (rows, D) of a cache in fp8 with a head's scale.
KERNELS_MULTIVERSION void expand_e4m3(float* to, const cuda::e4m3* from, float scale, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] = scale * cuda::to_float(from[i]);
}

// ... and of one in int8, whose rows end with the step that they are multiples of.
KERNELS_MULTIVERSION void expand_codes(float* to, const std::int8_t* from, std::int64_t rows,
                                       std::int64_t D) {
  for (std::int64_t i = 0; i < rows; ++i, to += D, from += D + KvCache::kScaleBytes) {
    float step = 0;
    std::memcpy(&step, from + D, sizeof step);
#pragma omp simd
    for (std::int64_t d = 0; d < D; ++d) to[d] = step * static_cast<float>(from[d]);
  }
}

}  // namespace

CachedTiles::CachedTiles(const KvCache& cache, Which which, AttentionShape s, std::int64_t b, std::int64_t g)
    : cache_(cache),
      data_(which == kKeys ? cache.k : cache.v),
      scale_(cache.is_fp8() ? cache.scales[which * s.G + g] : 1.0f),
      b_(b),
      g_(g),
      G_(s.G),
      D_(s.D) {}

ConstRows CachedTiles::tile(std::int64_t first, std::int64_t count, float* gathered) const {
  if (is_wide() && cache_.run(first) >= count) return {f32(first), D_};
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t rows = std::min(count - done, cache_.run(first + done));
    float* const to = gathered + done * D_;
    if (cache_.is_fp8())
      expand_e4m3(to, static_cast<const cuda::e4m3*>(data_) + row(first + done) * D_, scale_, rows * D_);
    else if (cache_.is_int8)
      expand_codes(to, codes(first + done), rows, D_);
    else if (cache_.is_bf16)
      widen(to, static_cast<const cuda::bf16*>(data_) + row(first + done) * D_, rows * D_);
    else
      std::copy_n(f32(first + done), rows * D_, to);
    done += rows;
  }
  return {gathered, D_};
}

void CachedTiles::write(std::int64_t t, const float* from) const {
  if (is_wide()) {
    std::copy_n(from, D_, static_cast<float*>(data_) + row(t) * D_);
    return;
  }
  if (cache_.is_bf16) return narrow(static_cast<cuda::bf16*>(data_) + row(t) * D_, from, D_);
  if (cache_.is_int8) return round_to_codes(codes(t), from);
  std::uint8_t* const to = static_cast<std::uint8_t*>(data_) + row(t) * D_;
  for (std::int64_t d = 0; d < D_; ++d) to[d] = cuda::to_e4m3(from[d] / scale_).bits;
}

void CachedTiles::round_to_codes(std::int8_t* to, const float* from) const {
  float largest = 0;
  for (std::int64_t d = 0; d < D_; ++d) largest = std::max(largest, std::abs(from[d]));
  const float step = largest / 127, steps = step > 0 ? 1 / step : 0;
  for (std::int64_t d = 0; d < D_; ++d) to[d] = static_cast<std::int8_t>(std::lrint(from[d] * steps));
  std::memcpy(to + D_, &step, sizeof step);
}

}  // namespace kernels::cpu
