// Weights in fewer bits than they were trained in, as kernels that decode read them: each row, or group of
// columns of a row, by its largest magnitude (kernels/cuda/quantization.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/dtype.h"

namespace runtime {

struct QuantisedWeights {
  std::vector<std::byte>
      bytes;                  // (rows, columns) in 8 bits, or two to a byte, the even column in the low half
  std::vector<float> scales;  // (rows), or (rows, columns / group)
};

// Columns that share a scale: a whole row in int8 and fp8 (e4m3), 128 in int4.
std::int64_t quantisation_group(sim::DType dtype, std::int64_t columns);

// Of values (rows, columns), to the nearest; dtype is int8, fp8 or int4, and the group divides the columns.
QuantisedWeights quantise_weights(std::span<const float> values, std::int64_t columns, sim::DType dtype);

}  // namespace runtime
