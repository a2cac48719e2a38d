// The CPU as a Device: memory, time stamps, and the table of kernels (kernel_table.h).
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "kernels/threads.h"
#include "runtime/cpu/kernel_table.h"
#include "runtime/cpu/widened_operands.h"
#include "runtime/error.h"
#include "runtime/this_machine.h"
#include "runtime/weight_quantisation.h"
#include "sim/format.h"

namespace runtime {
namespace {

namespace cpu = kernels::cpu;

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) {
    blas_name();  // where it cannot be loaded, nothing begins
    cpu::set_threads(threads);
    cpu::flush_denormals();
    name_ = cpu_name();
  }

  std::string name() const override { return name_; }

  std::span<const sim::DType> dtypes() const override {
    static constexpr sim::DType kTypes[] = {sim::DType::fp32, sim::DType::bf16, sim::DType::fp16,
                                            sim::DType::fp8};
    return kTypes;
  }

  std::span<const sim::DType> weight_dtypes(sim::DType) const override {
    static constexpr auto kTypes = [] {
      std::array<sim::DType, kCodedTypes.size() + 1> all{sim::DType::fp8};
      std::copy(kCodedTypes.begin(), kCodedTypes.end(), all.begin() + 1);
      return all;
    }();
    return kTypes;
  }
  WeightGroups weight_groups(sim::DType stored) const override {
    if (stored == sim::DType::fp8) return {};
    return {.exactly = 0,
            .multiple_of = kernels::QuantisedFormat::kColumns,
            .expert_rows = kernels::QuantisedFormat::kTileRows,
            .without_zeros = true};
  }
  void store_weight(std::span<std::byte> codes, std::span<std::byte> scales, std::span<const float> values,
                    const StoredWeight& weight) const override {
    if (weight.dtype == sim::DType::fp8)
      return store_quantised(codes, scales, values, weight.columns, weight.dtype);
    cpu::quantise(place_of(codes, scales, weight), values.data(), weight.rows, weight.columns);
  }
  bool store_codes(std::span<std::byte> codes, std::span<std::byte> scales, const kernels::GroupedCodes& from,
                   const StoredWeight& weight) const override {
    return weight.dtype != sim::DType::fp8 &&
           cpu::pack_quantised(place_of(codes, scales, weight), from, weight.rows, weight.columns);
  }

  std::span<const kernels::FrozenFormat> frozen_formats() const override {
    static constexpr kernels::FrozenFormat kFormats[] = {
        kernels::FrozenFormat::int8, kernels::FrozenFormat::nf4, kernels::FrozenFormat::nf4_double};
    return kFormats;
  }
  void store_frozen(const kernels::FrozenWeight& weight, std::span<const float> values,
                    bool keeps_scales) const override {
    if (!keeps_scales) cpu::find_frozen_scales(weight, values.data());
    cpu::code_frozen(weight, values.data());
  }
  void read_frozen(std::span<float> values, const kernels::FrozenWeight& weight) const override {
    cpu::expand_frozen(values.data(), weight);
  }

  bool shares_host_memory() const override { return true; }
  KvCacheLimits kv_cache_limits() const override {
    static constexpr sim::DType kTypes[] = {sim::DType::bf16, sim::DType::fp8, sim::DType::int8};
    return {.dtypes = kTypes, .windows_in_blocks = true};
  }

  bool supports(const sim::Operation& operation, std::span<const sim::DType> types) const override {
    const sim::Dims& d = operation.dims;
    // ALiBi's slopes are those of all heads.
    const bool has_all_heads = d.alibi_heads == 0 || d.alibi_heads == d.heads;
    return has_all_heads && choose_cpu_kernel(operation, types).row;
  }
  bool takes_columns(const sim::Operation& operation, std::span<const sim::DType> types) const override {
    const ChosenKernel chosen = choose_cpu_kernel(operation, types);
    return chosen.row->columns && !chosen.widens;
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
    types_.clear();
    for (const BoundOperand& operand : operation.operands) types_.push_back(operand.dtype);
    const ChosenKernel chosen = choose_cpu_kernel(*operation.operation, types_);
    if (chosen.widens)
      widened_.run(*chosen.row, operation, fp8_scales_, settings);
    else
      chosen.row->kernel(Arguments(operation, &fp8_scales_), settings);
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

  static kernels::QuantisedWeight place_of(std::span<std::byte> codes, std::span<std::byte> scales,
                                           const StoredWeight& weight) {
    return {codes.data(), scales.data(), quantised_format(weight.dtype, weight.group, weight.zeros)};
  }

  // mmap refuses a length of 0.
  static std::size_t length_of(sim::Bytes size) {
    return static_cast<std::size_t>(std::max<std::int64_t>(size.value, 1));
  }

  std::string name_;
  Fp8Scales fp8_scales_{*this};
  WidenedOperands widened_;
  std::vector<sim::DType> types_;  // of the operands of the operation that runs
  std::vector<Clock::time_point> stamps_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int threads) {
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace runtime
