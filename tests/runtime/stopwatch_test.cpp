// Operations timed alone, and under load without a pause.
#include "runtime/stopwatch.h"

#include <stop_token>

#include "runtime/calibrate.h"
#include "tests/support/catch.h"

namespace {

constexpr sim::Bytes kMemory{8 << 20};

struct Timed {
  std::unique_ptr<runtime::Device> device = runtime::make_cpu_device(1);
  runtime::Stopwatch stopwatch{*device, kMemory, kMemory, sim::DType::fp32, {0.002, 20}};
};

}  // namespace

TEST_CASE("an operation's least time is at most its median, and many in a row take about as long each") {
  Timed timed;
  runtime::SingleOperation single = runtime::norm(sim::OpKind::rmsnorm, 256, 512);
  const runtime::Timing alone = timed.stopwatch.time_cached(single);
  CHECK(alone.least > 0);
  CHECK(alone.least <= alone.median);
  const runtime::Timing in_a_row = timed.stopwatch.time_in_a_row(single, 10, false);
  CHECK(in_a_row.least <= in_a_row.median);
  // The machine may be busy; the shortest of each is what the work takes.
  CHECK(in_a_row.least < 10 * alone.least);
  CHECK(alone.least < 10 * in_a_row.least);
}

TEST_CASE("a load lasts as long as it is asked to, and its rate is work over time, a stop leaves nothing") {
  Timed timed;
  const runtime::SingleOperation single = runtime::product(sim::OpKind::matmul, 128, 128, 128);
  const auto begin = std::chrono::steady_clock::now();
  const auto load =
      runtime::measure_sustained_load(*timed.device, timed.stopwatch, single, sim::Seconds{0.2}, {});
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(200));
  REQUIRE(load);
  CHECK(load->lasted.value == 0.2);
  CHECK(load->burst.value > 0);
  CHECK(load->sustained.value > 0);
  CHECK(load->sm_clock_mhz == 0);  // a CPU's driver says nothing
  std::stop_source stop;
  stop.request_stop();
  CHECK_FALSE(runtime::measure_sustained_load(*timed.device, timed.stopwatch, single, sim::Seconds{10},
                                              stop.get_token()));
}

TEST_CASE("single operations in fp8 multiply fp8 into bf16, tf32 multiplies what is stored in fp32") {
  using sim::DType;
  const auto types = [](runtime::SingleOperation single, DType dtype) {
    single.computing_in(dtype);
    std::vector<DType> all{single.operation().dtype};
    for (const sim::Operand& operand : single.operation().operands)
      if (operand.buffer != sim::kNoBuffer) all.push_back(single.buffer(operand.buffer).dtype);
    return all;
  };
  const auto forward = runtime::product(sim::OpKind::matmul, 16, 16, 16),
             weight = runtime::product(sim::OpKind::matmul_backward_weight, 16, 16, 16),
             norm = runtime::norm(sim::OpKind::rmsnorm, 16, 16);
  CHECK(types(forward, DType::fp8) == std::vector{DType::fp8, DType::bf16, DType::fp8, DType::fp8});
  CHECK(types(weight, DType::fp8) == std::vector{DType::fp8, DType::bf16, DType::fp8, DType::fp8});
  CHECK(types(forward, DType::tf32) == std::vector{DType::tf32, DType::fp32, DType::fp32, DType::fp32});
  CHECK(types(forward, DType::fp16) == std::vector{DType::fp16, DType::fp16, DType::fp16, DType::fp16});
  CHECK(types(norm, DType::fp8) ==
        std::vector{DType::fp32, DType::bf16, DType::fp32, DType::bf16, DType::bf16});
}

TEST_CASE("products of experts timed alone are given one row or more each, and count every weight as read") {
  const std::int64_t experts = 2, N = 512, K = 256;
  for (const std::int64_t of_each : {1, 12}) {
    const std::int64_t M = experts * of_each;
    const sim::Work work = runtime::grouped_product(sim::OpKind::grouped_matmul, M, experts, N, K).work();
    CHECK(work.memory().value == 4 * (M * N + M * K + experts * N * K));
  }
}
