#include "kernels/cuda/stream.h"

namespace kernels::cuda {
namespace {

constexpr int kRuns = 3;

struct Event {
  cudaEvent_t handle = nullptr;
  Event() { check(cudaEventCreate(&handle)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(handle); }
};

}  // namespace

bool is_capturing(const Context& context) {
  cudaStreamCaptureStatus capturing{};
  check(cudaStreamIsCapturing(context.stream, &capturing));
  return capturing != cudaStreamCaptureStatusNone;
}

double seconds_of(const Context& context, const std::function<void()>& work) {
  const Event start, end;
  work();
  check(cudaEventRecord(start.handle, context.stream));
  for (int run = 0; run < kRuns; ++run) work();
  check(cudaEventRecord(end.handle, context.stream));
  check(cudaEventSynchronize(end.handle));
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, start.handle, end.handle));
  return static_cast<double>(milliseconds) * 1e-3 / kRuns;
}

void copy_to_host(const Context& context, std::span<std::byte> to, const void* from) {
  check(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, context.stream));
  check(cudaStreamSynchronize(context.stream));
}

}  // namespace kernels::cuda
