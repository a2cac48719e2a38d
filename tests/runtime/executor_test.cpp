#include "runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "runtime/error.h"
#include "runtime/run.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

using runtime::Executor;

// A device whose kernels do nothing: what remains is the executor's own time.
class IdleDevice final : public runtime::Device {
 public:
  std::string name() const override { return "idle"; }
  std::span<const sim::DType> dtypes() const override { return {}; }
  bool supports(const sim::Operation&, std::span<const sim::DType>) const override { return true; }
  sim::Bytes available() const override { return {}; }
  sim::Bytes in_use() const override { return {}; }
  std::byte* allocate(sim::Bytes size) override {
    memory_.resize(static_cast<std::size_t>(size.value));
    return memory_.data();
  }
  void release(std::byte*, sim::Bytes) noexcept override {}
  sim::Bytes resident(const std::byte*, sim::Bytes size) const override { return size; }
  void copy_to_device(std::byte*, std::span<const std::byte>) override {}
  void copy_from_device(std::span<std::byte>, const std::byte*) override {}
  void run(const runtime::BoundOperation&, const runtime::RunSettings&) override {}
  void record(std::size_t index) override {
    if (index >= stamps_.size()) stamps_.resize(2 * index + 1);
    stamps_[index] = std::chrono::steady_clock::now();
  }
  void synchronise() override {}
  void stamps(std::span<double> seconds) const override {
    for (std::size_t i = 0; i < seconds.size(); ++i)
      seconds[i] = std::chrono::duration<double>(stamps_[i] - stamps_[0]).count();
  }

 private:
  std::vector<std::byte> memory_;
  std::vector<std::chrono::steady_clock::time_point> stamps_;
};

// Four floats x and four floats y, one block of the given operations, run once.
sim::Plan plan_of(std::vector<sim::Operation> operations) {
  sim::Plan plan;
  plan.groups = {{sim::Axis::data, 1, 1}};
  for (const char* name : {"x", "y"})
    plan.buffers.push_back({.name = name,
                            .buffer_class = sim::BufferClass::activation,
                            .dtype = sim::DType::fp32,
                            .shape = {4},
                            .lifetime = sim::Lifetime::plan});
  plan.blocks = {{"block", std::move(operations)}};
  sim::Program program;
  program.role = "stage 0";
  program.actions.emplace_back();  // block 0, forward
  program.sections = {{"step", 0, 1}};
  plan.programs = {program};
  return plan;
}

constexpr sim::BufferId kX = 0, kY = 1;

sim::Operation operation(std::string id, sim::OpKind kind, std::vector<sim::Operand> operands) {
  sim::Operation op;
  op.id = std::move(id);
  op.kind = kind;
  op.dtype = sim::DType::fp32;
  op.dims.rows = 1;
  op.dims.cols = 4;
  op.operands = std::move(operands);
  op.group = 0;
  return op;
}

}  // namespace

TEST_CASE("Durations of a section's rows add up to the section's time") {
  const sim::Scenario scenario = tests::training(tests::small_gpt());
  runtime::Run run(scenario, 1);
  run.fill_parameters(tests::drawn(scenario.model), 1);
  const runtime::SectionTiming timing = run.executor().run(0, {});
  const double sum = std::accumulate(timing.duration.begin(), timing.duration.end(), 0.0);
  // Differences of consecutive stamps telescope; what is left is the rounding of doubles.
  const double rounding = static_cast<double>(run.executor().stamps().size()) *
                          std::numeric_limits<double>::epsilon() * timing.seconds;
  CHECK(std::abs(sum - timing.seconds) <= rounding);
}

TEST_CASE("Every operation of the program runs and is counted under its phase and id") {
  const sim::Scenario scenario = tests::training(tests::small_llama());
  runtime::Run run(scenario, 1);
  run.fill_parameters(tests::drawn(scenario.model), 1);
  const runtime::SectionTiming timing = run.executor().run(0, {});

  std::map<std::pair<sim::Phase, std::string>, std::int64_t> expected;
  for (const sim::Action& action : run.executor().program().actions)
    for (const sim::Operation& op : run.plan().blocks[static_cast<std::size_t>(action.block)].operations)
      ++expected[{action.phase, op.id}];
  REQUIRE(run.executor().rows().size() == expected.size());
  for (std::size_t r = 0; r < expected.size(); ++r) {
    const runtime::RowKey& key = run.executor().rows()[r];
    INFO(key.id);
    CHECK(timing.count[r] == expected.at({key.phase, key.id}));
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which multiply the time
TEST_CASE("The executor's own time is below a microsecond an operation") {
  const sim::Plan plan = sim::make_plan(tests::training(tests::small_gpt()));
  const sim::MemoryPlan memory = sim::plan_memory(plan);
  IdleDevice device;
  runtime::Communicator communicator;
  Executor executor(plan, memory, device, communicator);
  double best = std::numeric_limits<double>::max();
  for (int repetition = 0; repetition < 50; ++repetition) best = std::min(best, executor.run(0, {}).seconds);
  CHECK(best / static_cast<double>(executor.stamps().size() - 1) < 1e-6);
}
#endif

TEST_CASE("Collectives over one rank leave what a computation without them gives") {
  const auto device = runtime::make_cpu_device(1);
  runtime::Communicator communicator;
  const sim::Operand x{kX, sim::Access::update}, read_x{kX, sim::Access::read}, y{kY, sim::Access::write};
  const sim::Plan plan = plan_of({operation("double", sim::OpKind::add, {x, read_x, read_x}),
                                  operation("all_reduce", sim::OpKind::all_reduce, {x}),
                                  operation("all_gather", sim::OpKind::all_gather, {y, read_x}),
                                  operation("reduce_scatter", sim::OpKind::reduce_scatter, {y, read_x}),
                                  operation("all_to_all", sim::OpKind::all_to_all, {y, read_x})});
  const sim::MemoryPlan memory = sim::plan_memory(plan);
  Executor executor(plan, memory, *device, communicator);
  const auto floats = [&](sim::BufferId buffer) {
    return reinterpret_cast<float*>(executor.instance(buffer).data());
  };
  std::iota(floats(kX), floats(kX) + 4, 1.0f);
  executor.run(0, {});
  for (int i = 0; i < 4; ++i) {
    CHECK(floats(kX)[i] == 2.0f * static_cast<float>(i + 1));
    CHECK(floats(kY)[i] == 2.0f * static_cast<float>(i + 1));
  }
}

TEST_CASE("One rank alone refuses groups of several and has nobody to send to") {
  runtime::Communicator communicator;
  std::vector<std::byte> bytes(4);
  CHECK_THROWS_AS(
      communicator.all_reduce({{0, 1}, 0}, std::vector<runtime::MutableBytes>{bytes}, sim::DType::fp32),
      std::logic_error);
  CHECK_THROWS_AS(communicator.send(1, 0, bytes), std::logic_error);
}

TEST_CASE("An operation without a kernel is refused with its name before anything runs") {
  const auto device = runtime::make_cpu_device(1);
  runtime::Communicator communicator;
  const sim::Operand y{kY, sim::Access::write}, x{kX, sim::Access::read};
  const sim::Plan plan = plan_of({operation("layer.dequantise", sim::OpKind::dequantise, {y, x, x})});
  const sim::MemoryPlan memory = sim::plan_memory(plan);
  try {
    Executor(plan, memory, *device, communicator);
    FAIL("it was taken");
  } catch (const runtime::NoDevice& e) {
    CHECK(std::string(e.what()).find("dequantise") != std::string::npos);
  }
}
