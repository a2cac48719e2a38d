#include "runtime/run.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>

#include "kernels/adam_8bit.h"
#include "runtime/error.h"
#include "runtime/formats/float_formats.h"
#include "runtime/initial_values.h"
#include "runtime/measured.h"
#include "runtime/weights.h"
#include "sim/dtype.h"
#include "sim/format.h"
#include "sim/plan/builder.h"
#include "sim/plan/parameters.h"
#include "sim/scenario/fields.h"

namespace runtime {
namespace {

// What no kernel here computes of a model; empty where kernels compute all of it.
std::string without_kernels(const sim::Scenario& scenario, const Device& device) {
  const sim::Model& m = scenario.model;
  const bool caps_scores = m.attn_logit_softcapping > 0;
  if ((caps_scores || m.final_logit_softcapping > 0) && !device.shares_host_memory())
    return "caps of scores or logits";
  if (caps_scores && scenario.implementation.attention == sim::AttentionKind::standard)
    return "caps of scores in standard attention";
  if (m.has_latent_attention() && m.reach_of_windows() > 0) return "latent attention within windows";
  if (m.attention_sinks && m.has_latent_attention()) return "attention sinks in latent attention";
  if (m.attention_sinks && scenario.strategy.context_parallel > 1 && !device.shares_host_memory())
    return "attention sinks over context-parallel ranks";
  return "";
}

template <class Range>
bool contains(const Range& range, sim::DType type) {
  return std::find(range.begin(), range.end(), type) != range.end();
}

std::string names_of(std::span<const sim::DType> types) {
  std::string all;
  for (const sim::DType type : types) all += (all.empty() ? "" : ", ") + std::string(sim::name(type));
  return all;
}

void require_kv_cache(const sim::Scenario& scenario, const Device& device) {
  const sim::Workload& w = scenario.workload;
  if (w.task != sim::Task::generate || !w.kv_cache) return;
  const KvCacheLimits limits = device.kv_cache_limits();
  const sim::DType type = w.kv_dtype.value_or(w.dtype);
  if (type != w.dtype && !contains(limits.dtypes, type))
    throw NoDevice(device.name() + " keeps the KV cache in workload.dtype" +
                   (limits.dtypes.empty() ? "" : " or " + names_of(limits.dtypes)) +
                   "; workload.kv_dtype is " + std::string(sim::name(type)));
  if (w.kv_block > 0 && scenario.model.reach_of_windows() > 0 && !limits.windows_in_blocks)
    throw NoDevice(
        device.name() +
        " keeps a KV cache in blocks for models whose layers see all tokens; workload.kv_block must "
        "be 0, or the device cpu");
  if (w.kv_block % limits.block_multiple != 0)
    throw NoDevice(device.name() + " keeps the KV cache in blocks of a multiple of " +
                   std::to_string(limits.block_multiple) + " tokens; workload.kv_block is " +
                   std::to_string(w.kv_block));
}

// Generation in fp8 multiplies wider activations by weights that have a scale a row. The CPU's products in
// fp8 are of two tensors with a scale each, which only training has.
void require_training_in_fp8(const sim::Workload& w, const Device& device) {
  if (w.task == sim::Task::generate && w.dtype == sim::DType::fp8 && device.shares_host_memory())
    throw NoDevice(device.name() +
                   " trains in fp8, but does not generate in it; workload.dtype must be fp32, bf16 or fp16");
}

void require_frozen_type(const sim::Scenario& scenario, const Device& device) {
  const sim::FrozenWeights stored = sim::stored_frozen(scenario.workload);
  if (stored == sim::FrozenWeights::as_dtype) return;
  const std::string type(sim::name(stored));
  const std::span<const kernels::FrozenFormat> formats = device.frozen_formats();
  if (std::find(formats.begin(), formats.end(), frozen_format(stored)) == formats.end())
    throw NoDevice(device.name() +
                   " trains beside frozen weights in workload.dtype; workload.frozen_weights is " + type +
                   ", which can be predicted but not run here");
  // Parts of a weight would have other scales than the whole, and rounding other values.
  if (const int ranks = scenario.strategy.tensor_parallel; ranks != 1)
    throw NoDevice("frozen weights in " + type + " are stored whole here; strategy.tensor_parallel is " +
                   std::to_string(ranks) + ", it must be 1, or workload.frozen_weights as_dtype");
}

// Refuses a type of stored weights, other than the one that they are multiplied in, that the device lacks.
void require_stored_type(std::string_view field, std::optional<sim::DType> stored, const sim::Workload& w,
                         const Device& device) {
  if (stored.value_or(w.dtype) == w.dtype) return;
  const std::span<const sim::DType> types = device.weight_dtypes(w.dtype);
  if (!contains(types, *stored))
    throw NoDevice(device.name() + " stores weights " +
                   (types.empty() ? "as it multiplies them"
                                  : "in " + names_of(types) + " while it multiplies in " +
                                        std::string(sim::name(w.dtype))) +
                   "; workload." + std::string(field) + " is " + std::string(sim::name(*stored)) +
                   ", workload.dtype " + std::string(sim::name(w.dtype)));
  if (sim::bits(*stored) >= 16 || sim::stored_blocks(*stored)) return;
  const WeightGroups groups = device.weight_groups(*stored);
  const bool fits = w.weights_group == groups.exactly ||
                    (groups.multiple_of > 0 && w.weights_group % groups.multiple_of == 0);
  if (!fits)
    throw NoDevice("weights in " + std::string(sim::name(*stored)) + " run with workload.weights_group " +
                   std::to_string(groups.exactly) +
                   (groups.multiple_of > 0 ? " or a multiple of " + std::to_string(groups.multiple_of) : "") +
                   ", not " + std::to_string(w.weights_group) +
                   (groups.exactly == 0 ? " (0: a scale for each row)" : ""));
  if (!sim::has_zeros(w, *stored) && !groups.without_zeros)
    throw NoDevice(device.name() + " keeps a group's scale in 32 bits; workload.weights_zeros must be true" +
                   (w.weights_zeros ? ", and types that are stored must not be int8 beside fewer bits" : ""));
}

// The buffer beside a weight in fewer than 16 bits that holds its scales, (rows, groups).
sim::BufferId scales_of(const sim::Plan& plan, sim::BufferId weight) {
  const std::vector<sim::BufferId> beside = buffers_beside(plan, weight);
  return beside.empty() ? sim::kNoBuffer : beside.front();
}

StoredWeight stored_weight(const sim::Plan& plan, sim::BufferId id) {
  const sim::Buffer& weight = plan.buffers[static_cast<std::size_t>(id)];
  const sim::Buffer& scales = plan.buffers[static_cast<std::size_t>(scales_of(plan, id))];
  const std::int64_t columns = weight.shape.back().factor, groups = scales.shape.back().factor;
  const auto blocks = sim::stored_blocks(weight.dtype);
  return {weight.dtype, weight.elements({}) / columns, columns,
          blocks ? blocks->group : (columns + groups - 1) / groups,
          sim::has_zeros(plan.scenario.workload, weight.dtype)};
}

// Each expert's weight is stored by itself.
void require_rows_of_experts(const sim::Buffer& weight, const Device& device) {
  if (weight.shape.size() < 3) return;
  const std::int64_t rows = weight.shape[1].factor, multiple = device.weight_groups(weight.dtype).expert_rows;
  if (rows % multiple != 0)
    throw NoDevice("experts have " + std::to_string(rows) + " rows each in " + weight.name + "; in " +
                   std::string(sim::name(weight.dtype)) + " they run with a multiple of " +
                   std::to_string(multiple));
}

// Each scale is of a whole group of a row's columns. Frozen weights have blocks of any columns.
void require_whole_groups(const sim::Plan& plan, const Device& device) {
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    // Wider parameters can have a buffer beside them, too: it holds their shard.
    if (sim::bits(plan.buffers[b].dtype) >= 16 || is_frozen_weight(plan, static_cast<sim::BufferId>(b)))
      continue;
    if (scales_of(plan, static_cast<sim::BufferId>(b)) == sim::kNoBuffer) continue;
    require_rows_of_experts(plan.buffers[b], device);
    const StoredWeight weight = stored_weight(plan, static_cast<sim::BufferId>(b));
    if (sim::stored_blocks(weight.dtype)) {
      if (weight.columns % sim::StoredBlocks::kColumns != 0)
        throw NoDevice("rows of " + plan.buffers[b].name + " have " + std::to_string(weight.columns) +
                       " columns; weights in " + std::string(sim::name(weight.dtype)) +
                       " have them in whole blocks of " + std::to_string(sim::StoredBlocks::kColumns));
      continue;
    }
    const std::int64_t asked = plan.scenario.workload.weights_group;
    const std::int64_t group = asked > 0 ? asked : weight.columns;
    const std::int64_t multiple = std::max<std::int64_t>(1, device.weight_groups(weight.dtype).multiple_of);
    if (weight.columns % group != 0 || group % multiple != 0)
      throw NoDevice("rows of " + plan.buffers[b].name + " have " + std::to_string(weight.columns) +
                     " columns, which are no whole groups of workload.weights_group " +
                     std::to_string(asked) +
                     (multiple > 1 ? " in multiples of " + std::to_string(multiple) : ""));
  }
}

// An expert has a whole number of places: a pass of one token leaves less than one for each expert.
void require_capacity(const sim::Scenario& scenario, const Device& device) {
  const sim::Workload& w = scenario.workload;
  const sim::MixtureOfExperts& e = scenario.model.moe;
  if (w.expert_capacity_factor == 0 || e.num_experts == 0) return;
  if (!device.shares_host_memory())
    throw NoDevice(device.name() +
                   " has no kernels that drop rows of experts; workload.expert_capacity_factor must be 0, or "
                   "the device cpu");
  if (w.task != sim::Task::train)
    throw NoDevice(
        "experts take all rows that are sent to them where tokens are generated; "
        "workload.expert_capacity_factor must be 0");
  const double tokens = static_cast<double>(w.micro_batch_size * w.seq_len) /
                        (scenario.strategy.context_parallel *
                         (scenario.strategy.sequence_parallel ? scenario.strategy.tensor_parallel : 1));
  const double mean =
      tokens * static_cast<double>(e.num_experts_per_tok) / static_cast<double>(e.num_experts);
  if (w.expert_capacity_factor * mean < 1)
    throw NoDevice("workload.expert_capacity_factor " + sim::format_short(w.expert_capacity_factor) +
                   " leaves an expert less than one place of a micro-batch's rows, of which it has " +
                   sim::format_short(mean) + " on average");
}

// Adafactor's means, Muon's products and the blocks of 8-bit moments that share a scale are taken over whole
// tensors. Ranks that divide data, sequences or layers have whole tensors.
void require_whole_tensors(const sim::Scenario& scenario) {
  const sim::Optimizer optimizer = scenario.workload.optimizer;
  const sim::Strategy& s = scenario.strategy;
  if (scenario.workload.task != sim::Task::train ||
      (optimizer != sim::Optimizer::adafactor && optimizer != sim::Optimizer::adamw_8bit &&
       optimizer != sim::Optimizer::muon))
    return;
  const auto refuse = [&](const char* field, int value, int accepted) {
    if (value != accepted)
      throw NoDevice(std::string(sim::name(optimizer)) + " works on whole tensors here; strategy." + field +
                     " is " + std::to_string(value) + ", it must be " + std::to_string(accepted) +
                     ", or workload.optimizer adamw, sgd or lion");
  };
  refuse("tensor_parallel", s.tensor_parallel, 1);
  refuse("expert_parallel", s.expert_parallel, 1);
  refuse("zero_stage", s.devices() > 1 ? s.zero_stage : 0, 0);
}

// Refuses what no executor here carries out of a strategy.
void require_strategy(const sim::Scenario& scenario, const Device& device) {
  const sim::Strategy& s = scenario.strategy;
  // Only the CPU's kernels know of segments of a sequence, or of rows from several ranks.
  const auto on_cpu_alone = [&](const char* field, int degree, const char* what) {
    if (degree > 1 && !device.shares_host_memory())
      throw NoDevice(device.name() + " has no kernels for " + what + "; strategy." + field + " is " +
                     std::to_string(degree) + ", which runs with --device cpu");
  };
  // Ranks that divide heads for attention see whole sequences in it.
  if (s.context_parallel_comm != sim::ContextParallelComm::all_to_all)
    on_cpu_alone("context_parallel", s.context_parallel,
                 "divided sequences, but for strategy.context_parallel_comm all_to_all");
  on_cpu_alone("expert_parallel", s.expert_parallel, "experts of several ranks");
  const std::int64_t heads = scenario.model.num_key_value_heads;
  if (scenario.workload.task == sim::Task::train && s.tensor_parallel > heads)
    throw NoDevice("training with strategy.tensor_parallel " + std::to_string(s.tensor_parallel) +
                   " above the model's " + std::to_string(heads) +
                   " key-value heads can be predicted but not run here: the gradient norm would count the "
                   "heads that several ranks hold more than once");
  const sim::DType type = scenario.workload.dtype;
  if (s.devices() > 1 && type != sim::DType::fp32 && type != sim::DType::bf16 && type != sim::DType::fp16)
    throw NoDevice("training in " + std::string(sim::name(type)) +
                   " can be predicted but not run here on several devices; the strategy has " +
                   std::to_string(s.devices()));
}

void require_fit(const sim::MemoryPlan& memory, const Device& device) {
  const sim::Bytes available = device.available();
  if (memory.arena > available)
    throw DoesNotFit("the plan needs " + sim::format(memory.arena) + ", " + device.name() + " has " +
                     sim::format(available) + " of memory");
}

}  // namespace

void require_runnable(const sim::Scenario& scenario, const Device& device) {
  if (const std::string what = without_kernels(scenario, device); !what.empty())
    throw NoDevice("model " + scenario.model.name + " has " + what +
                   ", which can be predicted but not run here: there are no kernels for it");
  require_capacity(scenario, device);
  require_whole_tensors(scenario);
  require_strategy(scenario, device);
  const std::span<const sim::DType> dtypes = device.dtypes();
  if (!contains(dtypes, scenario.workload.dtype))
    throw NoDevice(device.name() + " computes in " + names_of(dtypes) + "; workload.dtype is " +
                   std::string(sim::name(scenario.workload.dtype)));
  require_training_in_fp8(scenario.workload, device);
  require_frozen_type(scenario, device);
  sim::for_each_stored_type([&](const auto& field) {
    if (field.applies(scenario))
      require_stored_type(field.name, scenario.workload.*field.member, scenario.workload, device);
  });
  require_kv_cache(scenario, device);
  if (!scenario.implementation.runs_here)
    throw NoDevice("implementation " + scenario.implementation.name +
                   " can be predicted but not run here; ridgepoint can");
}

namespace {

// Everything that a plan has in fp32, operands and arithmetic, becomes another type.
void set_single_precision(sim::Plan& plan, sim::DType type) {
  const auto set = [type](sim::DType& of) {
    if (of == sim::DType::fp32) of = type;
  };
  for (sim::Buffer& buffer : plan.buffers) set(buffer.dtype);
  for (sim::Block& block : plan.blocks)
    for (sim::Operation& operation : block.operations) set(operation.dtype);
}

}  // namespace

Run::Run(const sim::Scenario& scenario, int threads) : Run(scenario, make_cpu_device(threads)) {}

Run::Run(const sim::Scenario& scenario, std::unique_ptr<Device> device)
    : Run(scenario, std::move(device), std::make_unique<Communicator>(), nullptr) {}

Run::Run(const sim::Scenario& scenario, std::unique_ptr<Device> device, Communicator& communicator)
    : Run(scenario, std::move(device), nullptr, &communicator) {}

Run::Run(const sim::Scenario& scenario, std::unique_ptr<Device> device, std::unique_ptr<Communicator> alone,
         Communicator* communicator)
    : device_(std::move(device)), alone_(std::move(alone)), communicator_(alone_ ? *alone_ : *communicator) {
  require_runnable(scenario, *device_);
  if (const int devices = scenario.strategy.devices(); devices != communicator_.size())
    throw NoDevice("the strategy divides the work over " + std::to_string(devices) + " devices; here " +
                   (communicator_.size() == 1
                        ? "is one process"
                        : "are " + std::to_string(communicator_.size()) + " processes"));
  plan_ = sim::make_plan(scenario);
  set_single_precision(plan_, device_->single_precision());
  require_whole_groups(plan_, *device_);
  place_ = sim::place_of_rank(scenario.strategy, communicator_.rank());
  const auto program = static_cast<std::size_t>(place_.pipeline);
  memory_ = sim::plan_memory(plan_, program);
  require_fit(memory_, *device_);
  if (communicator_.size() > 1 || scenario.strategy.offload_optimizer ||
      sim::held_vocabulary(scenario) > scenario.model.vocab_size) {
    sim::Scenario of_one = scenario;
    of_one.strategy = {};
    of_one.implementation.vocabulary_multiple = 1;
    whole_plan_ = sim::make_plan(of_one);
    whole_memory_ = sim::plan_memory(*whole_plan_);
  }
  executor_ = std::make_unique<Executor>(plan_, memory_, *device_, communicator_, program);
}

kernels::VocabularyPart Run::vocabulary() const {
  const std::int64_t all = plan_.scenario.model.vocab_size;
  const std::int64_t own = sim::held_vocabulary(plan_.scenario), first = std::min(all, place_.tensor * own);
  return {first, std::min(own, all - first)};
}

namespace {

std::vector<InstanceName> instances_in(const sim::Plan& plan, const sim::MemoryPlan& memory,
                                       sim::BufferClass buffer_class) {
  std::vector<InstanceName> names;
  for (const sim::Instance& instance : memory.instances) {
    const sim::Buffer& buffer = plan.buffers[static_cast<std::size_t>(instance.buffer)];
    // A parameter's scales follow from the parameter.
    const bool is_parameter = buffer_class == sim::BufferClass::parameter;
    if (buffer.buffer_class == buffer_class && is_parameter == (buffer.parameter == sim::kNoBuffer))
      names.push_back({instance.buffer, instance.layer});
  }
  return names;
}

}  // namespace

std::vector<InstanceName> Run::instances_of(sim::BufferClass buffer_class) const {
  return instances_in(plan_, memory_, buffer_class);
}

std::vector<InstanceName> Run::whole_instances_of(sim::BufferClass buffer_class) const {
  return instances_in(whole_plan(), whole_plan_ ? whole_memory_ : memory_, buffer_class);
}

std::vector<InstanceName> Run::whole_frozen_scales() const {
  const sim::Plan& whole = whole_plan();
  std::vector<InstanceName> scales;
  for (const InstanceName& name : whole_instances_of(sim::BufferClass::parameter))
    if (is_frozen_weight(whole, name.buffer))
      for (const sim::BufferId beside : buffers_beside(whole, name.buffer))
        scales.push_back({beside, name.layer});
  return scales;
}

std::size_t Run::whole_elements_of(InstanceName whole) const {
  return static_cast<std::size_t>(whole_plan().buffers[static_cast<std::size_t>(whole.buffer)].elements({}));
}

InstanceName Run::own(InstanceName whole) const {
  const sim::BufferId buffer = plan_.find(whole_plan().buffers[static_cast<std::size_t>(whole.buffer)].name);
  return {has(buffer, whole.layer) ? buffer : sim::kNoBuffer, whole.layer};
}

bool Run::has(sim::BufferId buffer, std::int32_t layer) const {
  const auto is_it = [&](const sim::Instance& i) { return i.buffer == buffer && i.layer == layer; };
  const std::vector<sim::Instance>&here = memory_.instances, &on_host = executor_->host_memory().instances;
  return std::any_of(here.begin(), here.end(), is_it) || std::any_of(on_host.begin(), on_host.end(), is_it);
}

std::string_view Run::parameter_of(InstanceName whole) const {
  const std::vector<sim::Buffer>& buffers = whole_plan().buffers;
  const sim::Buffer& buffer = buffers[static_cast<std::size_t>(whole.buffer)];
  return sim::parameter_name(buffer.parameter == sim::kNoBuffer
                                 ? buffer.name
                                 : buffers[static_cast<std::size_t>(buffer.parameter)].name);
}

Run::Part Run::part_of(InstanceName whole, std::int32_t rank) const {
  return part_of(whole, rank, plan_.find(whole_plan().buffers[static_cast<std::size_t>(whole.buffer)].name));
}

Run::Part Run::part_of(InstanceName whole, std::int32_t rank, sim::BufferId held) const {
  const sim::Strategy& strategy = plan_.scenario.strategy;
  const sim::Buffer& buffer = whole_plan().buffers[static_cast<std::size_t>(whole.buffer)];
  Part part;
  part.of_tensor = part_of_parameter(plan_.scenario, parameter_of(whole), rank);
  const sim::Buffer& here = plan_.buffers[static_cast<std::size_t>(held)];
  // Each rank has all of a state that has fewer elements than its parameter: one for each row, column or
  // block. The elements for the vocabulary's padding are at its end.
  const std::vector<sim::Buffer>& buffers = whole_plan().buffers;
  if (part.of_tensor && buffer.parameter != sim::kNoBuffer &&
      buffer.elements({}) < buffers[static_cast<std::size_t>(buffer.parameter)].elements({})) {
    part.of_tensor = TensorPart{.rows = buffer.elements({}),
                                .columns = 1,
                                .runs = {{0, buffer.elements({})}},
                                .length = here.elements({})};
  }
  part.elements =
      part.of_tensor ? static_cast<std::size_t>(part.of_tensor->elements()) : whole_elements_of(whole);
  part.count = part.elements;
  if (here.shard_group < 0) return part;
  const std::vector<std::int32_t> ranks =
      sim::members_of(strategy, plan_.groups[static_cast<std::size_t>(here.shard_group)], rank);
  const auto index = static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  const auto shard = static_cast<std::size_t>(here.elements({}));
  part.begin = std::min(part.elements, index * shard);
  part.count = std::min(shard, part.elements - part.begin);
  return part;
}

namespace {

// What belongs to a parameter and is in 8 bits (an optimizer's states, scales of frozen weights) crosses to
// the host as the numbers of its codes.
bool is_coded_state(const sim::Buffer& buffer) {
  return buffer.parameter != sim::kNoBuffer && sim::bits(buffer.dtype) == 8;
}

// The value that crosses to the host for a zero.
float zero_of(const sim::Buffer& buffer) {
  return is_coded_state(buffer) && buffer.name.starts_with("moment1.") ? kernels::kMomentZero<true> : 0;
}

}  // namespace

void Run::write_part(InstanceName whole, std::span<const float> values) {
  const InstanceName here = own(whole);
  if (here.buffer != sim::kNoBuffer) write_part_to(here, whole, values);
}

void Run::write_part_to(InstanceName here, InstanceName whole, std::span<const float> values) {
  const Part part = part_of(whole, communicator_.rank(), here.buffer);
  std::vector<float> of_tensor;
  if (part.of_tensor) {
    of_tensor.resize(part.elements);
    part.of_tensor->take(values, of_tensor, zero_of(plan_.buffers[static_cast<std::size_t>(here.buffer)]));
    values = of_tensor;
  }
  if (part.count == part.elements) return write_values(here, values);
  // Shards are padded.
  std::vector<float> shard(values.begin() + static_cast<std::ptrdiff_t>(part.begin),
                           values.begin() + static_cast<std::ptrdiff_t>(part.begin + part.count));
  shard.resize(elements_of(here));
  write_values(here, shard);
}

template <typename Number>
std::vector<Number> Run::collect(InstanceName whole) const {
  const sim::Strategy& strategy = plan_.scenario.strategy;
  const InstanceName here = own(whole);
  const Part own_part = part_of(whole, communicator_.rank());
  // Where several ranks of a stage hold the same values, the first of them sends them.
  bool sends = here.buffer != sim::kNoBuffer;
  for (std::int32_t other = 0; sends && other < communicator_.rank(); ++other)
    sends = sim::place_of_rank(strategy, other).pipeline != place_.pipeline ||
            part_of(whole, other).key() != own_part.key();
  std::vector<Number> own_values;
  if (sends) {
    own_values.resize(elements_of(here));
    read_values(here, std::span(own_values));
    own_values.resize(own_part.count);
  }
  const auto parts = communicator_.gather_to_first(std::as_bytes(std::span(own_values)));
  if (communicator_.rank() > 0) return {};
  std::vector<Number> values(whole_elements_of(whole));
  // The parts of the whole tensor that shards belong to, each with the values that have come.
  std::map<std::pair<std::int64_t, std::int64_t>, std::pair<Part, std::vector<Number>>> of_tensor;
  for (std::int32_t rank = 0; rank < communicator_.size(); ++rank) {
    const std::vector<std::byte>& bytes = parts[static_cast<std::size_t>(rank)];
    if (bytes.empty()) continue;
    const Part part = part_of(whole, rank);
    auto& [of, local] = of_tensor[part.key_of_tensor()];
    of = part;
    local.resize(part.elements);
    std::memcpy(local.data() + part.begin, bytes.data(), bytes.size());
  }
  for (const auto& [key, part_and_values] : of_tensor) {
    const auto& [part, local] = part_and_values;
    if (part.of_tensor)
      part.of_tensor->put(std::span<const Number>(local), std::span(values));
    else
      values = local;
  }
  return values;
}
template std::vector<float> Run::collect(InstanceName whole) const;
template std::vector<double> Run::collect(InstanceName whole) const;

bool Run::holds(sim::BufferId buffer, std::int32_t micro_batch) const {
  return std::any_of(memory_.instances.begin(), memory_.instances.end(), [&](const sim::Instance& i) {
    return i.buffer == buffer && i.micro_batch == micro_batch;
  });
}

std::size_t Run::elements_of(InstanceName name) const {
  const std::int64_t bits = sim::bits(plan_.buffers[static_cast<std::size_t>(name.buffer)].dtype);
  return executor_->instance(name.buffer, name.layer).size() * 8 / static_cast<std::size_t>(bits);
}

// Writes what store(codes, scales, weight) makes of a weight in fewer than 16 bits; false where store is.
bool Run::write_stored(InstanceName name, const auto& store) {
  const sim::BufferId beside = scales_of(plan_, name.buffer);
  std::vector<std::byte> codes(executor_->instance(name.buffer, name.layer).size());
  std::vector<std::byte> scales(executor_->instance(beside, name.layer).size());
  if (!store(std::span(codes), std::span(scales), stored_weight(plan_, name.buffer))) return false;
  write(name.buffer, std::span<const std::byte>(codes), name.layer);
  write(beside, std::span<const std::byte>(scales), name.layer);
  return true;
}

void Run::write_values(InstanceName name, std::span<const float> values) {
  const sim::Buffer& buffer = plan_.buffers[static_cast<std::size_t>(name.buffer)];
  const sim::DType dtype = buffer.dtype;
  if (is_coded_state(buffer)) {
    std::vector<std::uint8_t> codes(values.size());
    std::transform(values.begin(), values.end(), codes.begin(),
                   [](float code) { return static_cast<std::uint8_t>(code); });
    return write(name.buffer, std::span<const std::uint8_t>(codes), name.layer);
  }
  if (is_frozen_weight(plan_, name.buffer)) return write_frozen(name, values, FrozenScales::of_values);
  if (sim::bits(dtype) < 16) {
    write_stored(name,
                 [&](std::span<std::byte> codes, std::span<std::byte> scales, const StoredWeight& weight) {
                   device_->store_weight(codes, scales, values, weight);
                   return true;
                 });
    return;
  }
  if (dtype == sim::DType::fp64) {
    const std::vector<double> wide(values.begin(), values.end());
    return write(name.buffer, std::span(wide), name.layer);
  }
  if (sim::bits(dtype) != 16) return write(name.buffer, values, name.layer);
  std::vector<std::uint16_t> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(),
                 dtype == sim::DType::bf16 ? f32_to_bf16 : f32_to_f16);
  write(name.buffer, std::span<const std::uint16_t>(rounded), name.layer);
}

FrozenCopy Run::frozen_copy(InstanceName name) const {
  FrozenCopy copy(plan_, name.buffer);
  for (FrozenCopy::Part& part : copy.parts()) read(part.buffer, std::span(part.bytes), name.layer);
  return copy;
}

void Run::write_frozen(InstanceName name, std::span<const float> values, FrozenScales scales) {
  FrozenCopy copy = frozen_copy(name);
  device_->store_frozen(copy.weight(), values, scales == FrozenScales::as_they_are);
  for (const FrozenCopy::Part& part : copy.parts())
    write(part.buffer, std::span<const std::byte>(part.bytes), name.layer);
}

// From a file whose codes the device multiplies unchanged. A scenario that generates has no master copy.
bool Run::write_codes(InstanceName here, InstanceName whole, const ModelSource& model) {
  const sim::Buffer& buffer = plan_.buffers[static_cast<std::size_t>(here.buffer)];
  if (sim::bits(buffer.dtype) >= 16 || !model.load_codes) return false;
  CodedWeight codes;
  if (!model.load_codes(sim::parameter_name(buffer.name), here.layer, codes)) return false;
  if (const Part part = part_of(whole, communicator_.rank(), here.buffer); part.of_tensor) {
    const std::optional<TensorPart> of_groups = part.of_tensor->of_groups(codes.group);
    const std::optional<TensorPart> of_blocks = part.of_tensor->of_groups(sim::StoredBlocks::kColumns);
    const bool has_blocks = !codes.block_scales.empty();
    if (!of_groups || (has_blocks && !of_blocks)) return false;
    const auto take = [](const TensorPart& of, auto& numbers) {
      auto taken = numbers;
      taken.resize(static_cast<std::size_t>(of.elements()));
      of.take(numbers, taken);
      numbers = std::move(taken);
    };
    take(*part.of_tensor, codes.codes);
    take(*of_groups, codes.scales);
    take(*of_groups, codes.minima);
    if (has_blocks) {
      take(*of_blocks, codes.block_scales);
      take(*of_blocks, codes.block_minima);
    }
  }
  return write_stored(
      here, [&](std::span<std::byte> to, std::span<std::byte> scales, const StoredWeight& weight) {
        return codes.bits <= sim::bits(weight.dtype) && codes.group == weight.group &&
               device_->store_codes(
                   to, scales,
                   {codes.codes, codes.scales, codes.minima, codes.block_scales, codes.block_minima}, weight);
      });
}

void Run::read_values(InstanceName name, std::span<float> values, std::int32_t micro_batch) const {
  const sim::Buffer& buffer = plan_.buffers[static_cast<std::size_t>(name.buffer)];
  const auto as = [&](auto number, const auto& widen) {
    std::vector<decltype(number)> stored(values.size());
    read(name.buffer, std::span(stored), name.layer, micro_batch);
    std::transform(stored.begin(), stored.end(), values.begin(), widen);
  };
  if (is_coded_state(buffer))
    return as(std::uint8_t{}, [](std::uint8_t code) { return static_cast<float>(code); });
  if (is_frozen_weight(plan_, name.buffer)) return device_->read_frozen(values, frozen_copy(name).weight());
  switch (buffer.dtype) {
    case sim::DType::fp64:
      return as(double{}, [](double value) { return static_cast<float>(value); });
    case sim::DType::bf16:
      return as(std::uint16_t{}, bf16_to_f32);
    case sim::DType::fp16:
      return as(std::uint16_t{}, f16_to_f32);
    default:
      return read(name.buffer, values, name.layer, micro_batch);
  }
}

void Run::read_values(InstanceName name, std::span<double> values, std::int32_t micro_batch) const {
  if (plan_.buffers[static_cast<std::size_t>(name.buffer)].dtype == sim::DType::fp64)
    return read(name.buffer, values, name.layer, micro_batch);
  std::vector<float> narrow(values.size());
  read_values(name, std::span(narrow), micro_batch);
  std::copy(narrow.begin(), narrow.end(), values.begin());
}

namespace {

// False where the model has no weights, or none for an adapter.
bool load_parameter(const ModelSource& model, std::string_view name, const sim::Shape& shape,
                    std::int32_t layer, std::span<float> values) {
  if (!model.load) return false;
  const auto adapter = adapter_part(name, layer, shape.front().factor, shape.back().factor);
  if (adapter) return model.load_adapter && model.load_adapter(*adapter, values);
  model.load(name, layer, values);
  return true;
}

}  // namespace

void Run::fill_parameters(const ModelSource& model, std::uint64_t seed, FrozenScales scales) {
  std::vector<float> values;
  const sim::Plan& whole = whole_plan();
  for (const InstanceName& name : whole_instances_of(sim::BufferClass::parameter)) {
    const sim::Buffer& of = whole.buffers[static_cast<std::size_t>(name.buffer)];
    const std::string_view parameter = parameter_of(name);
    const InstanceName mine = own(name);
    if (mine.buffer == sim::kNoBuffer) continue;
    const bool is_frozen = is_frozen_weight(plan_, mine.buffer);
    if (!is_frozen && write_codes(mine, name, model)) continue;
    values.resize(whole_elements_of(name));
    if (!load_parameter(model, parameter, of.shape, name.layer, values))
      draw_parameter(plan_.scenario.model, seed, parameter, name.layer, values);
    if (is_frozen) {  // every rank that has it has all of it
      write_frozen(mine, values, scales);
      continue;
    }
    write_part(name, values);
    // The copies beside a parameter in 16 bits: the master copy, and the host's where the host updates it.
    for (const char* copy : {"master.", "host."})
      if (const sim::BufferId beside = plan_.find(copy + of.name); has(beside, name.layer))
        write_part_to({beside, name.layer}, name, values);
  }
  for (const auto& [name, fill] : {std::pair{sim::buffer_names::rope_table, &fill_rope_table},
                                   std::pair{sim::buffer_names::local_rope_table, &fill_local_rope_table}}) {
    const sim::BufferId table = plan_.find(name);
    if (table == sim::kNoBuffer || !holds(table)) continue;
    values.resize(elements_of({table}));
    fill(plan_.scenario.model, values);
    write_values({table}, rows_of_own_positions(values));
  }
  fill_cache_tables();
}

// The rows of the rotary table in the order of this rank's tokens, where ranks divide sequences.
std::vector<float> Run::rows_of_own_positions(const std::vector<float>& table) const {
  if (context().ranks == 1) return table;
  const auto columns = static_cast<std::size_t>(plan_.scenario.model.rope_size());
  const std::int64_t rows = plan_.scenario.workload.seq_len / context().ranks;
  std::vector<float> own = table;
  for (std::int64_t i = 0; i < rows; ++i)
    std::copy_n(table.begin() + context().position(i, rows) * static_cast<std::int64_t>(columns), columns,
                own.begin() + i * static_cast<std::int64_t>(columns));
  return own;
}

void Run::fill_cache_tables() {
  // Sequences that grow together ask for their next blocks in turn.
  for (const std::string_view name :
       {sim::buffer_names::block_table, sim::buffer_names::window_block_table}) {
    const sim::BufferId table = plan_.find(name);
    if (table == sim::kNoBuffer || !holds(table)) continue;
    const auto batch = static_cast<std::size_t>(plan_.scenario.workload.batch_size);
    std::vector<std::int32_t> blocks(elements_of({table}));
    const std::size_t of_sequence = blocks.size() / batch;
    for (std::size_t b = 0; b < batch; ++b)
      for (std::size_t i = 0; i < of_sequence; ++i)
        blocks[b * of_sequence + i] = static_cast<std::int32_t>(i * batch + b);
    write(table, std::span<const std::int32_t>(blocks));
  }
  // Without calibration the scale is 1, which engines take by default, too (vLLM with --kv-cache-dtype fp8).
  const sim::BufferId scales = plan_.find(sim::buffer_names::kv_scales);
  if (scales != sim::kNoBuffer && holds(scales)) {
    const std::vector<float> ones(elements_of({scales}), 1.0f);
    write(scales, std::span<const float>(ones));
  }
}

std::span<std::byte> Run::memory_of(sim::BufferId buffer, std::int32_t layer, std::int32_t micro_batch,
                                    std::size_t bytes) const {
  const std::span<std::byte> memory = executor_->instance(buffer, layer, micro_batch);
  if (bytes > memory.size()) throw std::out_of_range("more values than the buffer holds");
  return memory.first(bytes);
}

void Run::write_bytes(sim::BufferId buffer, std::int32_t layer, std::int32_t micro_batch,
                      std::span<const std::byte> bytes) {
  device_->copy_to_device(memory_of(buffer, layer, micro_batch, bytes.size()).data(), bytes);
}

void Run::read_bytes(sim::BufferId buffer, std::int32_t layer, std::int32_t micro_batch,
                     std::span<std::byte> bytes) const {
  device_->copy_from_device(bytes, memory_of(buffer, layer, micro_batch, bytes.size()).data());
}

sim::Source Run::source(std::uint64_t seed) const {
  sim::Source source;
  source.kind = sim::ReportKind::measured;
  source.scenario = plan_.scenario;
  source.device = device_->name();
  source.date = utc_now();
  source.software = software_version();
  source.seed = seed;
  return source;
}

void Run::add_memory(sim::Report& report, std::span<const double> stamps) const {
  report.memory = measured_ledger(memory_, executor_->arena(), device_->in_use(), device_->platform_memory());
  if (const Arena* const on_host = executor_->host_arena()) {
    const sim::MemoryPlan& planned = executor_->host_memory();
    report.memory.push_back(
        {std::string(sim::kHostMemory), 0, on_host->high_water() - (planned.arena - planned.live_peak)});
  }
  report.memory_timeline = measured_timeline(plan_, memory_, stamps);
}

std::string software_version() {
  return "ridgepoint " RIDGEPOINT_VERSION;
}

}  // namespace runtime
