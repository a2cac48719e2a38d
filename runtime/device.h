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
#include "kernels/optimizer.h"
#include "kernels/quantised.h"
#include "kernels/sampling.h"
#include "sim/plan/operation.h"
#include "sim/units.h"

namespace runtime {

// An operand with its address on the device; null where the kind lets it be absent. `bytes` is what the
// operation may touch there under its variables.
struct BoundOperand {
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  sim::DType dtype = sim::DType::fp32;  // of the elements there
  std::int64_t row_width =
      0;  // where rows are columns of wider ones: elements from one to the next; 0: they follow
};

// `operands` runs parallel to operation->operands.
struct BoundOperation {
  const sim::Operation* operation = nullptr;
  sim::Variables variables;
  std::span<const BoundOperand> operands;
  std::int32_t layer = 0, micro_batch = 0;  // of its action
  // Operations on rows that came to experts from several ranks: where those of each begin, and their end.
  // Empty elsewhere: as many rows as planned, of grouped products where the operand `indices` says so.
  std::span<const std::int64_t> group_offsets{};
};

// How a device keeps a KV cache, beside whole sequences in the type that it computes in.
struct KvCacheLimits {
  std::span<const sim::DType> dtypes{};  // with fewer bits
  std::int64_t block_multiple = 1;       // tokens; blocks are of a multiple of it
  bool windows_in_blocks = false;        // of layers that keep a window's tokens alone
};

// Numbers that operations need and plans do not hold: they change from step to step.
struct RunSettings {
  kernels::AdamWSettings adamw{};  // weight_decay is that of operations with `decay` set; others get none
  float max_gradient_norm = 0;     // 0: no clipping
  float loss_scale = 0;            // fp16: what the loss is multiplied by; 0: it is not
  float dropout = 0;               // probability of an element to be dropped, where the plan drops any
  std::uint64_t dropout_seed = 0;
  kernels::VocabularyPart vocabulary;  // that this rank has, where ranks divide it
  kernels::ContextPart context;        // its place where ranks divide sequences
  kernels::SamplingSettings sampling;
  std::int64_t sampling_step = 0;
  // Ids that may be sampled, where logits have padding behind them (ranks that divide the vocabulary); 0:
  // all.
  std::int64_t sampled_vocabulary = 0;
};

// Columns of a weight that share a scale: `exactly` so many, or any multiple of `multiple_of`; 0 of either: a
// whole row.
struct WeightGroups {
  std::int64_t exactly = 0, multiple_of = 0;
};

// A weight in fewer than 16 bits.
struct StoredWeight {
  sim::DType dtype{};
  std::int64_t rows = 0, columns = 0, group = 0;
};

// What one section of decoding leaves to the next, by addresses on the device: int32 (batch) each.
struct TokenLoop {
  std::byte *tokens = nullptr, *positions = nullptr;
  const std::byte* next_tokens = nullptr;
  std::int64_t batch = 0;
};

// Rows of bytes that lie apart, copied.
struct RowsCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::int64_t to_stride = 0, from_stride = 0;  // from a row to the next
  std::int64_t width = 0, rows = 1;
};

// What Device::run_fused() has done.
struct FusedRun {
  std::size_t count = 0;  // of operations; 0: nothing
  std::size_t main = 0;   // which of them the others are prologue or epilogue of
};

// What of a device's memory is for something that no plan knows: "platform.context", ...
struct PlatformMemory {
  std::string name;
  sim::Bytes bytes;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;  // "Intel Xeon ..., 2 threads"
  // By which a GPU's driver knows it (gpu_state.h): "0000:17:00.0"; empty for other devices.
  virtual std::string pci_bus_id() const { return {}; }
  // Types that matrix products are formed in: what a scenario's workload.dtype may be.
  virtual std::span<const sim::DType> dtypes() const = 0;
  // What it holds and computes where plans say fp32: fp64 of a device that is an oracle of others.
  virtual sim::DType single_precision() const { return sim::DType::fp32; }
  // Types with fewer bits that weights may be stored in while generating in `computing`; none where they are
  // stored as they are multiplied.
  virtual std::span<const sim::DType> weight_dtypes(sim::DType computing) const {
    (void)computing;
    return {};
  }
  // The columns that share a scale in such a weight.
  virtual WeightGroups weight_groups(sim::DType stored) const {
    (void)stored;
    return {};
  }
  // A weight (rows, columns) as this device's kernels read it, and four bytes for each group of its columns:
  // its scale, in the device's own format. Requires weight_dtypes() and weight_groups().
  virtual void store_weight(std::span<std::byte> codes, std::span<std::byte> scales,
                            std::span<const float> values, const StoredWeight& weight) const {
    (void)codes, (void)scales, (void)values, (void)weight;
  }
  // The same from codes that a file has, where the device takes them as they are; false where it does not.
  virtual bool store_codes(std::span<std::byte> codes, std::span<std::byte> scales,
                           const kernels::GroupedCodes& from, const StoredWeight& weight) const {
    (void)codes, (void)scales, (void)from, (void)weight;
    return false;
  }
  // Whether its memory is the host's, which ranks exchange (communicator.h).
  virtual bool shares_host_memory() const { return false; }
  virtual KvCacheLimits kv_cache_limits() const { return {}; }
  // False where the device has no kernel of that kind or arithmetic for operands of these types (parallel to
  // operation.operands; of absent ones anything).
  virtual bool supports(const sim::Operation& operation, std::span<const sim::DType> operands) const = 0;
  // For what it supports: whether rows of operands may be columns of wider ones.
  virtual bool takes_columns(const sim::Operation& operation, std::span<const sim::DType> operands) const {
    (void)operation, (void)operands;
    return false;
  }
  // What of the device's memory a run may have.
  virtual sim::Bytes available() const = 0;

  // Zeroed memory, aligned to sim::kArenaAlignment. Throws DeviceError.
  virtual std::byte* allocate(sim::Bytes size) = 0;
  virtual void release(std::byte* memory, sim::Bytes size) noexcept = 0;
  // Has the system provide the memory now instead of at its first use, whose page faults would be timed with
  // an operation. Contents stay. Nothing to do where allocate() provides it.
  virtual void make_resident(std::byte* memory, sim::Bytes size) { (void)memory, (void)size; }
  // How much of an allocation the system really holds in memory now.
  virtual sim::Bytes resident(const std::byte* memory, sim::Bytes size) const = 0;
  // What the run holds of the device's memory now, allocations included.
  virtual sim::Bytes in_use() const = 0;
  // Parts of what is in use beyond allocations, as far as the device can tell them apart.
  virtual std::vector<PlatformMemory> platform_memory() const { return {}; }
  virtual void copy_to_device(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void copy_from_device(std::span<std::byte> to, const std::byte* from) = 0;

  // Called before the operations that these settings are for; run() gets the same.
  virtual void begin(const RunSettings& settings) { (void)settings; }
  // Operations run in the order of the calls. Requires supports(); collectives belong to a Communicator.
  virtual void run(const BoundOperation& operation, const RunSettings& settings) = 0;

  // The first operations of several that follow each other, at most kMostFused, by one kernel where the
  // device has one that is faster; where not, nothing has been done. What each writes is written, unless a
  // later one of them writes in the same place; later ones may take numbers that were not rounded in between.
  static constexpr std::size_t kMostFused = 4;
  virtual FusedRun run_fused(std::span<const BoundOperation> operations, const RunSettings& settings) {
    (void)operations, (void)settings;
    return {};
  }

  // For ranks that exchange what is in the device's own memory; requires !shares_host_memory(). In the order
  // of the operations:
  virtual void copy_rows(const RowsCopy& copy) {
    (void)copy;
    throw std::logic_error(name() + " copies no rows");
  }
  // sums += parts, `count` elements of a type that it computes in; parts are aligned as allocate() does.
  virtual void add(std::byte* sums, const std::byte* parts, std::int64_t count, sim::DType dtype) {
    (void)sums, (void)parts, (void)count, (void)dtype;
    throw std::logic_error(name() + " adds nothing up");
  }
  // What a library queues beside the operations: `work` is handed stream number `aside` (from 0; a CUDA
  // stream), where it begins when all that was queued before is done. A replay() may call it again: what it
  // refers to outlives the device.
  virtual void queue_aside(std::size_t aside, std::function<void(void* stream)> work) {
    (void)aside, (void)work;
    throw std::logic_error(name() + " has no streams");
  }
  // What is queued from now on waits for all of that stream.
  virtual void await_aside(std::size_t aside) { (void)aside; }
  virtual bool aside_is_done(std::size_t aside) {
    (void)aside;
    return true;
  }
  // Whether synchronise() would return at once.
  virtual bool is_done() { return true; }

  // Operations between begin_capture() and end_capture() are noted instead of done, and replay() does them
  // all, cheaper than one by one; with the settings of the last begin(), but with how to sample and the shape
  // of what ranks have as it was noted. A new capture replaces the one
  // before of the same number. Requires can_replay().
  virtual bool can_replay() const { return false; }
  virtual void begin_capture() {}
  virtual void end_capture(std::size_t number) { (void)number; }
  virtual void replay(std::size_t number) { (void)number; }
  virtual void drop_captures() {}

  // Decoding that does not wait for the host between two tokens. pass_tokens_on() is work like an operation's
  // and may be captured: tokens become the next ones, positions and the step of sampling count on by one.
  // read_tokens() gives what was passed on by work before `mark`, of which mark_tokens() says that it ends
  // here, in sampling step `step`; it waits for that alone. Up to two steps may be unread.
  // expect_tokens() comes first, outside a capture, always with the same batch. Requires can_replay().
  virtual void expect_tokens(std::int64_t batch) { (void)batch; }
  virtual void pass_tokens_on(const TokenLoop& loop) { (void)loop; }
  virtual void mark_tokens(std::int64_t step) { (void)step; }
  virtual void read_tokens(std::int64_t step, std::span<std::int32_t> tokens) { (void)step, (void)tokens; }

  // Time stamps between operations: record() notes that all before it is done, in order, from index 0;
  // after synchronise(), stamps() holds the seconds since record(0).
  virtual void record(std::size_t index) = 0;
  virtual void synchronise() = 0;
  virtual void stamps(std::span<double> seconds) const = 0;
};

// The CPU of this machine with that many threads (0: all cores). Sets the process's thread count, and
// denormals flush to zero on those threads.
std::unique_ptr<Device> make_cpu_device(int threads);

}  // namespace runtime
