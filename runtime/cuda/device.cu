// A GPU as a Device: its memory, its stream's time stamps, captured work, and the operations it is given.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/kv_cache.h"
#include "runtime/cuda/operations.h"
#include "runtime/cuda_device.h"
#include "runtime/error.h"
#include "runtime/weight_quantisation.h"
#include "sim/plan/memory.h"

namespace runtime {
namespace {

void zero(const Call& c, cuda::Gpu& gpu) {
  for (std::size_t i = 0; i < c.operands(); ++i) {
    if (c.row_stride(i) == 0) {
      gpu.zero(c.as<std::byte>(i), c.bytes(i));
      continue;
    }
    const std::int64_t rows = c.batch() * c.query_length();
    gpu.zero_rows(c.as<std::byte>(i), c.row_stride(i) * cuda::size_of(c.tensor(i).type), c.bytes(i) / rows,
                  rows);
  }
}

// Turns CUDA's errors into the errors that the program shows.
template <class Body>
auto on_device(const std::string& name, const Body& body) {
  try {
    return body();
  } catch (const cuda::CudaError& error) {
    throw DeviceError(name + ": " + error.what());
  }
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const CudaDeviceSettings& settings)
      : gpu_(settings.ordinal),
        context_bytes_(in_use().value),
        products_(settings.deterministic),
        attention_(cuda::Gpu::compute_capability(settings.ordinal), settings.deterministic),
        library_bytes_(in_use().value - context_bytes_),
        fp8_scales_(*this),
        compute_capability_(cuda::Gpu::compute_capability(settings.ordinal)),
        name_(cuda::Gpu::name_of(settings.ordinal)),
        pci_bus_id_(cuda::Gpu::pci_bus_id(settings.ordinal)) {
    context_.stream = gpu_.stream();
    constexpr std::int64_t kShare = 128, kLeast = std::int64_t{128} << 20, kMost = std::int64_t{1} << 30;
    context_.scratch_bytes = settings.scratch.value > 0
                                 ? settings.scratch.value
                                 : std::clamp(gpu_.memory().total / kShare, kLeast, kMost);
    context_.scratch = gpu_.allocate(context_.scratch_bytes);
    numbers_ = reinterpret_cast<StepNumbers*>(gpu_.allocate(sizeof(StepNumbers)));
  }
  ~CudaDevice() override {
    gpu_.release(context_.scratch);
    gpu_.release(reinterpret_cast<std::byte*>(numbers_));
    if (kept_tokens_ != nullptr) cuda::Gpu::release_on_host(kept_tokens_);
  }

  std::string name() const override { return name_; }
  std::string pci_bus_id() const override { return pci_bus_id_; }

  std::span<const sim::DType> dtypes() const override { return cuda_dtypes(compute_capability_); }

  bool supports(const sim::Operation& operation, std::span<const sim::DType> operands) const override {
    return has_kernel(operation, operands);
  }
  bool takes_columns(const sim::Operation& operation, std::span<const sim::DType>) const override {
    return runtime::takes_columns(operation.kind);
  }

  std::span<const sim::DType> weight_dtypes(sim::DType computing) const override {
    static constexpr sim::DType kTypes[] = {sim::DType::int8, sim::DType::fp8, sim::DType::int4};
    return computing == sim::DType::bf16 ? std::span(kTypes) : std::span<const sim::DType>();
  }
  WeightGroups weight_groups(sim::DType stored) const override {
    return {.exactly = stored == sim::DType::int4 ? quantisation_group(stored, 0) : 0};
  }
  void store_weight(std::span<std::byte> codes, std::span<std::byte> scales, std::span<const float> values,
                    const StoredWeight& weight) const override {
    store_quantised(codes, scales, values, weight.columns, weight.dtype);
  }

  KvCacheLimits kv_cache_limits() const override {
    static constexpr sim::DType kTypes[] = {sim::DType::fp8};
    return {.dtypes = kTypes, .block_multiple = cuda::kCacheRun};
  }

  sim::Bytes available() const override { return {gpu_.memory().free}; }
  // Includes the context, the kernels' code, cuBLASLt's own memory, and what other processes hold, if any.
  sim::Bytes in_use() const override {
    const cuda::Gpu::Memory memory = gpu_.memory();
    return {memory.total - memory.free};
  }
  sim::Bytes resident(const std::byte*, sim::Bytes size) const override { return size; }
  // The code of kernels is loaded when they first run. It counts as part of the rest, together with what
  // others take meanwhile.
  std::vector<PlatformMemory> platform_memory() const override {
    return {{"platform.context", {context_bytes_}},
            {"platform.matrix_library", {library_bytes_}},
            {"platform.kernel_scratch", {context_.scratch_bytes}},
            {"platform.graphs", {graph_bytes_}}};
  }

  std::byte* allocate(sim::Bytes size) override {
    return on_device(name_, [&] {
      try {
        return gpu_.allocate(size.value);
      } catch (const cuda::OutOfMemory&) {
        const cuda::Gpu::Memory memory = gpu_.memory();
        throw cuda::CudaError("no " + gib(size.value) + " of memory are left: " + gib(memory.free) + " of " +
                              gib(memory.total) + " are free, other processes and this one hold the rest");
      }
    });
  }
  void release(std::byte* memory, sim::Bytes) noexcept override { gpu_.release(memory); }
  void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
    on_device(name_, [&] { gpu_.copy_to_device(to, from); });
  }
  void copy_from_device(std::span<std::byte> to, const std::byte* from) override {
    on_device(name_, [&] { gpu_.copy_from_device(to, from); });
  }

  void begin(const RunSettings& settings) override {
    const StepNumbers numbers{
        cuda::adamw_step(settings.adamw, settings.max_gradient_norm, settings.loss_scale),
        settings.sampling_step,
        {settings.dropout, static_cast<std::uint32_t>(settings.adamw.step), settings.dropout_seed},
        settings.loss_scale > 0 ? settings.loss_scale : 1.0f};
    on_device(name_, [&] {
      gpu_.copy_to_device(reinterpret_cast<std::byte*>(numbers_), std::as_bytes(std::span(&numbers, 1)));
    });
  }

  void run(const BoundOperation& operation, const RunSettings& settings) override {
    on_device(name_, [&] {
      if (operation.operation->kind == sim::OpKind::zero)
        zero(call(operation, settings), gpu_);
      else
        kernel_of(operation.operation->kind)(call(operation, settings));
    });
  }

  FusedRun run_fused(std::span<const BoundOperation> operations, const RunSettings& settings) override {
    if (!may_begin_fused(operations[0].operation->kind)) return {};
    std::vector<Call> calls;
    for (const BoundOperation& operation : operations) calls.push_back(call(operation, settings));
    return on_device(name_, [&] { return runtime::run_fused(calls); });
  }

  void copy_rows(const RowsCopy& c) override {
    on_device(name_, [&] { gpu_.copy_rows(c.to, c.to_stride, c.from, c.from_stride, c.width, c.rows); });
  }
  void add(std::byte* sums, const std::byte* parts, std::int64_t count, sim::DType dtype) override {
    const cuda::Tensor out{sums, type_of(dtype)};
    on_device(name_,
              [&] { cuda::add(context_, out, out, cuda::ConstTensor(parts, out.type), {}, 1, count); });
  }
  void queue_aside(std::size_t aside, std::function<void(void* stream)> work) override {
    on_device(name_, [&] { gpu_.queue_aside(aside, std::move(work)); });
  }
  void await_aside(std::size_t aside) override {
    on_device(name_, [&] { gpu_.await_aside(aside); });
  }
  bool aside_is_done(std::size_t aside) override {
    return on_device(name_, [&] { return gpu_.aside_is_done(aside); });
  }
  bool is_done() override {
    return on_device(name_, [&] { return gpu_.is_done(); });
  }

  bool can_replay() const override { return true; }
  void begin_capture() override {
    on_device(name_, [&] {
      before_capture_ = in_use().value;  // CUDA forbids some questions between the two
      gpu_.begin_capture();
    });
  }
  void end_capture(std::size_t number) override {
    on_device(name_, [&] {
      gpu_.end_capture(number);
      graph_bytes_ += in_use().value - before_capture_;
    });
  }
  void replay(std::size_t number) override {
    on_device(name_, [&] { gpu_.replay(number); });
  }

  void expect_tokens(std::int64_t batch) override {
    on_device(name_, [&] {
      if (kept_tokens_ != nullptr) return;  // captured work writes to it
      kept_tokens_ = cuda::Gpu::allocate_on_host(cuda::kTokenTurns * batch *
                                                 static_cast<std::int64_t>(sizeof(std::int32_t)));
    });
  }
  void pass_tokens_on(const TokenLoop& loop) override {
    on_device(name_, [&] {
      cuda::pass_tokens_on(
          context_,
          {reinterpret_cast<std::int32_t*>(loop.tokens), reinterpret_cast<std::int32_t*>(loop.positions),
           reinterpret_cast<const std::int32_t*>(loop.next_tokens),
           reinterpret_cast<std::int32_t*>(kept_tokens_), &numbers_->sampling_step, loop.batch});
    });
  }
  void mark_tokens(std::int64_t step) override { record(turn_of(step)); }
  void read_tokens(std::int64_t step, std::span<std::int32_t> tokens) override {
    on_device(name_, [&] { gpu_.wait_for(turn_of(step)); });
    std::memcpy(tokens.data(), kept_tokens_ + turn_of(step) * tokens.size_bytes(), tokens.size_bytes());
  }

  void drop_captures() override { gpu_.drop_captures(); }

  void record(std::size_t index) override {
    on_device(name_, [&] { gpu_.record(index); });
  }
  void synchronise() override {
    on_device(name_, [&] { gpu_.synchronise(); });
  }
  // Sums of the times between neighbouring stamps: CUDA gives times in fp32, which would lose microseconds
  // over a long section.
  void stamps(std::span<double> seconds) const override {
    on_device(name_, [&] {
      seconds[0] = 0;
      for (std::size_t i = 1; i < seconds.size(); ++i)
        seconds[i] = seconds[i - 1] + gpu_.seconds_between(i - 1, i);
    });
  }

 private:
  Call call(const BoundOperation& operation, const RunSettings& settings) {
    return {operation, context_, products_, attention_, fp8_scales_, numbers_, settings};
  }
  // Where a step of sampling has its row of kept_tokens_, and the number of its stamp.
  static std::size_t turn_of(std::int64_t step) { return static_cast<std::size_t>(step % cuda::kTokenTurns); }
  // "1.5 GiB". It is written here since the backend links nothing of sim/.
  static std::string gib(std::int64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (std::int64_t{1} << 30));
    return text;
  }

  // Members are initialised in this order: each measures what the one before has taken.
  cuda::Gpu gpu_;
  std::int64_t context_bytes_;
  cuda::Products products_;
  cuda::AttentionKernels attention_;
  std::int64_t library_bytes_, graph_bytes_ = 0, before_capture_ = 0;
  Fp8Scales fp8_scales_;
  int compute_capability_;
  cuda::Context context_;
  StepNumbers* numbers_ = nullptr;
  std::byte* kept_tokens_ = nullptr;  // the host's: int32 (kTokenTurns, batch)
  std::string name_, pci_bus_id_;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(const CudaDeviceSettings& settings) {
  const std::size_t gpus = cuda_gpus().size();
  if (settings.ordinal < 0 || static_cast<std::size_t>(settings.ordinal) >= gpus)
    throw NoDevice("there is no GPU number " + std::to_string(settings.ordinal) + "; this machine has " +
                   std::to_string(gpus) + ", counted from 0");
  return on_device("the GPU", [&] { return std::make_unique<CudaDevice>(settings); });
}

std::span<const sim::DType> cuda_dtypes(int compute_capability) {
  static constexpr sim::DType kTypes[] = {sim::DType::bf16, sim::DType::fp16, sim::DType::fp32,
                                          sim::DType::tf32, sim::DType::fp8};
  constexpr int kFirstWithFp8 = 89;
  return std::span(kTypes).first(std::size(kTypes) - (compute_capability < kFirstWithFp8 ? 1 : 0));
}

std::vector<CudaGpu> cuda_gpus() {
  try {
    std::vector<CudaGpu> gpus;
    for (int ordinal = 0; ordinal < cuda::Gpu::count(); ++ordinal) {
      const std::span<const sim::DType> dtypes = cuda_dtypes(cuda::Gpu::compute_capability(ordinal));
      gpus.push_back({cuda::Gpu::name_of(ordinal), {dtypes.begin(), dtypes.end()}});
    }
    return gpus;
  } catch (const cuda::CudaError& error) {
    throw NoDevice(std::string("no GPU can be used: ") + error.what());
  }
}

}  // namespace runtime

extern "C" __attribute__((visibility("default"))) const runtime::CudaBackend* ridgepoint_cuda_backend() {
  static constexpr runtime::CudaBackend kBackend{runtime::kCudaBackendVersion, runtime::cuda_gpus,
                                                 runtime::make_cuda_device};
  return &kBackend;
}
