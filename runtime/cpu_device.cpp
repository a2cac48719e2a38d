// The CPU as a Device: a table from operation kinds to kernels.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/causal_conv.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gated_norm.h"
#include "kernels/layernorm.h"
#include "kernels/matmul.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/selective_scan.h"
#include "kernels/threads.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/operation_view.h"
#include "runtime/this_machine.h"
#include "sim/format.h"

namespace runtime {
namespace {

namespace cpu = kernels::cpu;
using sim::OpKind;

// All of its operands are of four bytes, but for a KV cache in fp8.
class Arguments : public OperationView {
 public:
  using OperationView::OperationView;

  std::int64_t count(std::size_t operand) const {
    return bound().operands[operand].bytes / static_cast<std::int64_t>(sizeof(float));
  }
  kernels::MatmulShape matmul() const { return {rows(), cols(), inner()}; }

  // A state-space mixer's row of the projection: a gate, what the convolution takes, a time step a head.
  kernels::SelectiveScanShape scan() const {
    const sim::Dims& d = bound().operation->dims;
    return {batch(), query_length(), d.heads, d.head_dim, d.groups, d.states, d.scan_chunk};
  }
  kernels::CausalConvShape conv() const {
    return {batch(), query_length(), scan().columns(), bound().operation->dims.taps};
  }
  kernels::GatedNormShape gated_norm() const {
    return {batch() * query_length(), scan().inner(), bound().operation->dims.groups};
  }
  std::int64_t projected_columns() const { return scan().inner() + scan().columns() + scan().H; }
  float* convolved_part(std::size_t projected) const { return f32(projected) + scan().inner(); }
  float* time_part(std::size_t projected) const { return f32(projected) + scan().inner() + scan().columns(); }
  // Operand `heads` has the time steps' biases, the decays' logarithms and the skips, one after the other.
  float* of_heads(std::size_t heads, std::int64_t which) const { return f32(heads) + which * scan().H; }
  kernels::ScanTimeSteps time_steps(std::size_t projected, std::size_t heads) const {
    return {time_part(projected), projected_columns(), of_heads(heads, 0), of_heads(heads, 1)};
  }
  // Of operands k and k + 1; `table` and behind it the scales may be absent.
  cpu::KvCache kv_cache(std::size_t k, std::size_t table) const {
    const CacheBlocks blocks = cache_blocks(k, table);
    return {as<void>(k), as<void>(k + 1), blocks.tokens, blocks.table, blocks.of_sequence, f32(table + 1)};
  }
};

// The fp64 buffer between squared_norm, clip_scale and adamw.
enum GradientNorm { kSumOfSquares, kNorm, kClipScale };

void squared_norm(const Arguments& a) {
  thread_local std::vector<const float*> gradients;
  thread_local std::vector<std::int64_t> counts;
  gradients.clear();
  counts.clear();
  for (std::size_t i = 1; i < a.operands(); ++i) {
    gradients.push_back(a.f32(i));
    counts.push_back(a.count(i));
  }
  cpu::squared_norm(a.as<double>(0) + kSumOfSquares, gradients, counts);
}

void clip_scale(const Arguments& a, const RunSettings& settings) {
  double* const norm = a.as<double>(0);
  float norm_f32 = 0, scale_f32 = 1;
  cpu::clip_scale(&norm_f32, &scale_f32, norm + kSumOfSquares, settings.max_gradient_norm);
  norm[kNorm] = norm_f32;
  norm[kClipScale] = scale_f32;
}

void adamw(const Arguments& a, const RunSettings& settings) {
  constexpr std::size_t kGroup = 5;  // parameter, gradient, two moments, master copy: absent in fp32
  thread_local std::vector<kernels::AdamWTensor> tensors;
  tensors.clear();
  for (std::size_t i = 1; i + kGroup <= a.operands(); i += kGroup)
    tensors.push_back({a.f32(i), a.f32(i + 1), a.f32(i + 2), a.f32(i + 3), a.count(i), a.decay()});
  const float scale = static_cast<float>(a.as<double>(0)[kClipScale]);
  cpu::adamw(tensors, &scale, settings.adamw);
}

using Kernel = void (*)(const Arguments&, const RunSettings&);

struct KernelEntry {
  OpKind kind;
  Kernel kernel;
};

// Operands by index, in the order that sim/plan/operation.h lists for the kind.
constexpr KernelEntry kKernels[] = {
    {OpKind::embedding,
     [](const Arguments& a, const RunSettings&) {
       cpu::embedding_forward(a.f32(0), a.i32(1), a.f32(2), a.f32(3), a.i32(4), a.embedding());
     }},
    {OpKind::embedding_backward,
     [](const Arguments& a, const RunSettings&) {
       cpu::embedding_backward(a.f32(0), a.f32(1), a.f32(2), a.i32(3), a.embedding());
     }},
    {OpKind::layernorm,
     [](const Arguments& a, const RunSettings&) {
       cpu::layernorm_forward(a.f32(0), a.f32(1), a.f32(2), a.f32(3), a.f32(4), a.f32(5), a.scalar(),
                              a.rows(), a.hidden());
     }},
    {OpKind::layernorm_backward,
     [](const Arguments& a, const RunSettings&) {
       cpu::layernorm_backward(a.f32(0), a.f32(1), a.f32(2), a.f32(3), a.f32(4), a.f32(5), a.f32(6), a.f32(7),
                               a.rows(), a.hidden());
     }},
    {OpKind::rmsnorm,
     [](const Arguments& a, const RunSettings&) {
       cpu::rmsnorm_forward(a.f32(0), a.f32(1), a.f32(2), a.f32(3), a.scalar(), a.rows(), a.hidden());
     }},
    {OpKind::rmsnorm_backward,
     [](const Arguments& a, const RunSettings&) {
       cpu::rmsnorm_backward(a.f32(0), a.f32(1), a.f32(2), a.f32(3), a.f32(4), a.f32(5), a.rows(),
                             a.hidden());
     }},
    {OpKind::matmul,
     [](const Arguments& a, const RunSettings&) {
       cpu::matmul_forward(a.f32(0), a.f32(1), a.f32(2), a.f32(3), a.f32(4), a.matmul());
     }},
    {OpKind::matmul_backward_input,
     [](const Arguments& a, const RunSettings&) {
       cpu::matmul_backward_input(a.f32(0), a.f32(1), a.f32(2), a.updates(0), a.matmul());
     }},
    {OpKind::matmul_backward_weight,
     [](const Arguments& a, const RunSettings&) {
       cpu::matmul_backward_weight(a.f32(0), a.f32(1), a.f32(2), a.f32(3), a.matmul());
     }},
    {OpKind::rope, [](const Arguments& a,
                      const RunSettings&) { cpu::rope_forward(a.f32(0), a.f32(1), a.i32(2), a.rope()); }},
    {OpKind::rope_backward,
     [](const Arguments& a, const RunSettings&) { cpu::rope_backward(a.f32(0), a.f32(1), a.rope()); }},
    {OpKind::attention_flash,
     [](const Arguments& a, const RunSettings&) {
       cpu::attention_flash_forward(a.f32(0), a.f32(1), a.f32(2), a.attention());
     }},
    {OpKind::attention_flash_backward,
     [](const Arguments& a, const RunSettings&) {
       cpu::attention_flash_backward(a.f32(0), a.f32(1), a.f32(2), a.f32(3), a.f32(4), a.attention());
     }},
    {OpKind::attention_standard,
     [](const Arguments& a, const RunSettings&) {
       cpu::attention_standard_forward(a.f32(0), a.f32(1), a.f32(2), a.attention());
     }},
    {OpKind::attention_standard_backward,
     [](const Arguments& a, const RunSettings&) {
       cpu::attention_standard_backward(a.f32(0), a.f32(1), a.f32(2), a.f32(3), a.f32(4), a.attention());
     }},
    {OpKind::kv_append,
     [](const Arguments& a, const RunSettings&) {
       cpu::kv_append(a.kv_cache(0, 4), a.f32(2), a.i32(3), a.attention());
     }},
    {OpKind::attention_cached,
     [](const Arguments& a, const RunSettings&) {
       cpu::attention_cached(a.f32(0), a.f32(1), a.kv_cache(2, 5), a.i32(4), a.attention());
     }},
    {OpKind::causal_conv,
     [](const Arguments& a, const RunSettings&) {
       cpu::causal_conv_forward(a.f32(0), a.f32(4), a.convolved_part(1), a.projected_columns(), a.f32(2),
                                a.f32(3), a.i32(5), a.conv());
     }},
    {OpKind::causal_conv_backward,
     [](const Arguments& a, const RunSettings&) {
       cpu::causal_conv_backward(a.convolved_part(0), a.projected_columns(), a.f32(1), a.f32(2), a.f32(3),
                                 a.convolved_part(4), a.projected_columns(), a.f32(5), a.f32(6), a.conv());
     }},
    {OpKind::selective_scan,
     [](const Arguments& a, const RunSettings&) {
       cpu::selective_scan_forward(a.f32(0), a.f32(4), a.f32(1), a.time_steps(2, 3), a.of_heads(3, 2),
                                   a.i32(5), a.scan());
     }},
    {OpKind::selective_scan_backward,
     [](const Arguments& a, const RunSettings&) {
       const cpu::ScanGradients gradients{a.f32(0),         a.time_part(1),   a.projected_columns(),
                                          a.of_heads(2, 0), a.of_heads(2, 1), a.of_heads(2, 2)};
       cpu::selective_scan_backward(gradients, a.f32(7), a.f32(3), a.f32(4), a.time_steps(5, 6),
                                    a.of_heads(6, 2), a.scan());
     }},
    {OpKind::gated_norm,
     [](const Arguments& a, const RunSettings&) {
       cpu::gated_norm_forward(a.f32(0), a.f32(1), a.f32(2), a.f32(3), a.projected_columns(), a.f32(4),
                               a.scalar(), a.gated_norm());
     }},
    {OpKind::gated_norm_backward,
     [](const Arguments& a, const RunSettings&) {
       cpu::gated_norm_backward(a.f32(0), a.f32(1), a.projected_columns(), a.f32(2), a.f32(3), a.f32(4),
                                a.f32(5), a.projected_columns(), a.f32(6), a.f32(7), a.gated_norm());
     }},
    {OpKind::squared_relu,
     [](const Arguments& a, const RunSettings&) {
       cpu::squared_relu_forward(a.f32(0), a.f32(1), a.rows(), a.cols());
     }},
    {OpKind::squared_relu_backward,
     [](const Arguments& a, const RunSettings&) {
       cpu::squared_relu_backward(a.f32(0), a.f32(1), a.f32(2), a.rows(), a.cols());
     }},
    {OpKind::gelu, [](const Arguments& a,
                      const RunSettings&) { cpu::gelu_forward(a.f32(0), a.f32(1), a.rows(), a.cols()); }},
    {OpKind::gelu_backward,
     [](const Arguments& a, const RunSettings&) {
       cpu::gelu_backward(a.f32(0), a.f32(1), a.f32(2), a.rows(), a.cols());
     }},
    {OpKind::swiglu, [](const Arguments& a,
                        const RunSettings&) { cpu::swiglu_forward(a.f32(0), a.f32(1), a.rows(), a.cols()); }},
    {OpKind::swiglu_backward,
     [](const Arguments& a, const RunSettings&) {
       cpu::swiglu_backward(a.f32(0), a.f32(1), a.f32(2), a.rows(), a.cols());
     }},
    {OpKind::add, [](const Arguments& a,
                     const RunSettings&) { cpu::add(a.f32(0), a.f32(1), a.f32(2), a.rows(), a.cols()); }},
    {OpKind::gather_last,
     [](const Arguments& a, const RunSettings&) {
       cpu::gather_last(a.f32(0), a.f32(1), a.batch(), a.query_length(), a.cols());
     }},
    {OpKind::zero,
     [](const Arguments& a, const RunSettings&) {
       for (std::size_t i = 0; i < a.operands(); ++i) cpu::zero(a.f32(i), a.count(i));
     }},
    {OpKind::cross_entropy,
     [](const Arguments& a, const RunSettings&) {
       cpu::cross_entropy_forward_backward(a.f32(0), a.f32(1), a.i32(2), a.scalar(), a.rows(), a.vocab());
     }},
    {OpKind::sample,
     [](const Arguments& a, const RunSettings& settings) {
       cpu::sample(a.i32(0), a.f32(1), settings.sampling, settings.sampling_step, a.rows(), a.vocab());
     }},
    {OpKind::squared_norm, [](const Arguments& a, const RunSettings&) { squared_norm(a); }},
    {OpKind::clip_scale, clip_scale},
    {OpKind::adamw, adamw},
};

constexpr std::size_t kKinds = static_cast<std::size_t>(OpKind::receive) + 1;

constexpr std::array<Kernel, kKinds> kKernelOfKind = [] {
  std::array<Kernel, kKinds> table{};
  for (const KernelEntry& entry : kKernels) table[static_cast<std::size_t>(entry.kind)] = entry.kernel;
  return table;
}();

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) {
    cpu::set_threads(threads);
    cpu::flush_denormals();
    name_ = cpu_name();
  }

  std::string name() const override { return name_; }

  std::span<const sim::DType> dtypes() const override {
    static constexpr sim::DType kTypes[] = {sim::DType::fp32};
    return kTypes;
  }

  KvCacheLimits kv_cache_limits() const override {
    static constexpr sim::DType kTypes[] = {sim::DType::fp8};
    return {.dtypes = kTypes};
  }

  bool supports(const sim::Operation& operation, std::span<const sim::DType>) const override {
    // No kernel here leaves out what lies before a window or a stretch.
    return operation.dtype == sim::DType::fp32 && operation.dims.window == 0 && operation.dims.chunk == 0 &&
           kKernelOfKind[static_cast<std::size_t>(operation.kind)];
  }

  sim::Bytes available() const override { return physical_memory(); }
  sim::Bytes in_use() const override { return resident_memory(); }

  std::byte* allocate(sim::Bytes size) override {
    void* const memory = mmap(nullptr, length_of(size), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      throw DeviceError(name_ + " has no " + sim::format(size) + " of memory: " + std::strerror(errno));
    // Fewer page faults and TLB misses; a system without huge pages says no and all works the same.
    madvise(memory, length_of(size), MADV_HUGEPAGE);
    return static_cast<std::byte*>(memory);
  }

  void release(std::byte* memory, sim::Bytes size) noexcept override { munmap(memory, length_of(size)); }

  void make_resident(std::byte* memory, sim::Bytes size) override {
    const std::int64_t page = sysconf(_SC_PAGESIZE);
    volatile std::byte* const bytes = memory;
    for (std::int64_t at = 0; at < size.value; at += page) bytes[at] = bytes[at];
  }

  sim::Bytes resident(const std::byte* memory, sim::Bytes size) const override {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> in_memory((length_of(size) + page - 1) / page);
    if (mincore(const_cast<std::byte*>(memory), length_of(size), in_memory.data()) != 0) return {};
    std::int64_t pages = 0;
    for (const unsigned char flags : in_memory) pages += flags & 1;
    return {pages * static_cast<std::int64_t>(page)};
  }

  void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
    std::memcpy(to, from.data(), from.size());
  }
  void copy_from_device(std::span<std::byte> to, const std::byte* from) override {
    std::memcpy(to.data(), from, to.size());
  }

  void run(const BoundOperation& operation, const RunSettings& settings) override {
    kKernelOfKind[static_cast<std::size_t>(operation.operation->kind)](Arguments(operation), settings);
  }

  void record(std::size_t index) override {
    if (index >= stamps_.size()) stamps_.resize(2 * index + 1);
    stamps_[index] = Clock::now();
  }
  void synchronise() override {}  // run() returns when its kernel is done
  void stamps(std::span<double> seconds) const override {
    for (std::size_t i = 0; i < seconds.size(); ++i)
      seconds[i] = std::chrono::duration<double>(stamps_[i] - stamps_[0]).count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  // mmap refuses a length of 0.
  static std::size_t length_of(sim::Bytes size) {
    return static_cast<std::size_t>(std::max<std::int64_t>(size.value, 1));
  }

  std::string name_;
  std::vector<Clock::time_point> stamps_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int threads) {
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace runtime
