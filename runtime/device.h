// What the executor needs of a machine that computes. A backend implements this once: the CPU in
// cpu/device.cpp, others as shared objects that hand out a Device. Nothing here knows plans or models, only
// operations by kind.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/attention_segments.h"
#include "kernels/cross_entropy.h"
#include "kernels/frozen_weights.h"
#include "kernels/optimizer.h"
#include "kernels/quantised.h"
#include "kernels/sampling.h"
#include "sim/plan/operation.h"
#include "sim/units.h"

namespace runtime {

// An operand with its address on the device. `data` is null where the kind allows the operand to be absent.
// `bytes` is how many bytes the operation may touch there, given its variables.
struct BoundOperand {
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  sim::DType dtype = sim::DType::fp32;  // of the elements there
  std::int64_t row_width =
      0;  // elements from one row to the next where rows are columns of wider rows; 0: rows are adjacent
};

// `operands` runs parallel to operation->operands.
struct BoundOperation {
  const sim::Operation* operation = nullptr;
  sim::Variables variables;
  std::span<const BoundOperand> operands;
  std::int32_t layer = 0, micro_batch = 0;  // of its action
  // For operations on rows that experts received from several ranks: the first row of each expert, then the
  // end. Empty for others: they have the planned rows, which grouped products divide by `indices` or equally.
  std::span<const std::int64_t> group_offsets{};
};

// The forms of KV cache that a device takes besides whole sequences in the type that it computes in.
struct KvCacheLimits {
  std::span<const sim::DType> dtypes{};  // types with fewer bits
  std::int64_t block_multiple = 1;       // tokens; the length of a block is a multiple of this
  bool windows_in_blocks = false;        // whether layers that keep only a window's tokens may use blocks
};

// Numbers that operations need and that a plan does not hold, because they change from step to step.
struct RunSettings {
  kernels::AdamWSettings adamw{};  // weight_decay is that of operations with `decay` set; others get none
  float max_gradient_norm = 0;     // 0: no clipping
  float loss_scale = 0;            // fp16: what the loss is multiplied by; 0: it is not
  float dropout = 0;               // probability of an element to be dropped, where the plan drops any
  std::uint64_t dropout_seed = 0;
  kernels::VocabularyPart vocabulary;  // this rank's part, where ranks divide the vocabulary
  kernels::ContextPart context;        // this rank's part, where ranks divide sequences
  kernels::SamplingSettings sampling;
  std::int64_t sampling_step = 0;
  // How many ids may be sampled; the logits behind them are padding (where ranks divide the vocabulary).
  // 0: all ids.
  std::int64_t sampled_vocabulary = 0;
};

// How many columns of a weight may share a scale: `exactly` this number (0: a whole row), or any multiple of
// `multiple_of` (0: no other number). An expert's rows are a multiple of `expert_rows`.
struct WeightGroups {
  std::int64_t exactly = 0, multiple_of = 0, expert_rows = 1;
  bool without_zeros = false;  // whether a workload may say so
};

// A weight in fewer than 16 bits. group, zeros: those of sim::stored_blocks() where its type has them.
struct StoredWeight {
  sim::DType dtype{};
  std::int64_t rows = 0, columns = 0, group = 0;
  bool zeros = true;
};

// What one section of decoding hands to the next: addresses on the device, each of int32 (batch).
struct TokenLoop {
  std::byte *tokens = nullptr, *positions = nullptr;
  const std::byte* next_tokens = nullptr;
  std::int64_t batch = 0;
};

// A copy of rows of bytes that are not adjacent. All numbers but `rows` are bytes.
struct RowsCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::int64_t to_stride = 0, from_stride = 0;  // from a row to the next
  std::int64_t width = 0, rows = 1;
};

// What Device::run_fused() has done.
struct FusedRun {
  std::size_t count = 0;  // operations that were run; 0: none
  std::size_t main = 0;   // the index of the main operation: the others are its prologue or epilogue
};

// Device memory that something outside every plan uses: "platform.context", ...
struct PlatformMemory {
  std::string name;
  sim::Bytes bytes;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;  // "Intel Xeon ..., 2 threads"
  // The name by which a GPU's driver knows it (gpu_state.h): "0000:17:00.0"; empty for other devices.
  virtual std::string pci_bus_id() const { return {}; }
  // Types that matrix products are formed in: what a scenario's workload.dtype may be.
  virtual std::span<const sim::DType> dtypes() const = 0;
  // The type that it uses where plans say fp32: fp64 on a device that serves as reference for others.
  virtual sim::DType single_precision() const { return sim::DType::fp32; }
  // Types with fewer bits in which weights may be stored while generation computes in `computing`. Empty
  // where weights are stored only in the type in which they are multiplied.
  virtual std::span<const sim::DType> weight_dtypes(sim::DType computing) const {
    (void)computing;
    return {};
  }
  // The columns that share a scale in such a weight, where its type has no groups of its own.
  virtual WeightGroups weight_groups(sim::DType stored) const {
    (void)stored;
    return {};
  }
  // A weight (rows, columns) as this device's kernels read it, and four bytes for each group of its columns,
  // or two without zeros: its scale, in the device's own format. Requires weight_dtypes() and
  // weight_groups().
  virtual void store_weight(std::span<std::byte> codes, std::span<std::byte> scales,
                            std::span<const float> values, const StoredWeight& weight) const {
    (void)codes, (void)scales, (void)values, (void)weight;
  }
  // The same from the codes of a file. False where the device cannot take those codes as they are.
  virtual bool store_codes(std::span<std::byte> codes, std::span<std::byte> scales,
                           const kernels::GroupedCodes& from, const StoredWeight& weight) const {
    (void)codes, (void)scales, (void)from, (void)weight;
    return false;
  }
  // How weights may be stored in fewer bits while adapters learn beside them. Empty: in the type that it
  // computes in.
  virtual std::span<const kernels::FrozenFormat> frozen_formats() const { return {}; }
  // Stores values in such a weight, which lies in the host's memory. With `keeps_scales` it sets the codes
  // alone, as is nearest with the scales that are there. Requires frozen_formats().
  virtual void store_frozen(const kernels::FrozenWeight& weight, std::span<const float> values,
                            bool keeps_scales) const {
    (void)weight, (void)values, (void)keeps_scales;
  }
  // What such a weight stands for, in fp32.
  virtual void read_frozen(std::span<float> values, const kernels::FrozenWeight& weight) const {
    (void)values, (void)weight;
  }
  // Whether its memory is the host's. Ranks then exchange it directly (communicator.h).
  virtual bool shares_host_memory() const { return false; }
  virtual KvCacheLimits kv_cache_limits() const { return {}; }
  // False where the device has no kernel of that kind or arithmetic for operands of these types. The types
  // are parallel to operation.operands; those of absent operands may be anything.
  virtual bool supports(const sim::Operation& operation, std::span<const sim::DType> operands) const = 0;
  // For what it supports: whether rows of operands may be columns of wider ones.
  virtual bool takes_columns(const sim::Operation& operation, std::span<const sim::DType> operands) const {
    (void)operation, (void)operands;
    return false;
  }
  // How much of the device's memory a run may use.
  virtual sim::Bytes available() const = 0;

  // Zeroed memory, aligned to sim::kArenaAlignment. Throws DeviceError.
  virtual std::byte* allocate(sim::Bytes size) = 0;
  virtual void release(std::byte* memory, sim::Bytes size) noexcept = 0;
  // Has the system provide the memory now instead of at its first use, whose page faults would be timed with
  // an operation. Contents stay. Nothing to do where allocate() provides it.
  virtual void make_resident(std::byte* memory, sim::Bytes size) { (void)memory, (void)size; }
  // How much of an allocation the system really holds in memory now.
  virtual sim::Bytes resident(const std::byte* memory, sim::Bytes size) const = 0;
  // How much of the device's memory the run uses now, allocations included.
  virtual sim::Bytes in_use() const = 0;
  // The parts of in_use() beyond allocations, as far as the device can tell them apart.
  virtual std::vector<PlatformMemory> platform_memory() const { return {}; }
  virtual void copy_to_device(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void copy_from_device(std::span<std::byte> to, const std::byte* from) = 0;

  // Call it before the operations to which these settings apply; run() gets the same settings.
  virtual void begin(const RunSettings& settings) { (void)settings; }
  // Operations run in the order of the calls. Requires supports(); collectives belong to a Communicator.
  virtual void run(const BoundOperation& operation, const RunSettings& settings) = 0;

  // Runs the first of these consecutive operations, at most kMostFused, by one kernel if the device has a
  // faster one; otherwise does nothing. Each result is written, unless a later operation of them writes in
  // the same place. A later operation may read results that were not rounded in between.
  static constexpr std::size_t kMostFused = 4;
  virtual FusedRun run_fused(std::span<const BoundOperation> operations, const RunSettings& settings) {
    (void)operations, (void)settings;
    return {};
  }

  // For ranks that exchange data in the device's own memory; these require !shares_host_memory() and run in
  // order with the operations.
  virtual void copy_rows(const RowsCopy& copy) {
    (void)copy;
    throw std::logic_error(name() + " copies no rows");
  }
  // sums += parts: `count` elements of a type that it computes in. `parts` is aligned as allocate() aligns.
  virtual void add(std::byte* sums, const std::byte* parts, std::int64_t count, sim::DType dtype) {
    (void)sums, (void)parts, (void)count, (void)dtype;
    throw std::logic_error(name() + " adds nothing up");
  }
  // For work that a library queues beside the operations. `work` is called with stream number `aside` (from
  // 0; a CUDA stream), which first waits for all that was queued before. A replay() may call `work` again, so
  // what it refers to must outlive the device.
  virtual void queue_aside(std::size_t aside, std::function<void(void* stream)> work) {
    (void)aside, (void)work;
    throw std::logic_error(name() + " has no streams");
  }
  // Operations queued from now on wait for all that was queued on that stream.
  virtual void await_aside(std::size_t aside) { (void)aside; }
  virtual bool aside_is_done(std::size_t aside) {
    (void)aside;
    return true;
  }
  // Whether synchronise() would return at once.
  virtual bool is_done() { return true; }

  // Operations between begin_capture() and end_capture() are recorded, not run. replay() runs them all at a
  // lower cost than one by one, with the settings of the last begin(). Two of them stay as they were at the
  // capture: how to sample, and the shape of what each rank has. A new capture replaces the one of the same
  // number. Requires can_replay().
  virtual bool can_replay() const { return false; }
  virtual void begin_capture() {}
  virtual void end_capture(std::size_t number) { (void)number; }
  virtual void replay(std::size_t number) { (void)number; }
  virtual void drop_captures() {}

  // Decoding that does not wait for the host between two tokens. pass_tokens_on() is queued as an operation
  // is and may be captured: it makes the next tokens the current ones, and adds one to the positions and to
  // the sampling step. mark_tokens() notes that the work of sampling step `step` ends here. read_tokens()
  // waits for that mark alone and gives the step's tokens. Up to two steps may be unread. Call
  // expect_tokens() first, outside a capture, always with the same batch. Requires can_replay().
  virtual void expect_tokens(std::int64_t batch) { (void)batch; }
  virtual void pass_tokens_on(const TokenLoop& loop) { (void)loop; }
  virtual void mark_tokens(std::int64_t step) { (void)step; }
  virtual void read_tokens(std::int64_t step, std::span<std::int32_t> tokens) { (void)step, (void)tokens; }

  // Time stamps between operations. record(), called with indices 0, 1, ..., notes when all work before it
  // is done. After synchronise(), stamps() gives the seconds from record(0) to each.
  virtual void record(std::size_t index) = 0;
  virtual void synchronise() = 0;
  virtual void stamps(std::span<double> seconds) const = 0;
};

// The CPU of this machine with that many threads (0: all cores). Sets the process's thread count, and makes
// those threads flush denormals to zero.
std::unique_ptr<Device> make_cpu_device(int threads);

}  // namespace runtime
