// Which tiles of keys a tile of queries attends to, and which of them need a mask. Plain C++, so that tests
// on the host check it for every query and key.
#pragma once
#include "kernels/cuda/types.h"

namespace kernels::cuda {

constexpr int kKeyTile = 64;

// The first key that the query at a position sees; it never decreases with the position.
CUDA_HOST_DEVICE int first_visible_key(int position, int window, int chunk) {
  if (chunk > 0) return position / chunk * chunk;
  return window > 0 && position >= window ? position - window + 1 : 0;
}

// Queries [first, first + count) at positions begin + first + i of sequences with `keys` keys; causal: a
// query sees the keys up to its own position.
struct QueryTile {
  int first, count;
  int begin;  // position of query 0
  int keys;
  bool causal;
  int key_tile = kKeyTile;  // keys a tile
  // As kernels::AttentionMask has them: keys that a query sees, or the segments whose keys it sees; 0: all.
  int window = 0, chunk = 0;

  CUDA_HOST_DEVICE int first_key(int query) const { return first_visible_key(begin + query, window, chunk); }
  // The first tile of keys that any query sees.
  CUDA_HOST_DEVICE int first_key_tile() const { return first_key(first) / key_tile; }
  CUDA_HOST_DEVICE int visible_to_last() const {
    const int last = begin + first + count;
    return causal && last < keys ? last : keys;
  }
  CUDA_HOST_DEVICE int visible_to_first() const {
    const int next = begin + first + 1;
    return causal && next < keys ? next : keys;
  }
  // Tiles of keys from 0 that any query sees.
  CUDA_HOST_DEVICE int key_tiles() const { return (visible_to_last() + key_tile - 1) / key_tile; }
  // Whether some query does not see some key of the tile.
  CUDA_HOST_DEVICE bool needs_mask(int tile) const {
    const bool hides_early = window > 0 || chunk > 0;
    return (tile + 1) * key_tile > visible_to_first() ||
           (hides_early && tile * key_tile < first_key(first + count - 1));
  }
  CUDA_HOST_DEVICE bool sees(int query, int key) const {
    return key < keys && (!causal || key <= begin + query) && key >= first_key(query);
  }
};

// Backward by keys, where queries and keys are the same tokens: the first tile of queries that sees a key of
// the tile that begins at key `first`.
CUDA_HOST_DEVICE int first_query_tile(int first_key, int query_tile, bool causal) {
  return causal ? first_key / query_tile : 0;
}

// The same for a window or chunks: one past the last of `queries` queries that sees a key up to `last_key`.
CUDA_HOST_DEVICE int end_of_queries(int last_key, int queries, int window, int chunk) {
  const std::int64_t end = chunk > 0    ? (static_cast<std::int64_t>(last_key) / chunk + 1) * chunk
                           : window > 0 ? static_cast<std::int64_t>(last_key) + window
                                        : queries;
  return end < queries ? static_cast<int>(end) : queries;
}

// For one backward kernel by keys, which adds up the parts of a query's gradient in descending order of keys:
// the last of `key_tiles` tiles that the tile of queries sees; its part begins the sum.
CUDA_HOST_DEVICE int last_key_tile(int query_tile_index, int query_tile, int key_tile, int key_tiles,
                                   bool causal) {
  const int seen = ((query_tile_index + 1) * query_tile - 1) / key_tile;
  return causal && seen < key_tiles ? seen : key_tiles - 1;
}

// Decode: divides `tiles` tiles of keys among `splits` blocks and returns the contiguous part of block
// `split`. The first blocks get one tile more if tiles are left over. One short division, because a few
// instructions matter in such a short kernel.
struct Part {
  int begin, end;
};
CUDA_HOST_DEVICE Part part_of(int tiles, int split, int splits) {
  const int each = static_cast<int>(static_cast<unsigned>(tiles) / static_cast<unsigned>(splits));
  const int more = tiles - each * splits, begin = split * each + (split < more ? split : more);
  return {begin, begin + each + (split < more ? 1 : 0)};
}

}  // namespace kernels::cuda
