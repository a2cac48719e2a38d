#include "runtime/weight_quantisation.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/quantization.h"

namespace runtime {
namespace {

namespace cuda = kernels::cuda;

cuda::WeightFormat format_of(sim::DType dtype) {
  return dtype == sim::DType::int8   ? cuda::WeightFormat::int8
         : dtype == sim::DType::int4 ? cuda::WeightFormat::int4
                                     : cuda::WeightFormat::fp8;
}

// The code of what is nearest to a value within the format's range.
std::uint8_t code_of(cuda::WeightFormat format, float value) {
  if (format == cuda::WeightFormat::fp8) return cuda::to_e4m3(value).bits;
  const float most = cuda::largest_of(format);
  const auto whole = static_cast<int>(std::lrintf(std::clamp(value, -most, most)));
  return static_cast<std::uint8_t>(format == cuda::WeightFormat::int4 ? whole + 8 : whole);
}

}  // namespace

std::int64_t quantisation_group(sim::DType dtype, std::int64_t columns) {
  return dtype == sim::DType::int4 ? cuda::kInt4Group : columns;
}

QuantisedWeights quantise_weights(std::span<const float> values, std::int64_t columns, sim::DType dtype) {
  const cuda::WeightFormat format = format_of(dtype);
  const auto group = static_cast<std::size_t>(quantisation_group(dtype, columns));
  const bool halves = format == cuda::WeightFormat::int4;
  QuantisedWeights q;
  q.bytes.resize(halves ? values.size() / 2 : values.size());
  q.scales.reserve(values.size() / group);
  for (std::size_t first = 0; first < values.size(); first += group) {
    float largest = 0;
    for (const float value : values.subspan(first, group)) largest = std::max(largest, std::abs(value));
    const float scale = largest > 0 ? largest / cuda::largest_of(format) : 1.0f;
    q.scales.push_back(scale);
    for (std::size_t i = first; i < first + group; ++i) {
      const std::uint8_t code = code_of(format, values[i] / scale);
      if (halves)
        q.bytes[i / 2] |= static_cast<std::byte>(i % 2 == 0 ? code : code << 4);
      else
        q.bytes[i] = static_cast<std::byte>(code);
    }
  }
  return q;
}

}  // namespace runtime
