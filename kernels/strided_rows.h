// Rows that are columns of wider rows.
#pragma once
#include <cstdint>

namespace kernels::cpu {

// Row r begins at data + r * stride.
template <class Float>
struct StridedRows {
  Float* data;
  std::int64_t stride;
  Float* row(std::int64_t r) const { return data + r * stride; }
};

}  // namespace kernels::cpu
