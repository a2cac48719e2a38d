#include "sim/plan/device_memory.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "sim/plan/builder.h"
#include "sim/plan/caching_allocator.h"

namespace sim {
namespace {

// The third step makes nothing that the second did not make.
constexpr int kSteps = 2;
// Micro-batches that repeat each other are the same to the allocator from the second on.
constexpr std::int64_t kRounds = 2;

// Elements of the parameters that a stage's rank holds.
std::int64_t parameters_of(const Plan& plan, const MemoryPlan& memory) {
  std::int64_t elements = 0;
  for (const Instance& i : memory.instances) {
    const Buffer& b = plan.buffer(i.buffer);
    if (b.buffer_class == BufferClass::parameter && b.lifetime == Lifetime::plan) elements += b.elements({});
  }
  return elements;
}

// Instances by the operation at which something happens to them.
class ByOperation {
 public:
  ByOperation(OpTime duration, const std::vector<std::pair<OpTime, std::size_t>>& events)
      : begin_(static_cast<std::size_t>(duration) + 2), instances_(events.size()) {
    for (const auto& [time, instance] : events) ++begin_[static_cast<std::size_t>(time) + 2];
    for (std::size_t t = 1; t < begin_.size(); ++t) begin_[t] += begin_[t - 1];
    for (const auto& [time, instance] : events)
      instances_[begin_[static_cast<std::size_t>(time) + 1]++] = instance;
  }
  std::span<const std::size_t> at(OpTime time) const {
    const auto t = static_cast<std::size_t>(time);
    return {instances_.data() + begin_[t], begin_[t + 1] - begin_[t]};
  }

 private:
  std::vector<std::size_t> begin_;  // of each operation's, in instances_
  std::vector<std::size_t> instances_;
};

// Runs a program's requests through the allocator.
class Replay {
 public:
  Replay(const Plan& plan, const MemoryPlan& memory, CachingAllocator& allocator)
      : plan_(plan),
        memory_(memory),
        allocator_(allocator),
        held_(memory.instances.size()),
        times_(action_times(plan, memory.program)),
        scratch_(plan.blocks.size()),
        begins_(memory.duration, events(true)),
        ends_(memory.duration, events(false)) {
    for (std::size_t i = 0; i < memory.instances.size(); ++i)
      if (buffer_of(i).lifetime == Lifetime::plan && !is_scratch(i))
        held_[i] = allocator.allocate(memory.instances[i].bytes);
    place_scratch();
  }

  void step() {
    const auto& actions = plan_.programs[memory_.program].actions;
    const Repetition& r = memory_.micro_batches;
    for (std::size_t a = 0; a < actions.size(); ++a) {
      const bool repeats = r.count > 1 && times_[a] >= r.begin + r.period * kRounds && times_[a] < r.end();
      if (repeats) continue;
      const auto block = static_cast<std::size_t>(actions[a].block);
      for (OpTime t = times_[a]; t < times_[a + 1]; ++t) operation(r.fold(t), block, t - times_[a]);
    }
  }

 private:
  struct ScratchLife {
    std::size_t instance;
    OpTime first, last;
  };

  const Buffer& buffer_of(std::size_t instance) const {
    return plan_.buffer(memory_.instances[instance].buffer);
  }
  bool is_scratch(std::size_t instance) const {
    return buffer_of(instance).buffer_class == BufferClass::scratch;
  }

  // The times at which instances are made (`of_begin`), or freed.
  std::vector<std::pair<OpTime, std::size_t>> events(bool of_begin) const {
    std::vector<std::pair<OpTime, std::size_t>> events;
    for (std::size_t i = 0; i < memory_.instances.size(); ++i) {
      const Lifetime lifetime = buffer_of(i).lifetime;
      if (is_scratch(i) || lifetime == Lifetime::plan) continue;
      const bool stays = lifetime == Lifetime::first_use;
      if (of_begin)
        events.emplace_back(memory_.instances[i].first, i);
      else if (!stays)
        events.emplace_back(memory_.instances[i].last, i);
    }
    return events;
  }

  void place_scratch() {
    std::vector<std::int32_t> block_of(plan_.buffers.size(), -1);
    for (std::size_t b = 0; b < plan_.blocks.size(); ++b)
      for (const Operation& op : plan_.blocks[b].operations) {
        for (const Operand& o : op.operands)
          if (o.buffer != kNoBuffer)
            block_of[static_cast<std::size_t>(plan_.storage(o.buffer))] = static_cast<std::int32_t>(b);
        for (const Operand& o : op.beside)
          if (o.buffer != kNoBuffer)
            block_of[static_cast<std::size_t>(plan_.storage(o.buffer))] = static_cast<std::int32_t>(b);
      }
    for (std::size_t i = 0; i < memory_.instances.size(); ++i) {
      if (!is_scratch(i)) continue;
      const Instance& instance = memory_.instances[i];
      const auto block = static_cast<std::size_t>(block_of[static_cast<std::size_t>(instance.buffer)]);
      scratch_[block].push_back({i, instance.first, instance.last});
    }
  }

  void begin(std::size_t instance) {
    if (!held_[instance]) held_[instance] = allocator_.allocate(memory_.instances[instance].bytes);
  }
  void end(std::size_t instance) {
    if (!held_[instance]) return;
    allocator_.release(*held_[instance]);
    held_[instance].reset();
  }

  void operation(OpTime t, std::size_t block, OpTime within) {
    for (const std::size_t i : begins_.at(t)) begin(i);
    for (const ScratchLife& s : scratch_[block])
      if (s.first == within) begin(s.instance);
    for (const std::size_t i : ends_.at(t)) end(i);
    for (const ScratchLife& s : scratch_[block])
      if (s.last == within) end(s.instance);
  }

  const Plan& plan_;
  const MemoryPlan& memory_;
  CachingAllocator& allocator_;
  std::vector<std::optional<CachingAllocator::Block>> held_;  // by instance
  std::vector<OpTime> times_;
  std::vector<std::vector<ScratchLife>> scratch_;  // by block
  ByOperation begins_, ends_;
};

}  // namespace

bool looks_at_instances(const MemoryProfile& profile) {
  const bool copies =
      profile.gradient_copy_bytes > 0 || profile.bucket_bytes > 0 || profile.whole_in_pipelines > 0;
  return profile.allocator != AllocatorKind::planned || copies;
}

StageCopies copies_of_stage(const Scenario& scenario, double held) {
  const MemoryProfile& profile = scenario.implementation.memory;
  const Strategy& s = scenario.strategy;
  const int ranks = data_ranks(s);
  const bool divides_parameters = ranks > 1 && s.zero_stage == 3;
  const double whole = divides_parameters ? held * ranks : held;
  const double own = ranks > 1 && s.zero_stage > 0 ? whole / ranks : whole;
  const bool keeps_whole = divides_parameters && s.pipeline_parallel > 1;
  const auto bytes = [](double parameters, double each) { return Bytes{std::llround(parameters * each)}; };
  StageCopies copies;
  copies.always = bytes(whole, profile.gradient_copy_bytes) +
                  (ranks > 1 && s.zero_stage == 0 ? bytes(whole, profile.bucket_bytes) : Bytes{}) +
                  (keeps_whole ? bytes(whole, profile.whole_in_pipelines) : Bytes{});
  copies.step_fp16 = bytes(own, profile.step_fp16_bytes);
  copies.step_fp32 = bytes(own, profile.step_fp32_bytes);
  if (ranks > 1) copies.reduced = bytes(whole, profile.reduction_copy_bytes);
  return copies;
}

DeviceMemory device_memory(const Plan& plan, const MemoryPlan& memory, Bytes limit) {
  const MemoryProfile& profile = plan.scenario.implementation.memory;
  const StageCopies copies = copies_of_stage(plan.scenario, static_cast<double>(parameters_of(plan, memory)));
  const Bytes always = copies.always;
  const std::vector<Bytes> of_reduction{copies.reduced}, of_step{copies.step_fp16, copies.step_fp32};
  DeviceMemory device;
  device.context = {std::llround(profile.context_gib * kGiB)};
  device.copies = always;
  device.live = memory.live_peak + always;
  if (profile.allocator == AllocatorKind::planned) {
    device.reserved = memory.arena + always;
    return device;
  }
  CachingAllocator allocator(profile.allocator == AllocatorKind::expandable);
  allocator.set_limit(limit);
  if (always.value > 0) allocator.allocate(always);
  Replay replay(plan, memory, allocator);
  const auto pass_through = [&](const std::vector<Bytes>& tensors) {
    std::vector<CachingAllocator::Block> blocks;
    for (const Bytes b : tensors)
      if (b.value > 0) blocks.push_back(allocator.allocate(b));
    device.live = std::max(device.live, allocator.allocated());
    for (const CachingAllocator::Block b : blocks) allocator.release(b);
  };
  for (int step = 0; step < kSteps; ++step) {
    replay.step();
    pass_through(of_reduction);
    pass_through(of_step);
  }
  device.reserved = allocator.most_reserved();
  return device;
}

}  // namespace sim
