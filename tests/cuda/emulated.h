// Tensors of the emulated GPU, and the rule by which its kernels are held to the double reference.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cuda/launch.h"
#include "tests/kernels/compare.h"

namespace tests {

namespace cuda = kernels::cuda;

// An array as a kernel sees it, aligned to 256 bytes, as the arena aligns it; guarded on both sides.
class DeviceArray {
 public:
  DeviceArray(const std::vector<float>& values, cuda::Type type)
      : count_(values.size()), type_(type), memory_(size() + 2 * kGuard + 256, std::byte{kPattern}) {
    for (std::size_t i = 0; i < count_; ++i) set(i, values[i]);
  }
  // Of NaN, so that what a kernel leaves unwritten shows.
  DeviceArray(std::int64_t count, cuda::Type type)
      : DeviceArray(std::vector<float>(static_cast<std::size_t>(count), NAN), type) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  operator cuda::Tensor() { return {data(), type_}; }       // NOLINT: it is one
  operator cuda::ConstTensor() { return {data(), type_}; }  // NOLINT
  float* f32() { return reinterpret_cast<float*>(data()); }

  std::vector<float> values() {
    REQUIRE(guards_are_whole());
    std::vector<float> out(count_);
    for (std::size_t i = 0; i < count_; ++i)
      out[i] = type_ == cuda::Type::f32 ? f32()[i] : cuda::to_float(reinterpret_cast<cuda::bf16*>(data())[i]);
    return out;
  }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr unsigned char kPattern = 0xff;

  std::size_t size() const { return count_ * static_cast<std::size_t>(cuda::size_of(type_)); }
  std::byte* data() {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory_.data()) + kGuard;
    return memory_.data() + kGuard + (256 - begin % 256) % 256;
  }
  void set(std::size_t i, float value) {
    if (type_ == cuda::Type::f32)
      f32()[i] = value;
    else
      reinterpret_cast<cuda::bf16*>(data())[i] = cuda::to_bf16(value);
  }
  bool guards_are_whole() {
    const auto whole = [](const std::byte* begin, const std::byte* end) {
      return std::all_of(begin, end, [](std::byte b) { return b == std::byte{kPattern}; });
    };
    return whole(memory_.data(), data()) && whole(data() + size(), memory_.data() + memory_.size());
  }

  std::size_t count_;
  cuda::Type type_;
  std::vector<std::byte> memory_;
};

inline std::vector<float> rounded(std::vector<float> values, cuda::Type type) {
  if (type == cuda::Type::bf16)
    for (float& value : values) value = cuda::to_float(cuda::to_bf16(value));
  return values;
}

// Normal values that the type holds exactly.
inline std::vector<float> normal_tensor(std::int64_t count, unsigned seed, cuda::Type type,
                                        float deviation = 1) {
  return rounded(test::normal_tensor(count, seed, deviation), type);
}

// The error of `values` against the double reference is at most `factor` times that of the plain
// implementation in the same type, which makes each operation in fp32 and rounds its result. Where that comes
// out exact by luck, half a unit in the last place of the largest value, what rounding the result alone may
// cost, passes.
inline void check_as_accurate_as_plain(const std::vector<float>& values, const std::vector<float>& plain,
                                       const std::vector<double>& exact, cuda::Type type, double factor) {
  double largest = 0;
  for (const double value : exact) largest = std::max(largest, std::abs(value));
  const double floor = (type == cuda::Type::bf16 ? 0x1p-8 : 4 * 0x1p-24) * largest;
  const double error = test::worst_error(values, exact), allowed = factor * test::worst_error(plain, exact);
  CAPTURE(error, allowed, floor);
  CHECK(error <= std::max(allowed, floor));
}

// Scratch memory, full of NaN.
class Scratch {
 public:
  explicit Scratch(std::int64_t bytes = 1 << 22) : array_(bytes / 4, cuda::Type::f32), bytes_(bytes) {}
  cuda::Context context() { return {nullptr, reinterpret_cast<std::byte*>(array_.f32()), bytes_}; }

 private:
  DeviceArray array_;
  std::int64_t bytes_;
};

// Calls body() with a block's threads taking turns in each order, and requires the same results, bit by bit:
// where threads share memory without a barrier between, an order shows it.
template <class Body>
std::vector<float> in_every_order(const Body& body) {
  using cuda::emulation::Order;
  cuda::emulation::set_order(Order::descending);
  const std::vector<float> descending = body();
  cuda::emulation::set_order(Order::shuffled);
  const std::vector<float> shuffled = body();
  cuda::emulation::set_order(Order::ascending);
  const std::vector<float> ascending = body();
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
      return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
    });
  };
  CHECK(same(ascending, descending));
  CHECK(same(ascending, shuffled));
  return ascending;
}

}  // namespace tests
