// Which tiles of keys a tile of queries attends to, and which of them need a mask. Plain C++: proven on the
// host for every query and key.
#pragma once
#include "kernels/cuda/types.h"

namespace kernels::cuda {

constexpr int kKeyTile = 64;

// Queries [first, first + count) at positions begin + first + i of sequences with `keys` keys; causal: a
// query sees the keys up to its own position.
struct QueryTile {
  int first, count;
  int begin;  // position of query 0
  int keys;
  bool causal;
  int key_tile = kKeyTile;  // keys a tile

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
  CUDA_HOST_DEVICE bool needs_mask(int tile) const { return (tile + 1) * key_tile > visible_to_first(); }
  CUDA_HOST_DEVICE bool sees(int query, int key) const {
    return key < keys && (!causal || key <= begin + query);
  }
};

// Backward by keys, where queries and keys are the same tokens: the first tile of queries that sees a key of
// the tile that begins at key `first`.
CUDA_HOST_DEVICE int first_query_tile(int first_key, int query_tile, bool causal) {
  return causal ? first_key / query_tile : 0;
}

// Backward by keys in one kernel, whose parts of a query's gradient are added up by keys in descending order:
// the last tile of keys, of `key_tiles`, that the tile of queries sees, which begins the sum.
CUDA_HOST_DEVICE int last_key_tile(int query_tile_index, int query_tile, int key_tile, int key_tiles,
                                   bool causal) {
  const int seen = ((query_tile_index + 1) * query_tile - 1) / key_tile;
  return causal && seen < key_tiles ? seen : key_tiles - 1;
}

// Decode: splits [begin, end) of `tiles` tiles of keys over `splits` blocks, each a contiguous part.
struct Part {
  int begin, end;
};
CUDA_HOST_DEVICE Part part_of(int tiles, int split, int splits) {
  return {static_cast<int>(static_cast<std::int64_t>(tiles) * split / splits),
          static_cast<int>(static_cast<std::int64_t>(tiles) * (split + 1) / splits)};
}

}  // namespace kernels::cuda
