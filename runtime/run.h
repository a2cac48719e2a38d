// What training and generation share: a scenario's plan bound to a device, with its parameters in place.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/device.h"
#include "runtime/executor.h"
#include "runtime/frozen_weight.h"
#include "runtime/model_source.h"
#include "runtime/parameter_division.h"
#include "sim/plan/memory.h"
#include "sim/plan/plan.h"
#include "sim/plan/ranks.h"
#include "sim/report/report.h"

namespace runtime {

// An instance of a buffer: what checkpoints and weight files enumerate.
struct InstanceName {
  sim::BufferId buffer = sim::kNoBuffer;
  std::int32_t layer = 0;
};

// What fill_parameters() does with the scales of frozen weights in fewer bits.
enum class FrozenScales { of_values, as_they_are };

// Throws NoDevice where the device does not run the scenario's model, types, implementation or strategy.
void require_runnable(const sim::Scenario& scenario, const Device& device);

class Run {
 public:
  // Throws as require_runnable() does, and DoesNotFit where its arena exceeds what the device has of memory;
  // nothing has been allocated then.
  Run(const sim::Scenario& scenario, std::unique_ptr<Device> device);
  // As the communicator's rank, of as many as the strategy has. The communicator must outlive the run.
  Run(const sim::Scenario& scenario, std::unique_ptr<Device> device, Communicator& communicator);
  // On the CPU with that many threads (0: all cores).
  Run(const sim::Scenario& scenario, int threads);

  const sim::Plan& plan() const { return plan_; }
  const sim::MemoryPlan& memory() const { return memory_; }
  Executor& executor() { return *executor_; }
  Communicator& communicator() const { return communicator_; }
  const sim::RankPlace& place() const { return place_; }
  // Where ranks divide the vocabulary.
  kernels::VocabularyPart vocabulary() const;
  // Where they divide sequences.
  kernels::ContextPart context() const { return {plan_.scenario.strategy.context_parallel, place_.context}; }
  const Device& device() const { return *device_; }

  // Fills parameters from the model's files, or at random with `seed` where there are none. Also fills master
  // copies, the rope table and the KV cache's tables.
  void fill_parameters(const ModelSource& model, std::uint64_t seed,
                       FrozenScales scales = FrozenScales::of_values);

  // Parameters, or what belongs to parameters (moments), instance by instance in the plan's order.
  std::vector<InstanceName> instances_of(sim::BufferClass buffer_class) const;
  std::size_t elements_of(InstanceName name) const;
  // Whether this rank's program uses the buffer for this micro-batch: a buffer may belong to other pipeline
  // stages only.
  bool holds(sim::BufferId buffer, std::int32_t micro_batch = 0) const;

  // The undivided tensors of which ranks hold parts. Names and order are those of a one-rank plan.
  const sim::Plan& whole_plan() const { return whole_plan_ ? *whole_plan_ : plan_; }
  std::vector<InstanceName> whole_instances_of(sim::BufferClass buffer_class) const;
  // The scales of frozen weights in fewer bits, and the scales of scales. They do not follow from what the
  // weights stand for.
  std::vector<InstanceName> whole_frozen_scales() const;
  std::size_t whole_elements_of(InstanceName whole) const;
  // Writes this rank's part, where it has one.
  void write_part(InstanceName whole, std::span<const float> values);
  // Every rank calls it. Rank 0 gets the values, as floats or doubles; the others get nothing.
  template <typename Number>
  std::vector<Number> collect(InstanceName whole) const;

  // Whole instances as fp32, whatever the buffer's type: rounded to nearest on the way in. Weights in fewer
  // than 16 bits are written with scales of their own, and read only where they are frozen beside adapters.
  void write_values(InstanceName name, std::span<const float> values);
  void read_values(InstanceName name, std::span<float> values, std::int32_t micro_batch = 0) const;
  void read_values(InstanceName name, std::span<double> values, std::int32_t micro_batch = 0) const;

  // The first span.size() elements of an instance. Throws std::out_of_range where it has fewer.
  template <typename T>
  void write(sim::BufferId buffer, std::span<const T> values, std::int32_t layer = 0,
             std::int32_t micro_batch = 0) {
    write_bytes(buffer, layer, micro_batch, std::as_bytes(values));
  }
  template <typename T>
  void read(sim::BufferId buffer, std::span<T> values, std::int32_t layer = 0,
            std::int32_t micro_batch = 0) const {
    read_bytes(buffer, layer, micro_batch, std::as_writable_bytes(values));
  }

  // The report's source, as a measurement that starts now.
  sim::Source source(std::uint64_t seed) const;
  // Ledger and timeline; `stamps` as for measured_timeline().
  void add_memory(sim::Report& report, std::span<const double> stamps) const;

 private:
  // One of the two communicators is given.
  Run(const sim::Scenario& scenario, std::unique_ptr<Device> device, std::unique_ptr<Communicator> alone,
      Communicator* communicator);

  // A rank's part of a whole tensor: first by the divided dimension, then by flat shards of that part.
  struct Part {
    std::optional<TensorPart> of_tensor;
    std::size_t elements = 0;          // of the tensor's part
    std::size_t begin = 0, count = 0;  // the shard: elements within that part
    // Ranks whose keys are equal hold the same.
    std::pair<std::int64_t, std::int64_t> key_of_tensor() const {
      if (!of_tensor) return {-1, -1};
      return {of_tensor->first_row, of_tensor->runs.front().begin};
    }
    std::pair<std::pair<std::int64_t, std::int64_t>, std::size_t> key() const {
      return {key_of_tensor(), begin};
    }
  };
  Part part_of(InstanceName whole, std::int32_t rank) const;
  // The same for the buffer `held`, which may be a copy of the whole tensor under another name.
  Part part_of(InstanceName whole, std::int32_t rank, sim::BufferId held) const;
  void write_part_to(InstanceName here, InstanceName whole, std::span<const float> values);
  std::string_view parameter_of(InstanceName whole) const;  // its name, or that of what it belongs to
  // This rank's instance of it; kNoBuffer where it has none.
  InstanceName own(InstanceName whole) const;
  bool has(sim::BufferId buffer, std::int32_t layer) const;  // in this rank's memory or its host's
  void fill_cache_tables();
  std::vector<float> rows_of_own_positions(const std::vector<float>& table) const;
  bool write_codes(InstanceName here, InstanceName whole, const ModelSource& model);
  bool write_stored(InstanceName name, const auto& store);
  void write_frozen(InstanceName name, std::span<const float> values, FrozenScales scales);
  FrozenCopy frozen_copy(InstanceName name) const;
  void write_bytes(sim::BufferId buffer, std::int32_t layer, std::int32_t micro_batch,
                   std::span<const std::byte> bytes);
  void read_bytes(sim::BufferId buffer, std::int32_t layer, std::int32_t micro_batch,
                  std::span<std::byte> bytes) const;
  std::span<std::byte> memory_of(sim::BufferId buffer, std::int32_t layer, std::int32_t micro_batch,
                                 std::size_t bytes) const;

  sim::Plan plan_;
  sim::MemoryPlan memory_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Communicator> alone_;
  Communicator& communicator_;
  sim::RankPlace place_;
  // Among several ranks, where this one's vocabulary is padded, or its states are in the host's memory.
  std::optional<sim::Plan> whole_plan_;
  sim::MemoryPlan whole_memory_;
  std::unique_ptr<Executor> executor_;
};

// The version of this program and of what it computes with.
std::string software_version();

}  // namespace runtime
