// Rows that are columns of wider rows, on the GPU.
#pragma once
#include <cstdint>

namespace kernels::cuda {

// Elements from a row to the next, of inp, of out or its gradient, and of dinp; 0: rows follow each other.
struct RowStrides {
  std::int64_t inp = 0, out = 0, dinp = 0;
};

// Whether 16 bytes may be loaded from there at once.
inline bool is_vector_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

}  // namespace kernels::cuda
