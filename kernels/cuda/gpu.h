// One GPU: its memory, a stream, time stamps on it, and captured work; through the CUDA runtime (gpu.cu), or
// this machine's memory and clock where kernels are emulated (gpu_emulated.cpp). Errors are CudaError, in
// CUDA's words.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "kernels/cuda/launch.h"

namespace kernels::cuda {

class Gpu {
 public:
  // How many this process can use, or a CudaError that says why none can be.
  static int count();
  static std::string name_of(int ordinal);
  static std::string pci_bus_id(int ordinal);  // "0000:17:00.0"
  static int compute_capability(int ordinal);  // 80: A100; 89: Ada; 90: H100, H200

  explicit Gpu(int ordinal);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  Stream stream() const;

  // Bytes of device memory: free now, and in all. Memory that other processes use is not free.
  struct Memory {
    std::int64_t free, total;
  };
  Memory memory() const;

  std::byte* allocate(std::int64_t bytes);  // zeroed; throws OutOfMemory
  void release(std::byte* memory) noexcept;
  // Host memory may be reused when these return.
  void copy_to_device(std::byte* to, std::span<const std::byte> from);
  void copy_from_device(std::span<std::byte> to, const std::byte* from);
  void zero(std::byte* memory, std::int64_t bytes);  // in the stream
  // The first `width` bytes of rows that are `stride` bytes long.
  void zero_rows(std::byte* memory, std::int64_t stride, std::int64_t width, std::int64_t rows);

  // Memory of the host that kernels write as well; the host sees it once a later stamp has been waited for.
  static std::byte* allocate_on_host(std::int64_t bytes);
  static void release_on_host(std::byte* memory) noexcept;

  // In the stream: `rows` rows of `width` bytes, each so many bytes behind the one before.
  void copy_rows(std::byte* to, std::int64_t to_stride, const std::byte* from, std::int64_t from_stride,
                 std::int64_t width, std::int64_t rows);

  // Further streams beside the main one, numbered from 0 and made when first used. `work` queues work in such
  // a stream; it begins when all that was queued in the main stream before is done.
  void queue_aside(std::size_t aside, std::function<void(Stream)> work);
  void await_aside(std::size_t aside);  // the stream waits for all of that one
  bool aside_is_done(std::size_t aside) const;

  bool is_done() const;  // all of the stream
  void synchronise();
  void record(std::size_t index);    // stamp `index` is now, in the stream
  void wait_for(std::size_t index);  // until all that was in the stream before that stamp is done
  double seconds_between(std::size_t from, std::size_t to) const;

  // Between these two calls the stream's work is recorded instead of done; replay() does it. Only copies
  // within the device and kernels can be captured. A new capture replaces an earlier one of the same number.
  void begin_capture();
  void end_capture(std::size_t number);
  void replay(std::size_t number);
  void drop_captures() noexcept;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace kernels::cuda
