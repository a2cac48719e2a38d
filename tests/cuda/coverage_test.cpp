// The table of runtime/README.md that says which kinds of operations run where: made here from the registries
// of kernels and from what is timed to calibrate, and compared with what stands there.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "runtime/calibrate.h"
#include "runtime/cpu/kernel_table.h"
#include "runtime/cuda/operations.h"
#include "runtime/sample_runs.h"
#include "sim/plan/legality.h"
#include "sim/plan/memory.h"
#include "sim/plan/programs.h"
#include "sim/scenario/preset.h"
#include "source_folder.h"
#include "tests/support/catch.h"

namespace {

using sim::OpKind;

constexpr std::string_view kHead =
    "| kind | CPU | CUDA | calibrated | predicted only |\n|---|---|---|---|---|\n";

std::string join(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : ", ") + part;
  return all;
}

constexpr sim::DType kTypes[] = {sim::DType::fp32, sim::DType::bf16, sim::DType::fp16, sim::DType::fp8};

sim::Hardware hardware_of_any_type() {
  sim::Hardware hardware;
  for (const sim::DType type : kTypes) hardware.peak[type] = sim::tflops(1);
  hardware.memory = sim::gib(16);
  hardware.memory_bandwidth = sim::gb_per_s(100);
  return hardware;
}

std::set<OpKind> kinds_of(const std::vector<sim::Scenario>& scenarios) {
  std::set<OpKind> kinds;
  for (const sim::Scenario& scenario : scenarios)
    for (const sim::Block& block : sim::make_plan(scenario).blocks)
      for (const sim::Operation& op : block.operations) kinds.insert(op.kind);
  return kinds;
}

std::set<OpKind> kinds_timed_on_gpus() {
  const sim::Hardware hardware = hardware_of_any_type();
  std::set<OpKind> kinds;
  for (const auto& [type, operations] : runtime::gpu_measurements(kTypes, hardware).operations)
    for (const runtime::SingleOperation& single : operations) kinds.insert(single.operation().kind);
  kinds.merge(kinds_of(runtime::gpu_calibrating_runs(hardware)));
  return kinds;
}

std::string coverage() {
  std::set<OpKind> on_cpu;
  for (const runtime::SingleOperation& single : runtime::calibrated_operations())
    on_cpu.insert(single.operation().kind);
  on_cpu.merge(kinds_of(runtime::calibrating_runs(hardware_of_any_type())));
  const std::set<OpKind> on_gpus = kinds_timed_on_gpus();
  std::string table(kHead);
  for (const sim::KindInfo& info : sim::kKinds) {
    std::vector<std::string> cpu, calibrated;
    if (sim::is_collective(info.kind)) cpu.emplace_back("over ranks");
    for (const sim::DType type : runtime::cpu_types(info.kind)) cpu.emplace_back(sim::name(type));
    const bool cuda = info.kind == OpKind::zero || runtime::kernel_of(info.kind) != nullptr;
    if (on_cpu.count(info.kind) > 0) calibrated.emplace_back("CPU");
    if (on_gpus.count(info.kind) > 0) calibrated.emplace_back("CUDA");
    table += "| `" + std::string(sim::name(info.kind)) + "` | " + join(cpu) + " | " + (cuda ? "yes" : "") +
             " | " + join(calibrated) + " | " + (cpu.empty() && !cuda ? "yes" : "") + " |\n";
  }
  return table;
}

std::string table_of_readme() {
  std::ifstream in(RIDGEPOINT_SOURCE_DIR "/runtime/README.md");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::size_t begin = text.find(kHead);
  if (begin == std::string::npos) return {};
  std::size_t end = begin;
  while (end < text.size() && text[end] == '|') end = text.find('\n', end) + 1;
  return text.substr(begin, end - begin);
}

}  // namespace

namespace {

void check_that_all_run(const std::vector<sim::Scenario>& scenarios, sim::Bytes within) {
  REQUIRE(!scenarios.empty());
  for (const sim::Scenario& scenario : scenarios) {
    CAPTURE(scenario.model.name, sim::name(scenario.workload.optimizer));
    CHECK(sim::validate(scenario).empty());
    const sim::Plan plan = sim::make_plan(scenario);
    CHECK(sim::plan_memory(plan, 0, sim::Addresses::none).live_peak < within);
    for (const sim::Block& block : plan.blocks)
      for (const sim::Operation& op : block.operations) {
        CAPTURE(op.id);
        std::vector<sim::DType> types;
        for (const sim::Operand& operand : op.operands)
          types.push_back(operand.buffer == sim::kNoBuffer
                              ? sim::DType::fp32
                              : plan.buffers[static_cast<std::size_t>(operand.buffer)].dtype);
        CHECK(runtime::has_kernel(op, types));
      }
  }
}

}  // namespace

TEST_CASE("What a GPU's calibration runs has kernels for all operations, and fits an A100 of 40 GB",
          "[plan]") {
  check_that_all_run(runtime::gpu_calibrating_runs(sim::load_hardware_preset("a100-sxm-40gb")), sim::gib(36));
}

TEST_CASE("What predictions of a GPU are judged by has kernels for all operations, and fits an H100",
          "[plan]") {
  std::vector<sim::Scenario> scenarios;
  for (const sim::ScenarioSeries& series : sim::load_series_preset("gpu_configurations").series)
    for (const sim::SeriesPoint& point : series.points) scenarios.push_back(point.scenario);
  check_that_all_run(scenarios, sim::gib(74));
}

TEST_CASE("The README's table of kinds is what the registries of kernels and of calibrations say") {
  const std::string made = coverage();
  INFO("the table is\n" << made);
  CHECK(table_of_readme() == made);
}
