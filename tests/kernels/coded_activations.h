// What products with quantised weights (kernels/quantised.h) make of activations before they multiply them.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace test {

// Each 32 to 16 bits by the largest of them, as the header says: what the kernel multiplies.
inline std::vector<float> coded(const std::vector<float>& inp) {
  std::vector<float> out(inp.size());
  for (std::size_t first = 0; first < inp.size(); first += 32) {
    float largest = 0;
    for (std::size_t i = first; i < first + 32; ++i) largest = std::max(largest, std::abs(inp[i]));
    for (std::size_t i = first; i < first + 32; ++i)
      out[i] = std::nearbyint(inp[i] * (32639 / largest)) * (largest / 32639);
  }
  return out;
}

}  // namespace test
