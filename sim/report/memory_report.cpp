#include "sim/report/memory_report.h"

namespace sim {
namespace {

StepMemory step_memory(const Plan& plan, std::size_t program, Step step, std::size_t max_points) {
  const MemoryPlan memory = plan_memory(plan, program, Addresses::none, step);
  StepMemory s;
  s.program = program;
  s.ledger = memory_ledger(plan, memory, 0);
  for (const MemoryLine& line : s.ledger) s.peak += line.bytes;
  for (const LiveBuffer& live : live_at(plan, memory, memory.peak_time)) {
    const Buffer& b = plan.buffer(live.buffer);
    s.at_peak.push_back({b.name, b.buffer_class, live.bytes, live.instances});
  }
  s.timeline = memory_timeline(plan, memory, max_points);
  return s;
}

}  // namespace

std::vector<MemoryLine> memory_ledger(const Plan& plan, const MemoryPlan& memory, std::int32_t rank) {
  const DeviceMemory device = device_memory(plan, memory);
  std::vector<MemoryLine> lines;
  for (const BufferClass c : kAll<BufferClass>)
    if (const Bytes b = memory.at_peak[c]; b.value > 0) lines.push_back({std::string(name(c)), rank, b});
  const Bytes copies = device.live - memory.live_peak;
  if (copies.value > 0) lines.push_back({"copies", rank, copies});
  const bool planned = plan.scenario.implementation.memory.allocator == AllocatorKind::planned;
  lines.push_back({planned ? "packing" : "allocator", rank, device.reserved - device.live});
  if (device.context.value > 0) lines.push_back({"context", rank, device.context});
  return lines;
}

std::size_t fullest_program(const Plan& plan) {
  std::size_t fullest = 0;
  Bytes most;
  plan_memory_of_all(plan, Addresses::none, [&](const MemoryPlan& memory) {
    if (memory.live_peak <= most) return;
    most = memory.live_peak;
    fullest = memory.program;
  });
  return fullest;
}

MemoryReport memory_report(const Plan& plan, std::size_t program, std::size_t max_points) {
  return {step_memory(plan, program, Step::first, max_points),
          step_memory(plan, program, Step::later, max_points)};
}

}  // namespace sim
