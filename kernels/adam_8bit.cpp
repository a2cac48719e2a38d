#include "kernels/adam_8bit.h"

#include <algorithm>
#include <cmath>

#include "kernels/parallel.h"

namespace kernels {
namespace {

using Map = std::array<float, 256>;

template <bool is_signed>
Map map_of() {
  Map map{};
  for (int code = 0; code < 256; ++code) map[static_cast<std::size_t>(code)] = moment_value<is_signed>(code);
  return map;
}

}  // namespace

const std::array<float, 256>& moment_map(bool is_signed) {
  static const Map with_sign = map_of<true>(), without = map_of<false>();
  return is_signed ? with_sign : without;
}

std::uint8_t moment_code(float value, bool is_signed) {
  const Map& map = moment_map(is_signed);
  const auto above = std::lower_bound(map.begin(), map.end(), value);
  if (above == map.begin()) return 0;
  if (above == map.end()) return 255;
  const float below = *(above - 1);
  return static_cast<std::uint8_t>(above - map.begin() - (value - below <= *above - value ? 1 : 0));
}

namespace cpu {

void adamw_8bit(const Adam8BitTensor& tensor, const float* gradient_scale, const AdamWSettings& settings) {
  const double steps = static_cast<double>(settings.step);
  const float clip = gradient_scale ? *gradient_scale : 1.0f;
  const float beta1 = settings.beta1, beta2 = settings.beta2;
  const float step_size =
      static_cast<float>(settings.learning_rate / (1 - std::pow(double{settings.beta1}, steps)));
  const float rsqrt_correction2 =
      static_cast<float>(1 / std::sqrt(1 - std::pow(double{settings.beta2}, steps)));
  const float shrink =
      tensor.decay ? static_cast<float>(1 - double{settings.learning_rate} * settings.weight_decay) : 1.0f;
  const Map &map1 = moment_map(true), &map2 = moment_map(false);
  const std::int64_t blocks = (tensor.count + kMomentBlock - 1) / kMomentBlock;
  constexpr std::int64_t kCost = 16;  // of an element, in floats touched: codes are looked for
  parallel_ranges(blocks, kCost * kMomentBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * kMomentBlock, size = std::min(kMomentBlock, tensor.count - first);
      float moment1[kMomentBlock], moment2[kMomentBlock], greatest1 = 0, greatest2 = 0;
      for (std::int64_t i = 0; i < size; ++i) {
        const float g = tensor.gradient[first + i] * clip;
        moment1[i] = beta1 * (map1[tensor.moment1[first + i]] * tensor.scale1[block]) + (1 - beta1) * g;
        moment2[i] = beta2 * (map2[tensor.moment2[first + i]] * tensor.scale2[block]) + (1 - beta2) * g * g;
        greatest1 = std::max(greatest1, std::abs(moment1[i]));
        greatest2 = std::max(greatest2, moment2[i]);
        float& parameter = tensor.parameter[first + i];
        parameter = parameter * shrink -
                    step_size * moment1[i] / (std::sqrt(moment2[i]) * rsqrt_correction2 + settings.eps);
      }
      tensor.scale1[block] = greatest1;
      tensor.scale2[block] = greatest2;
      const float inverse1 = greatest1 > 0 ? 1 / greatest1 : 0, inverse2 = greatest2 > 0 ? 1 / greatest2 : 0;
      for (std::int64_t i = 0; i < size; ++i) {
        tensor.moment1[first + i] = moment_code(moment1[i] * inverse1, true);
        tensor.moment2[first + i] = moment_code(moment2[i] * inverse2, false);
      }
    }
  });
}

}  // namespace cpu
}  // namespace kernels
