// The scales of a plan's tensors in fp8, in a device's memory.
#pragma once
#include <cstddef>
#include <map>
#include <vector>

#include "kernels/cuda/types.h"
#include "runtime/device.h"

namespace runtime {

// The format whose largest value a conversion names (Operation::scalar).
inline kernels::cuda::Type fp8_format(float largest) {
  using kernels::cuda::Type;
  return largest == kernels::cuda::largest_of(Type::e4m3) ? Type::e4m3 : Type::e5m2;
}

// A plan writes each fp8 tensor before it reads it, so an address identifies the tensor that lies there now.
// The address of its scale never changes, because captured work points to it.
class Fp8Scales {
 public:
  struct Tensor {
    kernels::cuda::Type type = kernels::cuda::Type::e4m3;
    float* scale = nullptr;  // where the device computes
  };

  // The device has to outlive it, or be what it is a member of.
  explicit Fp8Scales(Device& device) : device_(device) {}
  ~Fp8Scales() {
    for (float* block : blocks_) device_.release(reinterpret_cast<std::byte*>(block), kBlock);
  }
  Fp8Scales(const Fp8Scales&) = delete;
  Fp8Scales& operator=(const Fp8Scales&) = delete;

  // Notes that a tensor of `type` is about to be written at `address`, and gives its scale.
  const Tensor& write(const std::byte* address, kernels::cuda::Type type) {
    Tensor& tensor = tensors_[address];
    if (tensor.scale == nullptr) {
      const std::size_t index = (tensors_.size() - 1) % kInBlock;
      if (index == 0) blocks_.push_back(reinterpret_cast<float*>(device_.allocate(kBlock)));
      tensor.scale = blocks_.back() + index * kApart;
    }
    tensor.type = type;
    return tensor;
  }
  // The tensor last written at `address`; its `scale` is null where nothing was.
  Tensor at(const std::byte* address) const {
    const auto found = tensors_.find(address);
    return found == tensors_.end() ? Tensor{} : found->second;
  }

 private:
  static constexpr std::size_t kInBlock = 1024;
  // cuBLASLt has no algorithm where a scale does not lie at a multiple of 16 bytes.
  static constexpr std::size_t kApart = 16 / sizeof(float);
  static constexpr sim::Bytes kBlock{kInBlock * kApart * sizeof(float)};

  Device& device_;
  std::map<const std::byte*, Tensor> tensors_;
  std::vector<float*> blocks_;
};

}  // namespace runtime
