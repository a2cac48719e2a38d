#include "runtime/run.h"

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "runtime/error.h"
#include "runtime/formats/float_formats.h"
#include "runtime/initial_values.h"
#include "runtime/measured.h"
#include "runtime/weight_quantisation.h"
#include "sim/dtype.h"
#include "sim/format.h"

namespace runtime {
namespace {

// What of a model no kernel here computes; empty where all is.
std::string without_kernels(const sim::Model& m) {
  if (m.has_experts()) return "experts";
  if (m.has_latent_attention()) return "latent attention";
  if (m.sliding_window > 0) return "a sliding window";
  if (m.attention_chunk_size > 0) return "attention in chunks";
  if (m.no_rope_layer_interval > 0) return "layers without rotary embedding";
  if (m.attention_sinks) return "attention sinks";
  if (m.num_nextn_predict_layers > 0) return "multi-token prediction";
  if (m.qk_norm != sim::QkNorm::none) return "norms of queries and keys";
  if (m.parallel_residual) return "feed-forward beside attention";
  if (m.embedding_norm) return "a norm of embeddings";
  if (m.position == sim::Position::alibi) return "ALiBi";
  if (m.activation != sim::Activation::gelu && m.activation != sim::Activation::swiglu &&
      m.activation != sim::Activation::squared_relu)
    return "the activation " + std::string(sim::name(m.activation));
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

void require_kv_cache(const sim::Workload& w, const Device& device) {
  if (w.task != sim::Task::generate || !w.kv_cache) return;
  const KvCacheLimits limits = device.kv_cache_limits();
  const sim::DType type = w.kv_dtype.value_or(w.dtype);
  if (type != w.dtype && !contains(limits.dtypes, type))
    throw NoDevice(device.name() + " keeps the KV cache in workload.dtype" +
                   (limits.dtypes.empty() ? "" : " or " + names_of(limits.dtypes)) +
                   "; workload.kv_dtype is " + std::string(sim::name(type)));
  if (w.kv_block % limits.block_multiple != 0)
    throw NoDevice(device.name() + " keeps the KV cache in blocks of a multiple of " +
                   std::to_string(limits.block_multiple) + " tokens; workload.kv_block is " +
                   std::to_string(w.kv_block));
}

void require_stored_types(const sim::Workload& w, const Device& device) {
  const sim::DType weights = w.weights_dtype.value_or(w.dtype);
  if (weights == w.dtype) return;
  const std::span<const sim::DType> types = device.weight_dtypes();
  if (!contains(types, weights) || w.dtype != sim::DType::bf16)
    throw NoDevice(device.name() +
                   (types.empty()
                        ? " stores weights as it multiplies them"
                        : " stores weights in " + names_of(types) + " while it multiplies in bf16") +
                   "; workload.weights_dtype is " + std::string(sim::name(weights)) + ", workload.dtype " +
                   std::string(sim::name(w.dtype)));
  const std::int64_t group = weights == sim::DType::int4 ? quantisation_group(weights, 0) : 0;
  if (w.weights_group != group)
    throw NoDevice("weights in " + std::string(sim::name(weights)) + " run with workload.weights_group " +
                   std::to_string(group) + ", not " + std::to_string(w.weights_group) +
                   (group == 0 ? " (0: a scale for each row)" : ""));
}

void require_fit(const sim::MemoryPlan& memory, const Device& device) {
  const sim::Bytes available = device.available();
  if (memory.arena > available)
    throw DoesNotFit("the plan needs " + sim::format(memory.arena) + ", " + device.name() + " has " +
                     sim::format(available) + " of memory");
}

}  // namespace

void require_runnable(const sim::Scenario& scenario, const Device& device) {
  if (const std::string what = without_kernels(scenario.model); !what.empty())
    throw NoDevice("model " + scenario.model.name + " has " + what +
                   ", which can be predicted but not run here: there are no kernels for it");
  if (const int devices = scenario.strategy.devices(); devices > 1)
    throw NoDevice("the strategy divides the work over " + std::to_string(devices) +
                   " devices, which can be predicted but not run here; this process is one");
  const std::span<const sim::DType> dtypes = device.dtypes();
  if (!contains(dtypes, scenario.workload.dtype))
    throw NoDevice(device.name() + " computes in " + names_of(dtypes) + "; workload.dtype is " +
                   std::string(sim::name(scenario.workload.dtype)));
  require_stored_types(scenario.workload, device);
  require_kv_cache(scenario.workload, device);
  if (!scenario.implementation.runs_here)
    throw NoDevice("implementation " + scenario.implementation.name +
                   " can be predicted but not run here; ridgepoint can");
}

Run::Run(const sim::Scenario& scenario, int threads) : Run(scenario, make_cpu_device(threads)) {}

Run::Run(const sim::Scenario& scenario, std::unique_ptr<Device> device) : device_(std::move(device)) {
  require_runnable(scenario, *device_);
  plan_ = sim::make_plan(scenario);
  memory_ = sim::plan_memory(plan_);
  require_fit(memory_, *device_);
  communicator_ = make_single_rank_communicator();
  executor_ = std::make_unique<Executor>(plan_, memory_, *device_, *communicator_);
}

std::vector<InstanceName> Run::instances_of(sim::BufferClass buffer_class) const {
  std::vector<InstanceName> names;
  for (const sim::Instance& instance : memory_.instances) {
    const sim::Buffer& buffer = plan_.buffers[static_cast<std::size_t>(instance.buffer)];
    // Scales of a parameter follow from it.
    const bool is_parameter = buffer_class == sim::BufferClass::parameter;
    if (buffer.buffer_class == buffer_class && is_parameter == (buffer.parameter == sim::kNoBuffer))
      names.push_back({instance.buffer, instance.layer});
  }
  return names;
}

std::size_t Run::elements_of(InstanceName name) const {
  const std::int64_t bits = sim::bits(plan_.buffers[static_cast<std::size_t>(name.buffer)].dtype);
  return executor_->instance(name.buffer, name.layer).size() * 8 / static_cast<std::size_t>(bits);
}

void Run::write_values(InstanceName name, std::span<const float> values) {
  const sim::Buffer& buffer = plan_.buffers[static_cast<std::size_t>(name.buffer)];
  const sim::DType dtype = buffer.dtype;
  if (sim::bits(dtype) < 16) {
    const QuantisedWeights weights = quantise_weights(values, buffer.shape.back().factor, dtype);
    write(name.buffer, std::span<const std::byte>(weights.bytes), name.layer);
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b)
      if (plan_.buffers[b].buffer_class == sim::BufferClass::parameter &&
          plan_.buffers[b].parameter == name.buffer)
        write(static_cast<sim::BufferId>(b), std::span<const float>(weights.scales), name.layer);
    return;
  }
  if (sim::bits(dtype) != 16) return write(name.buffer, values, name.layer);
  std::vector<std::uint16_t> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(),
                 dtype == sim::DType::bf16 ? f32_to_bf16 : f32_to_f16);
  write(name.buffer, std::span<const std::uint16_t>(rounded), name.layer);
}

void Run::read_values(InstanceName name, std::span<float> values) const {
  const sim::DType dtype = plan_.buffers[static_cast<std::size_t>(name.buffer)].dtype;
  if (sim::bits(dtype) != 16) return read(name.buffer, values, name.layer);
  std::vector<std::uint16_t> rounded(values.size());
  read(name.buffer, std::span(rounded), name.layer);
  std::transform(rounded.begin(), rounded.end(), values.begin(),
                 dtype == sim::DType::bf16 ? bf16_to_f32 : f16_to_f32);
}

void Run::fill_parameters(const ModelSource& model, std::uint64_t seed) {
  std::vector<float> values;
  for (const InstanceName& name : instances_of(sim::BufferClass::parameter)) {
    values.resize(elements_of(name));
    const std::string& buffer = plan_.buffers[static_cast<std::size_t>(name.buffer)].name;
    if (model.load)
      model.load(buffer, name.layer, values);
    else
      draw_parameter(plan_.scenario.model, seed, buffer, name.layer, values);
    write_values(name, values);
    if (const sim::BufferId master = plan_.find("master." + buffer); master != sim::kNoBuffer)
      write_values({master, name.layer}, values);
  }
  if (const sim::BufferId table = plan_.find(sim::buffer_names::rope_table); table != sim::kNoBuffer) {
    values.resize(elements_of({table}));
    fill_rope_table(plan_.scenario.model, values);
    write(table, std::span<const float>(values));
  }
  fill_cache_tables();
}

void Run::fill_cache_tables() {
  // Sequences that grow together ask for their next blocks in turn.
  if (const sim::BufferId table = plan_.find(sim::buffer_names::block_table); table != sim::kNoBuffer) {
    const auto batch = static_cast<std::size_t>(plan_.scenario.workload.batch_size);
    std::vector<std::int32_t> blocks(elements_of({table}));
    const std::size_t of_sequence = blocks.size() / batch;
    for (std::size_t b = 0; b < batch; ++b)
      for (std::size_t i = 0; i < of_sequence; ++i)
        blocks[b * of_sequence + i] = static_cast<std::int32_t>(i * batch + b);
    write(table, std::span<const std::int32_t>(blocks));
  }
  // Uncalibrated: 1, which engines take by default as well (vLLM with --kv-cache-dtype fp8).
  if (const sim::BufferId scales = plan_.find(sim::buffer_names::kv_scales); scales != sim::kNoBuffer) {
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
  report.memory_timeline = measured_timeline(plan_, memory_, stamps);
}

std::string software_version() {
  return "ridgepoint " RIDGEPOINT_VERSION;
}

}  // namespace runtime
