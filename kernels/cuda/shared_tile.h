// A tile of 16-bit rows (bf16 or f16) in shared memory, and how matrix instructions take fragments from it.
// Plain C++ except for the copies, so that tests on the host check the index maps.
#pragma once
#include "kernels/cuda/thread.h"

namespace kernels::cuda {

// Rows of Columns elements. Eight elements of padding make a row's length an odd number of 16-byte units, so
// that eight consecutive rows at one column, what ldmatrix reads at a time, lie in eight different groups of
// four banks.
template <int Columns>
struct SharedTile {
  static_assert(Columns % 16 == 0, "fragments are 16 wide");
  static constexpr int kStride = Columns + 8;
  static_assert(kStride / 8 % 2 == 1);
  static constexpr int kVectors = Columns / 8;  // of 16 bytes in a row

  static constexpr int offset(int row, int column) { return row * kStride + column; }
  static constexpr int elements(int rows) { return rows * kStride; }
};

// The address that a lane gives ldmatrix, relative to the tile's (row, column). Each eight lanes address the
// rows of one of four 8x8 matrices.
struct Place {
  int row, column;
};
// A fragment of A (16x16) from rows; also a fragment of B for two tiles of 8 columns from B's rows,
// transposed: matrices in the order (0,0) (8,0) (0,8) (8,8).
constexpr Place place_by_rows(int lane) {
  return {lane % 16, lane / 16 * 8};
}
// A fragment of B for two tiles of 8 columns, from rows of B's transpose: (0,0) (0,8) (8,0) (8,8).
constexpr Place place_by_columns(int lane) {
  return {lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8};
}

// Where element i of a lane's accumulator lies in its 16x8 tile.
constexpr Place accumulator_place(int lane, int i) {
  return {lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2};
}

template <int Columns, class T>
CUDA_DEVICE void load_a(std::uint32_t (&a)[4], const T* tile, int row, int column) {
  const Place place = place_by_rows(lane_index());
  load_matrices(a, tile + SharedTile<Columns>::offset(row + place.row, column + place.column));
}

// b[0], b[1]: of columns n .. n + 7 of B (k .. k + 15, n ..); b[2], b[3]: of the next eight. The tile holds
// B's transpose: its rows are n.
template <int Columns, class T>
CUDA_DEVICE void load_b_transposed(std::uint32_t (&b)[4], const T* tile, int n, int k) {
  const Place place = place_by_columns(lane_index());
  load_matrices(b, tile + SharedTile<Columns>::offset(n + place.row, k + place.column));
}

// The same where the tile holds B itself: its rows are k.
template <int Columns, class T>
CUDA_DEVICE void load_b(std::uint32_t (&b)[4], const T* tile, int k, int n) {
  const Place place = place_by_rows(lane_index());
  load_matrices_transposed(b, tile + SharedTile<Columns>::offset(k + place.row, n + place.column));
}

// Rows of a matrix in memory.
template <class T>
struct Rows {
  T* first;
  std::int64_t stride;  // elements from a row to the next

  CUDA_HOST_DEVICE T* at(int row) const { return first + row * stride; }
};

// Begins to copy `rows` rows of `columns` elements (a multiple of 8), from row `first` of the source on, into
// the tile of Tall rows; the rest of the tile becomes zeros. All threads of the block take part.
template <int Columns, int Tall, class T, class Source>
CUDA_DEVICE void copy_rows(T* tile, const Source& source, int first, int rows, int columns) {
  constexpr int kVectors = SharedTile<Columns>::kVectors;
  for (int i = thread_index(); i < Tall * kVectors; i += block_size()) {
    const int row = i / kVectors, column = i % kVectors * 8;
    const bool valid = row < rows && column < columns;
    copy_async(tile + SharedTile<Columns>::offset(row, column),
               valid ? source.at(first + row) + column : source.first, valid);
  }
}
template <int Columns, int Tall, class T>
CUDA_DEVICE void copy_tile(T* tile, const T* from, std::int64_t stride, int rows, int columns) {
  copy_rows<Columns, Tall>(tile, Rows<const T>{from, stride}, 0, rows, columns);
}

// Two neighbouring 16x8 accumulators, rounded to T, as the A fragment of the next product.
template <class T>
CUDA_DEVICE void accumulators_as_a(std::uint32_t (&a)[4], const float (&left)[4], const float (&right)[4]) {
  a[0] = pack_pair<T>(left[0], left[1]);
  a[1] = pack_pair<T>(left[2], left[3]);
  a[2] = pack_pair<T>(right[0], right[1]);
  a[3] = pack_pair<T>(right[2], right[3]);
}

}  // namespace kernels::cuda
