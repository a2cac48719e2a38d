// Keys or values of one head of a sequence in a KV cache, as attention reads them: rows of fp32, a tile at a
// time, whatever the cache stores.
#pragma once
#include <cstdint>

#include "kernels/attention_tile.h"
#include "kernels/kv_cache.h"

namespace kernels::cpu {

class CachedTiles {
 public:
  enum Which { kKeys, kValues };

  CachedTiles(const KvCache& cache, Which which, AttentionShape s, std::int64_t b, std::int64_t g);

  // `count` <= kKeyTile rows from `first` on: where they lie, if they follow each other in fp32; else brought
  // together in `gathered`.
  ConstRows tile(std::int64_t first, std::int64_t count, float* gathered) const;

  // Stores row t, rounded to what the cache holds.
  void write(std::int64_t t, const float* from) const;

 private:
  bool is_wide() const { return !cache_.is_fp8() && !cache_.is_bf16 && !cache_.is_int8; }
  std::int64_t row(std::int64_t t) const { return cache_.row(b_, g_, t, G_); }
  const float* f32(std::int64_t t) const { return static_cast<const float*>(data_) + row(t) * D_; }
  std::int8_t* codes(std::int64_t t) const {
    return static_cast<std::int8_t*>(data_) + row(t) * (D_ + KvCache::kScaleBytes);
  }
  void round_to_codes(std::int8_t* to, const float* from) const;

  const KvCache& cache_;
  void* data_;
  float scale_;
  std::int64_t b_, g_, G_, D_;
};

}  // namespace kernels::cpu
