// Weights in fewer bits than they were trained in, in the layout that decoding kernels read. The largest
// magnitude of each row, or of each group of its columns, sets the scale (kernels/cuda/quantization.h). The
// code is in the header because the GPU backend, which uses it, links nothing of the program.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/quantization.h"
#include "sim/dtype.h"

namespace runtime {

namespace weight_quantisation {

inline kernels::cuda::WeightFormat format_of(sim::DType dtype) {
  return dtype == sim::DType::int8   ? kernels::cuda::WeightFormat::int8
         : dtype == sim::DType::int4 ? kernels::cuda::WeightFormat::int4
                                     : kernels::cuda::WeightFormat::fp8;
}

// The code of the format's number that is nearest to `value`.
inline std::uint8_t code_of(kernels::cuda::WeightFormat format, float value) {
  if (format == kernels::cuda::WeightFormat::fp8) return kernels::cuda::to_e4m3(value).bits;
  const float most = kernels::cuda::largest_of(format);
  const auto whole = static_cast<int>(std::lrintf(std::clamp(value, -most, most)));
  return static_cast<std::uint8_t>(format == kernels::cuda::WeightFormat::int4 ? whole + 8 : whole);
}

}  // namespace weight_quantisation

struct QuantisedWeights {
  std::vector<std::byte>
      bytes;                  // (rows, columns) in 8 bits, or two to a byte, the even column in the low half
  std::vector<float> scales;  // (rows), or (rows, columns / group)
};

// Columns that share a scale: a whole row in int8 and fp8 (e4m3), 128 in int4.
inline std::int64_t quantisation_group(sim::DType dtype, std::int64_t columns) {
  return dtype == sim::DType::int4 ? kernels::cuda::kInt4Group : columns;
}

// Rounds values (rows, columns) to nearest. dtype is int8, fp8 or int4. The group divides the columns.
inline QuantisedWeights quantise_weights(std::span<const float> values, std::int64_t columns,
                                         sim::DType dtype) {
  const kernels::cuda::WeightFormat format = weight_quantisation::format_of(dtype);
  const auto group = static_cast<std::size_t>(quantisation_group(dtype, columns));
  const bool halves = format == kernels::cuda::WeightFormat::int4;
  QuantisedWeights q;
  q.bytes.resize(halves ? values.size() / 2 : values.size());
  q.scales.reserve(values.size() / group);
  for (std::size_t first = 0; first < values.size(); first += group) {
    float largest = 0;
    for (const float value : values.subspan(first, group)) largest = std::max(largest, std::abs(value));
    const float scale = largest > 0 ? largest / kernels::cuda::largest_of(format) : 1.0f;
    q.scales.push_back(scale);
    for (std::size_t i = first; i < first + group; ++i) {
      const std::uint8_t code = weight_quantisation::code_of(format, values[i] / scale);
      if (halves)
        q.bytes[i / 2] |= static_cast<std::byte>(i % 2 == 0 ? code : code << 4);
      else
        q.bytes[i] = static_cast<std::byte>(code);
    }
  }
  return q;
}

// The same into a device's memory that the host sees, scales in fp32.
inline void store_quantised(std::span<std::byte> codes, std::span<std::byte> scales,
                            std::span<const float> values, std::int64_t columns, sim::DType dtype) {
  const QuantisedWeights q = quantise_weights(values, columns, dtype);
  std::copy(q.bytes.begin(), q.bytes.end(), codes.begin());
  const auto in_fp32 = std::as_bytes(std::span(q.scales));
  std::copy(in_fp32.begin(), in_fp32.end(), scales.begin());
}

}  // namespace runtime
