// Weight gradients that sum over rows, summed in an order that depends on the number of rows alone: rows are
// cut into chunks, threads sum within chunks, and the chunks' sums are added in order.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/vectorize.h"

namespace kernels::cpu {

// Enough chunks for 64 threads; at least 32 rows in each, so that adding the sums up stays small beside
// forming them.
inline constexpr std::int64_t kMaxRowChunks = 64;
inline constexpr std::int64_t kMinRowsInChunk = 32;

KERNELS_INLINE std::int64_t row_chunk_count(std::int64_t R) {
  return std::clamp<std::int64_t>(R / kMinRowsInChunk, 1, kMaxRowChunks);
}

// Adds to totals (width) what body(partial (width, zeroed), first row, last row + 1) leaves in its partial
// sums, over all chunks of R rows. The partial sums live in the calling thread's storage, at most
// kMaxRowChunks * width floats.
template <class Body>
void sum_over_row_chunks(std::int64_t R, std::int64_t width, const Body& body, auto&& add_total) {
  const std::int64_t chunks = row_chunk_count(R);
  static thread_local std::vector<float> storage;
  storage.assign(static_cast<std::size_t>(chunks * width), 0.0f);
  float* partials = storage.data();
  parallel_ranges(chunks, R * width / chunks, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t chunk = begin; chunk < end; ++chunk)
      body(partials + chunk * width, R * chunk / chunks, R * (chunk + 1) / chunks);
  });
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) add_total(partials + chunk * width);
}

}  // namespace kernels::cpu
