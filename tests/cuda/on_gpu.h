// Tensors on the GPU, and the rule by which its kernels are held to the double reference.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/launch.h"
#include "tests/kernels/compare.h"

namespace tests {

namespace cuda = kernels::cuda;

// The GPU that these tests run on: emulated (test_cuda), or a real one (test_gpu, from the same sources).
inline cuda::Gpu& gpu() {
  static cuda::Gpu one(0);
  return one;
}

// Values in the GPU's memory.
template <class T>
class OnGpu {
 public:
  explicit OnGpu(const std::vector<T>& values)
      : count_(values.size()), memory_(gpu().allocate(bytes(count_))) {
    gpu().copy_to_device(memory_, std::as_bytes(std::span(values)));
  }
  explicit OnGpu(const T& value) : OnGpu(std::vector<T>{value}) {}
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  ~OnGpu() { gpu().release(memory_); }

  T* data() { return reinterpret_cast<T*>(memory_); }
  std::vector<T> values() const {
    std::vector<T> out(count_);
    gpu().copy_from_device(std::as_writable_bytes(std::span(out)), memory_);
    return out;
  }
  T value() const { return values().front(); }

 private:
  static std::int64_t bytes(std::size_t count) { return static_cast<std::int64_t>(count * sizeof(T)); }

  std::size_t count_;
  std::byte* memory_;
};

// An array as a kernel sees it, guarded on both sides.
class DeviceArray {
 public:
  DeviceArray(const std::vector<float>& values, cuda::Type type)
      : count_(values.size()), type_(type), memory_(image(values, type)) {}
  // An array of NaN, so that what a kernel leaves unwritten shows.
  DeviceArray(std::int64_t count, cuda::Type type)
      : DeviceArray(std::vector<float>(static_cast<std::size_t>(count), NAN), type) {}

  operator cuda::Tensor() { return {data(), type_}; }       // NOLINT: it is one
  operator cuda::ConstTensor() { return {data(), type_}; }  // NOLINT
  float* f32() { return reinterpret_cast<float*>(data()); }

  std::vector<float> values() {
    const std::vector<std::byte> all = memory_.values();
    const auto is_pattern = [](std::byte b) { return b == kPattern; };
    REQUIRE(std::all_of(all.begin(), all.begin() + kGuard, is_pattern));
    REQUIRE(std::all_of(all.end() - kGuard, all.end(), is_pattern));
    std::vector<float> out(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      cuda::with_type(type_, [&]<class T>(T element) {
        std::memcpy(&element, &all[kGuard + sizeof(T) * i], sizeof(T));
        out[i] = cuda::to_float(element);
      });
    }
    return out;
  }

 private:
  static constexpr std::ptrdiff_t kGuard = 256;  // bytes, which keep the array's alignment
  static constexpr std::byte kPattern{0xff};

  static std::vector<std::byte> image(const std::vector<float>& values, cuda::Type type) {
    const auto width = static_cast<std::size_t>(cuda::size_of(type));
    std::vector<std::byte> all(values.size() * width + 2 * kGuard, kPattern);
    for (std::size_t i = 0; i < values.size(); ++i) {
      cuda::with_type(type, [&]<class T>(T) {
        const T element = cuda::from_float<T>(values[i]);
        std::memcpy(&all[kGuard + i * width], &element, width);
      });
    }
    return all;
  }
  std::byte* data() { return memory_.data() + kGuard; }

  std::size_t count_;
  cuda::Type type_;
  OnGpu<std::byte> memory_;
};

// What is left of values in a type.
inline std::vector<float> rounded(std::vector<float> values, cuda::Type type) {
  cuda::with_type(type, [&]<class T>(T) {
    for (float& value : values) value = cuda::to_float(cuda::from_float<T>(value));
  });
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
  const double floor = (type == cuda::Type::bf16  ? 0x1p-8
                        : type == cuda::Type::f16 ? 0x1p-11
                                                  : 4 * 0x1p-24) *
                       largest;
  const double error = test::worst_error(values, exact), allowed = factor * test::worst_error(plain, exact);
  CAPTURE(error, allowed, floor);
  CHECK(error <= std::max(allowed, floor));
}

// Scratch memory, full of NaN.
class Scratch {
 public:
  explicit Scratch(std::int64_t bytes = 1 << 22) : array_(bytes / 4, cuda::Type::f32), bytes_(bytes) {}
  cuda::Context context() { return {gpu().stream(), reinterpret_cast<std::byte*>(array_.f32()), bytes_}; }

 private:
  DeviceArray array_;
  std::int64_t bytes_;
};

// For operations that need no scratch memory.
inline cuda::Context no_scratch() {
  return {gpu().stream(), nullptr, 0};
}

// Calls body() several times and requires the same results, bit by bit. Emulated, a block's threads take
// turns in another order each time: where they share memory without a barrier between, an order shows it.
template <class Body>
std::vector<float> in_every_order(const Body& body) {
  std::vector<std::vector<float>> results;
  for (int repetition = 0; repetition < 3; ++repetition) {
#ifndef RIDGEPOINT_TESTS_REAL_GPU
    using cuda::emulation::Order;
    constexpr Order kOrders[] = {Order::descending, Order::shuffled, Order::ascending};
    cuda::emulation::set_order(kOrders[repetition]);
#endif
    results.push_back(body());
  }
  const auto same = [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  };
  for (const std::vector<float>& other : results)
    CHECK(std::equal(results[0].begin(), results[0].end(), other.begin(), other.end(), same));
  return results[0];
}

}  // namespace tests
