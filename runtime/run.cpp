#include "runtime/run.h"

#include <stdexcept>

#include "runtime/error.h"
#include "runtime/initial_values.h"
#include "runtime/measured.h"
#include "runtime/this_machine.h"
#include "sim/dtype.h"
#include "sim/format.h"

namespace runtime {
namespace {

void require_runnable(const sim::Scenario& scenario) {
  if (const int devices = scenario.strategy.devices(); devices > 1)
    throw NoDevice("the strategy divides the work over " + std::to_string(devices) +
                   " devices, which can be predicted but not run here; this process is one");
  if (scenario.workload.dtype != sim::DType::fp32)
    throw NoDevice("the CPU computes in fp32; workload.dtype is " +
                   std::string(sim::name(scenario.workload.dtype)));
  if (scenario.workload.weights_dtype.value_or(sim::DType::fp32) != sim::DType::fp32 ||
      scenario.workload.kv_dtype.value_or(sim::DType::fp32) != sim::DType::fp32)
    throw NoDevice("workload.weights_dtype and workload.kv_dtype other than fp32 are predicted, not run");
  if (!scenario.implementation.runs_here)
    throw NoDevice("implementation " + scenario.implementation.name +
                   " can be predicted but not run here; ridgepoint can");
}

void require_fit(const sim::MemoryPlan& memory) {
  const sim::Bytes available = physical_memory();
  if (memory.arena > available)
    throw DoesNotFit("the plan needs " + sim::format(memory.arena) + ", this machine has " +
                     sim::format(available) + " of memory");
}

}  // namespace

Run::Run(const sim::Scenario& scenario, int threads) {
  require_runnable(scenario);
  plan_ = sim::make_plan(scenario);
  memory_ = sim::plan_memory(plan_);
  require_fit(memory_);
  device_ = make_cpu_device(threads);
  communicator_ = make_single_rank_communicator();
  executor_ = std::make_unique<Executor>(plan_, memory_, *device_, *communicator_);
}

std::vector<InstanceName> Run::instances_of(sim::BufferClass buffer_class) const {
  std::vector<InstanceName> names;
  for (const sim::Instance& instance : memory_.instances) {
    const sim::Buffer& buffer = plan_.buffers[static_cast<std::size_t>(instance.buffer)];
    const bool of_a_parameter =
        buffer_class == sim::BufferClass::parameter || buffer.parameter != sim::kNoBuffer;
    if (buffer.buffer_class == buffer_class && of_a_parameter)
      names.push_back({instance.buffer, instance.layer});
  }
  return names;
}

std::size_t Run::elements_of(InstanceName name) const {
  return executor_->instance(name.buffer, name.layer).size() / sizeof(float);
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
    write(name.buffer, std::span<const float>(values), name.layer);
  }
  if (const sim::BufferId table = plan_.find(sim::buffer_names::rope_table); table != sim::kNoBuffer) {
    values.resize(elements_of({table}));
    fill_rope_table(plan_.scenario.model, values);
    write(table, std::span<const float>(values));
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
  report.memory = measured_ledger(memory_, executor_->arena());
  report.memory_timeline = measured_timeline(plan_, memory_, stamps);
}

std::string software_version() {
  return "ridgepoint " RIDGEPOINT_VERSION;
}

}  // namespace runtime
