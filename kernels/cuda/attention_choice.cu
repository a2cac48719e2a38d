#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cuda/attention_choice.h"
#include "kernels/cuda/hopper/attention_hopper.h"
#include "kernels/cuda/stream.h"

namespace kernels::cuda {
namespace {

// From the front and the back of a result: the first tiles, and the last, where masks and ends of sequences
// lie.
std::vector<float> sample_of(const Context& context, ConstTensor result, std::int64_t elements) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  const std::int64_t front = std::min(elements, kMost), back = std::min(elements - front, kMost);
  const std::int64_t size = size_of(result.type);
  std::vector<std::byte> bytes(static_cast<std::size_t>((front + back) * size));
  const auto all = std::span(bytes);
  copy_to_host(context, all.first(static_cast<std::size_t>(front * size)), result.data);
  if (back > 0)
    copy_to_host(context, all.subspan(static_cast<std::size_t>(front * size)),
                 static_cast<const std::byte*>(result.data) + (elements - back) * size);
  std::vector<float> values(static_cast<std::size_t>(front + back));
  with_16_bit_type(result.type, [&]<class T>(T) {
    const T* const stored = reinterpret_cast<const T*>(bytes.data());
    std::transform(stored, stored + values.size(), values.begin(), [](T x) { return to_float(x); });
  });
  return values;
}

}  // namespace

bool agree(std::span<const float> a, std::span<const float> b) {
  constexpr double kMost = 0.02;
  double difference = 0, length = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    difference += (x - y) * (x - y);
    length += x * x;
  }
  return std::isfinite(difference) && difference <= kMost * kMost * length;  // false of what is no number
}

bool AttentionKernels::takes_hopper(const Context& context, const Key& key, ConstTensor result,
                                    std::int64_t elements, const std::function<void()>& flash,
                                    const std::function<void()>& hopper) {
  if (const auto known = takes_hopper_.find(key); known != takes_hopper_.end()) return known->second;
  if (is_capturing(context)) return false;  // nothing can be tried now, and so it is not kept either
  const double flash_seconds = seconds_of(context, flash);
  const std::vector<float> expected = sample_of(context, result, elements);
  const double hopper_seconds = seconds_of(context, hopper);
  const bool same = agree(expected, sample_of(context, result, elements));
  const bool takes = same && (deterministic_ || hopper_seconds <= flash_seconds);
  ++counts_.shapes;
  counts_.hopper += takes;
  counts_.disagreeing += !same;
  return takes_hopper_.emplace(key, takes).first->second;
}

void AttentionKernels::forward(const Context& context, Tensor out, float* lse, ConstTensor qkv,
                               AttentionShape s, const AttentionMask& mask) {
  const auto flash = [&] { attention_flash_forward(context, out, lse, qkv, s, mask); };
  const auto hopper = [&] { attention_hopper_forward(context, out, lse, qkv, s, mask); };
  const bool can = has_warpgroup_products_ && hopper_takes(qkv.type, s, mask);
  const Key key{0, static_cast<std::int64_t>(qkv.type), s.B, s.T, s.H, s.G, s.D, mask.causal};
  can&& takes_hopper(context, key, {out.data, out.type}, s.B * s.T * s.H * s.D, flash, hopper) ? hopper()
                                                                                               : flash();
}

void AttentionKernels::backward(const Context& context, Tensor dqkv, ConstTensor dout, ConstTensor qkv,
                                ConstTensor out, const float* lse, AttentionShape s,
                                const AttentionMask& mask) {
  const auto flash = [&] { attention_flash_backward(context, dqkv, dout, qkv, out, lse, s, mask); };
  const auto hopper = [&] { attention_hopper_backward(context, dqkv, dout, qkv, out, lse, s, mask); };
  const bool can = has_warpgroup_products_ && hopper_takes(qkv.type, s, mask) &&
                   attention_hopper_backward_scratch(s) <= context.scratch_bytes;
  const Key key{1, static_cast<std::int64_t>(qkv.type), s.B, s.T, s.H, s.G, s.D, mask.causal};
  can&& takes_hopper(context, key, {dqkv.data, dqkv.type}, s.B * s.T * (s.H + 2 * s.G) * s.D, flash, hopper)
      ? hopper()
      : flash();
}

}  // namespace kernels::cuda
