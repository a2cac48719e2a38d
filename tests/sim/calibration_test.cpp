#include "sim/cost/calibration.h"

#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "sim/cost/predict.h"
#include "sim/cost/price.h"
#include "sim/scenario/preset.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

Hardware laptop() {
  Hardware h;
  h.name = "this-machine";
  h.display_name = "a laptop";
  h.peak = {{DType::fp32, tflops(0.2)}};
  h.memory = gib(16);
  h.memory_bandwidth = gb_per_s(20);
  h.launch = us(5);
  h.source = "made up";
  return h;
}

Operation product(std::int64_t m, std::int64_t n, std::int64_t k) {
  Operation op;
  op.id = "product";
  op.kind = OpKind::matmul;
  op.dtype = DType::fp32;
  op.dims = {.rows = m, .cols = n, .inner = k};
  return op;
}

Work product_work(std::int64_t m, std::int64_t n, std::int64_t k) {
  Work w;
  w.flops = {2.0 * static_cast<double>(m * n * k)};
  w.read = {4 * (m * k + n * k)};
  w.written = {4 * m * n};
  return w;
}

// A machine whose products take `ratio(m, n, k)` times their roofline.
template <class Ratio>
Calibration calibrate(Ratio ratio) {
  Calibration c;
  c.hardware = laptop();
  c.launch = c.hardware.launch;
  for (const std::int64_t m : {1, 4, 16, 64, 256, 1024})
    for (const std::int64_t n : {256, 1024, 4096})
      for (const std::int64_t k : {256, 1024, 4096}) {
        KernelSample s = kernel_shape(product(m, n, k), {}, product_work(m, n, k));
        s.median = roofline_time(c.hardware, c.launch, s.dtype, s.flops, s.bytes) * ratio(m, n, k);
        s.spread = 0.02;
        c.samples.push_back(s);
      }
  set_residuals(c);
  return c;
}

// Few rows stream the weights at the memory's rate, many rows reach less of the arithmetic.
double skinny_or_not(std::int64_t m, std::int64_t, std::int64_t) {
  return m <= 4 ? 1.1 : m >= 256 ? 1.6 : 1.3;
}

Price price_of(const Calibration& c, std::int64_t m, std::int64_t n, std::int64_t k) {
  return price(product_work(m, n, k), product(m, n, k), {}, c.hardware, &c);
}

TEST_CASE("a shape that was measured is predicted with its measured time") {
  const Calibration c = calibrate(skinny_or_not);
  for (const KernelSample& s : c.samples) {
    const Price p = price_of(c, s.rows, s.cols, s.inner);
    CHECK(p.seconds.value == Approx(s.median.value).epsilon(1e-12));
    CHECK(p.provenance == Provenance::calibrated);
  }
}

TEST_CASE("a product of one row is predicted from products of few rows, not from those of a thousand") {
  const Calibration c = calibrate(skinny_or_not);
  for (const auto& [n, k] : {std::pair{768, 768}, {2304, 768}, {3072, 768}, {512, 2048}}) {
    const auto ratio = [&, n = n, k = k](std::int64_t m) {
      const Work w = product_work(m, n, k);
      return price_of(c, m, n, k).seconds /
             roofline_time(c.hardware, c.launch, DType::fp32, w.flops, w.memory());
    };
    CHECK(ratio(1) == Approx(1.1).epsilon(0.05));
    CHECK(ratio(1024) == Approx(1.6).epsilon(0.05));
    CHECK(price_of(c, 1, n, k).provenance == Provenance::interpolated);
  }
}

TEST_CASE("how a ratio goes with the rows is followed to the edge of what was measured, and not beyond") {
  const auto law = [](std::int64_t m) { return 1.5 * std::pow(static_cast<double>(m), 0.3); };
  Calibration c = calibrate([&](std::int64_t m, std::int64_t, std::int64_t) { return law(m); });
  c.hardware.is_cpu = true;
  const auto ratio = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    return calibrated_ratio(c, kernel_shape(product(m, n, k), {}, product_work(m, n, k)))->ratio;
  };
  // In the mean of those around it, one of few rows would take a quarter or a third longer than it does.
  for (const std::int64_t m : {1, 16, 1024}) CHECK(ratio(m, 2048, 2048) == Approx(law(m)).epsilon(0.01));
  CHECK(ratio(1, 8192, 2048) == Approx(law(1)).epsilon(0.05));
  CHECK(ratio(1, 50'000, 700) == Approx(law(1)).epsilon(0.05));
  CHECK(ratio(65536, 1024, 1024) <= law(1024) * (1 + 1e-12));
}

TEST_CASE("a sample of a CPU that something disturbed does not decide alone of the shapes near it") {
  Calibration c = calibrate([](std::int64_t, std::int64_t, std::int64_t) { return 1.5; });
  c.hardware.is_cpu = true;
  for (KernelSample& s : c.samples)
    if (s.rows == 64 && s.cols == 1024 && s.inner == 1024) s.median = s.median * 2;
  const KernelSample near = kernel_shape(product(80, 1024, 1024), {}, product_work(80, 1024, 1024));
  CHECK(calibrated_ratio(c, near)->ratio > 1.5);
  CHECK(calibrated_ratio(c, near)->ratio < 1.5 * std::sqrt(2));
}

TEST_CASE("products of experts are predicted from those of as many rows for each, however many experts") {
  const auto of_experts = [](std::int64_t experts, std::int64_t each) {
    Operation op = product(experts * each, 1024, 256);
    op.kind = OpKind::grouped_matmul;
    op.dims.groups = experts;
    Work w = product_work(experts * each, 1024, 256);
    w.read = {4 * experts * (each * 256 + 1024 * 256)};
    return kernel_shape(op, {}, w);
  };
  Calibration c;
  c.hardware = laptop();
  c.hardware.is_cpu = true;
  c.launch = c.hardware.launch;
  for (const std::int64_t each : {1, 32, 512}) {
    KernelSample s = of_experts(8, each);
    s.median = roofline_time(c.hardware, c.launch, s.dtype, s.flops, s.bytes) * (each == 32 ? 2.0 : 1.2);
    c.samples.push_back(s);
  }
  CHECK(calibrated_ratio(c, of_experts(128, 32))->ratio == Approx(2).epsilon(0.05));
  CHECK(calibrated_ratio(c, of_experts(2, 512))->ratio == Approx(1.2).epsilon(0.05));
}

TEST_CASE(
    "products of experts in fewer bits are predicted from their own samples, else from plain products in the "
    "same type, else from those of experts in whole weights") {
  Calibration c;
  c.hardware = laptop();
  c.launch = c.hardware.launch;
  const auto shape = [](OpKind kind, std::optional<DType> stored) {
    Operation op = product(64, 1024, 1024);
    op.kind = kind;
    return kernel_shape(op, {}, product_work(64, 1024, 1024), {}, stored);
  };
  const auto add = [&](OpKind kind, std::optional<DType> stored, double ratio) {
    KernelSample s = shape(kind, stored);
    s.median = roofline_time(c.hardware, c.launch, s.dtype, s.flops, s.bytes) * ratio;
    c.samples.push_back(s);
  };
  const KernelSample asked = shape(OpKind::grouped_matmul, DType::q4_k);
  add(OpKind::matmul, std::nullopt, 1.1);
  CHECK(calibrated_ratio(c, asked)->ratio == Approx(1.1));
  add(OpKind::grouped_matmul, std::nullopt, 1.3);
  CHECK(calibrated_ratio(c, asked)->ratio == Approx(1.3));
  add(OpKind::matmul, DType::q4_k, 1.7);
  CHECK(calibrated_ratio(c, asked)->ratio == Approx(1.7));
  add(OpKind::grouped_matmul, DType::q4_k, 2.3);
  CHECK(calibrated_ratio(c, asked)->ratio == Approx(2.3));
}

TEST_CASE("beyond the measured shapes the ratio at the edge is held") {
  const Calibration c = calibrate(skinny_or_not);
  const Work w = product_work(65536, 4096, 4096);
  CHECK(price_of(c, 65536, 4096, 4096).seconds /
            roofline_time(c.hardware, c.launch, DType::fp32, w.flops, w.memory()) ==
        Approx(1.6).epsilon(0.01));
}

TEST_CASE("kinds that stream are interpolated along their bytes") {
  Calibration c;
  c.hardware = laptop();
  c.launch = us(5);
  const auto sample = [&](std::int64_t rows, double ratio) {
    Operation op{.id = "add", .kind = OpKind::add, .dtype = DType::fp32, .dims = {.rows = rows, .cols = 64}};
    Work w;
    w.read = {rows * 64 * 8};
    w.written = {rows * 64 * 4};
    KernelSample s = kernel_shape(op, {}, w);
    s.median = roofline_time(c.hardware, c.launch, s.dtype, s.flops, s.bytes) * ratio;
    return s;
  };
  c.samples = {sample(100, 0.5), sample(10000, 2.0)};
  CHECK(calibrated_ratio(c, sample(1000, 1))->ratio == Approx(1.0));  // halfway between, in logarithms
  CHECK(calibrated_ratio(c, sample(10, 1))->ratio == Approx(0.5));
  CHECK(calibrated_ratio(c, sample(1000000, 1))->ratio == Approx(2.0));
  CHECK(calibrated_ratio(c, sample(100, 1))->exact);
  Operation other{.id = "gelu", .kind = OpKind::gelu, .dtype = DType::fp32, .dims = {.rows = 10, .cols = 64}};
  CHECK_FALSE(calibrated_ratio(c, kernel_shape(other, {}, {})).has_value());
}

TEST_CASE("between two working sets the ratio is interpolated along their logarithm, and held beyond them") {
  Calibration c;
  c.hardware = laptop();
  c.launch = us(5);
  const Operation op{
      .id = "add", .kind = OpKind::add, .dtype = DType::fp32, .dims = {.rows = 100, .cols = 64}};
  Work w;
  w.read = {100 * 64 * 8};
  w.written = {100 * 64 * 4};
  const auto sample = [&](std::int64_t working_set, double ratio) {
    KernelSample s = kernel_shape(op, {}, w, {working_set});
    s.median = roofline_time(c.hardware, c.launch, s.dtype, s.flops, s.bytes) * ratio;
    return s;
  };
  c.samples = {sample(1 << 20, 1.0), sample(1 << 30, 4.0)};
  const auto at = [&](std::int64_t working_set) { return *calibrated_ratio(c, sample(working_set, 1)); };
  CHECK(at(1 << 25).ratio == Approx(2.0));  // halfway between, in logarithms
  CHECK(at(1 << 10).ratio == Approx(1.0));
  CHECK(at(std::int64_t{1} << 40).ratio == Approx(4.0));
  CHECK(at(0).ratio == Approx(1.0));  // not known: as cached as was measured
  // A sample to which it makes no difference counts for every working set.
  c.samples = {sample(0, 3.0)};
  CHECK(at(1 << 25).ratio == Approx(3.0));
}

TEST_CASE(
    "a working set read in turn comes from memory but for as much as the last cache holds, and the times of "
    "both add up") {
  Calibration c;
  c.hardware = laptop();
  c.hardware.last_level_cache = gib(1. / 1024 * 32);
  CHECK(share_from_memory(c, gib(1. / 1024 * 16)) == 0);
  CHECK(share_from_memory(c, gib(1. / 1024 * 32)) == 0);
  CHECK(share_from_memory(c, gib(1. / 1024 * 64)) == Approx(0.5));
  CHECK(share_from_memory(c, gib(1. / 1024 * 320)) == Approx(0.9));
  CHECK(share_from_memory(c, {}) == 1);
  Calibration unknown;
  unknown.hardware = laptop();
  CHECK(share_from_memory(unknown, gib(1. / 1024 * 1)) == 1);
  c.launch = us(5);
  const Operation op{
      .id = "add", .kind = OpKind::add, .dtype = DType::fp32, .dims = {.rows = 100, .cols = 64}};
  Work w;
  w.read = {100 * 64 * 12};
  const auto sample = [&](Bytes working_set, double ratio) {
    KernelSample s = kernel_shape(op, {}, w, working_set);
    s.median = roofline_time(c.hardware, c.launch, s.dtype, s.flops, s.bytes) * ratio;
    return s;
  };
  // The larger has 31/32 of its operands from memory.
  c.samples = {sample(gib(1. / 1024 * 16), 1.0), sample(gib(1.), 4.0)};
  CHECK(calibrated_ratio(c, sample(gib(1. / 1024 * 24), 1))->ratio == Approx(1.0));
  CHECK(calibrated_ratio(c, sample(gib(1. / 1024 * 64), 1))->ratio == Approx(1 + 3 * 0.5 * 32 / 31));
  CHECK(calibrated_ratio(c, sample(gib(1. / 1024 * 256), 1))->ratio == Approx(1 + 3 * 0.875 * 32 / 31));
}

TEST_CASE("where it was measured what comes from memory, that counts and not the size of the cache") {
  Calibration c;
  c.hardware.last_level_cache = gib(1. / 1024 * 32);
  c.cache_shares = {{gib(1. / 1024 * 8), 0}, {gib(1. / 1024 * 24), 0.2}, {gib(1. / 1024 * 64), 0.9}};
  const auto share = [&](double mib) { return share_from_memory(c, gib(mib / 1024)); };
  CHECK(share(4) == 0);
  CHECK(share(8) == 0);
  CHECK(share(16) == Approx(0.1));
  CHECK(share(24) == Approx(0.2));
  CHECK(share(44) == Approx(0.55));
  CHECK(share(64) == Approx(0.9));
  CHECK(share(128) == Approx(0.95));  // a tenth of 64 MiB is kept
  c.cache_shares.back().from_memory = 1;
  CHECK(share(128) == 1);
}

TEST_CASE("a slower memory slows what comes from memory, not what stays in caches") {
  Calibration c = calibrate([](auto...) { return 1.0; });
  c.hardware.last_level_cache = gib(1. / 1024 * 32);
  const auto seconds = [&](Bytes working_set) {
    return price(product_work(1, 4096, 4096), product(1, 4096, 4096), {}, c.hardware, &c, nullptr,
                 working_set)
        .seconds.value;
  };
  const double cached = seconds(gib(1. / 1024 * 8)), from_memory = seconds(gib(1. / 1024 * 500));
  c.slowdown.memory = 3;
  CHECK(seconds(gib(1. / 1024 * 8)) == Approx(cached));
  CHECK(seconds(gib(1. / 1024 * 500)) > 2.5 * from_memory);
}

TEST_CASE("products of weights in fewer bits have samples of their own") {
  Calibration c = calibrate(skinny_or_not);
  KernelSample narrow =
      kernel_shape(product(64, 1024, 1024), {}, product_work(64, 1024, 1024), {}, DType::int8);
  CHECK(calibrated_ratio(c, narrow)->ratio == Approx(1.3));  // as of whole ones, while there are none
  narrow.median = roofline_time(c.hardware, c.launch, narrow.dtype, narrow.flops, narrow.bytes) * 7;
  c.samples.push_back(narrow);
  CHECK(calibrated_ratio(c, narrow)->ratio == Approx(7));
  narrow.stored.reset();
  CHECK(calibrated_ratio(c, narrow)->ratio == Approx(1.3));
}

TEST_CASE("what stores fewer bits than it computes in is told by its narrowest operand, masks apart") {
  Scenario scenario = test::training(test::gpt2_124m(), 64, 1, 4, DType::fp32);
  scenario.implementation.dropout = true;
  const auto types = [&] {
    std::map<OpKind, std::optional<DType>> stored;
    const Plan plan = make_plan(scenario);
    for (const Block& block : plan.blocks)
      for (const Operation& op : block.operations) stored[op.kind] = narrow_storage(plan, op);
    return stored;
  };
  for (const auto& [kind, stored] : types()) {
    CAPTURE(name(kind));
    CHECK_FALSE(stored);
  }
  scenario.workload.dtype = DType::bf16;
  auto in_bf16 = types();
  CHECK(in_bf16.at(OpKind::gelu) == DType::bf16);
  CHECK(in_bf16.at(OpKind::layernorm_backward) == DType::bf16);
  CHECK(in_bf16.at(OpKind::dropout) == DType::bf16);
  CHECK_FALSE(in_bf16.at(OpKind::matmul));  // computes in bf16
}

TEST_CASE("what stores fewer bits is predicted from its like, and from other samples while there are none") {
  Calibration c = calibrate(skinny_or_not);
  const auto add_samples = [&](std::optional<DType> stored, double ratio) {
    for (const std::int64_t bytes : {1 << 12, 1 << 20}) {
      KernelSample s;
      s.kind = OpKind::gelu;
      s.stored = stored;
      s.bytes = {bytes};
      s.median = roofline_time(c.hardware, c.launch, s.dtype, s.flops, s.bytes) * ratio;
      c.samples.push_back(s);
    }
  };
  KernelSample shape;
  shape.kind = OpKind::gelu;
  shape.bytes = {1 << 16};
  shape.stored = DType::bf16;
  add_samples({}, 2);
  CHECK(calibrated_ratio(c, shape)->ratio == Approx(2));
  add_samples(DType::bf16, 5);
  CHECK(calibrated_ratio(c, shape)->ratio == Approx(5));
  shape.stored.reset();
  CHECK(calibrated_ratio(c, shape)->ratio == Approx(2));
}

TEST_CASE("a step's band is narrower than those of its operations, which err each for itself") {
  const Calibration c = calibrate([](std::int64_t m, std::int64_t n, std::int64_t k) {
    return 1.5 + 0.5 * std::sin(static_cast<double>(3 * m + 5 * n + 7 * k));
  });
  Scenario s = test::training(load_model_preset("gpt-10m"), 256);
  s.hardware = c.hardware;
  s.workload.dtype = DType::fp32;
  const Report report = predict(s, &c);
  double low = 0, high = 0;
  for (const Row& row : report.rows) low += row.low.value, high += row.high.value;
  CHECK(report.step_low.value > low);
  CHECK(report.step_high.value < high);
  // Not narrower than what the same machine may differ from one time to another; what is known of its pace
  // says how much that is.
  CHECK(report.step_high / report.step_time > 1 + 0.8 * (kSteadyWithin - 1));
  Calibration sure = c;
  sure.slowdown.error = 0;
  const Report surer = predict(s, &sure);
  CHECK(surer.step_time == report.step_time);
  CHECK(surer.step_low > report.step_low);
  CHECK(surer.step_high < report.step_high);
  // Shapes that no sample has err each by itself, as the samples of which one was left out.
  std::map<OpKind, double> exact;
  double squares = 0;
  for (const Row& row : surer.rows) {
    const double error = (row.high - row.duration).value;
    if (row.provenance == Provenance::interpolated)
      squares += error * error;
    else
      exact[row.kind] += error;
  }
  REQUIRE(squares > 0);
  for (const auto& [kind, error] : exact) squares += error * error;
  CHECK((surer.step_high - surer.step_time).value == Approx(std::sqrt(squares)));
}

TEST_CASE("residuals are what leaving a sample out costs: none where the ratio is the same everywhere") {
  const Calibration even = calibrate([](auto...) { return 1.37; });
  CHECK(even.residual.p90 < 1e-9);
  const Calibration uneven = calibrate([](std::int64_t m, std::int64_t n, std::int64_t k) {
    return 1.5 + 0.5 * std::sin(static_cast<double>(3 * m + 5 * n + 7 * k));
  });
  CHECK(uneven.residual.median > 0.05);
  CHECK(uneven.residual.p90 >= uneven.residual.median);
  // The band of an interpolated price is the residual.
  const Price p = price_of(uneven, 100, 1000, 1000);
  CHECK(p.high / p.seconds == Approx(1 + uneven.residual.p90));
}

TEST_CASE("backward products have samples of their own, and forward's where they have none") {
  Calibration c = calibrate(skinny_or_not);
  Operation backward = product(1024, 4096, 4096);
  backward.kind = OpKind::matmul_backward_input;
  const KernelSample shape = kernel_shape(backward, {}, product_work(1024, 4096, 4096));
  CHECK(calibrated_ratio(c, shape)->ratio == Approx(1.6));
  CHECK_FALSE(calibrated_ratio(c, shape)->exact);
  KernelSample own = shape;
  own.median = roofline_time(c.hardware, c.launch, own.dtype, own.flops, own.bytes) * 2.5;
  c.samples.push_back(own);
  CHECK(calibrated_ratio(c, shape)->ratio == Approx(2.5));
}

TEST_CASE("a calibration's file reads back as it was written, and refuses what it does not know") {
  Calibration c = calibrate(skinny_or_not);
  c.device = "a laptop, 2 threads";
  c.date = "2026-01-01T00:00:00Z";
  c.software = "kernels 1";
  c.collectives = {{OpKind::all_reduce, 2, {1024}, us(3)}, {OpKind::send, 2, {4096}, us(5)}};
  c.cache_shares = {{{1 << 20}, 0}, {{1 << 22}, 0.75}};
  c.samples.front().groups = 8;
  c.samples.front().stored = DType::int8;
  const std::string json = to_json(c);
  CHECK(to_json(calibration_from_json(json, "c.json")) == json);
  const auto refused = [&](std::vector<CacheShare> shares, const char* message) {
    Calibration other = c;
    other.cache_shares = std::move(shares);
    CHECK_THROWS_WITH(calibration_from_json(to_json(other), "c.json"), contains(message));
  };
  refused({{{1 << 20}, 1.5}}, "\"cache_shares[0].from_memory\" must be 1 or less");
  refused({{{1 << 20}, 0}, {{1 << 20}, 0.5}}, "\"cache_shares.working_set_bytes\" must ascend");
  std::string wrong = json;
  wrong.replace(wrong.find("\"device\""), 8, "\"dveice\"");
  CHECK_THROWS_AS(calibration_from_json(wrong, "c.json"), PresetError);
  CHECK_THROWS_AS(calibration_from_json(json.substr(0, json.size() / 2), "c.json"), PresetError);
}

TEST_CASE(
    "a collective timed among as many ranks takes its time, between two sizes one on their line of "
    "logarithms") {
  Calibration c = calibrate(skinny_or_not);
  c.collectives = {{OpKind::all_reduce, 2, {1000}, us(10)},
                   {OpKind::all_reduce, 2, {1'000'000}, us(160)},
                   {OpKind::all_reduce, 2, {4'000'000}, us(640)},
                   {OpKind::all_reduce, 4, {1000}, us(77)},
                   {OpKind::all_gather, 2, {1000}, us(1)}};
  const auto seconds = [&](double bytes) {
    const auto timed = calibrated_collective(c, OpKind::all_reduce, 2, bytes);
    REQUIRE(timed);
    return timed->time.value;
  };
  CHECK(seconds(1000) == Approx(10e-6));
  CHECK(seconds(1e6) == Approx(160e-6));
  CHECK(seconds(2e6) == Approx(320e-6));
  CHECK(seconds(std::sqrt(1000.0 * 1e6)) == Approx(std::sqrt(10e-6 * 160e-6)));
  CHECK(seconds(10) == Approx(10e-6));    // its latency
  CHECK(seconds(4e7) == Approx(6.4e-3));  // at the largest's rate
  // One size tells nothing of others, and other ranks are another question.
  CHECK_FALSE(calibrated_collective(c, OpKind::all_gather, 2, 1000));
  CHECK_FALSE(calibrated_collective(c, OpKind::all_reduce, 4, 1000));
  CHECK_FALSE(calibrated_collective(c, OpKind::all_reduce, 8, 1000));

  Operation op;
  op.kind = OpKind::all_reduce;
  Work work;
  work.network = {1'000'000};  // a ring of two sends the whole once
  Group group;
  group.size = 2;
  Hardware slow = c.hardware;
  slow.node_link = gb_per_s(0.001);
  const Price timed = price(work, op, {}, slow, &c, &group);
  CHECK(timed.seconds.value == Approx(160e-6));
  CHECK(timed.provenance == Provenance::interpolated);
  CHECK(price(work, op, {}, slow, nullptr, &group).seconds > timed.seconds);
}

TEST_CASE("on a processor computing stands still while its cores copy what ranks exchange") {
  Scenario s = test::training(test::gpt2_124m(), 64, 1, 4, DType::fp32);
  s.hardware = laptop();
  s.hardware.is_cpu = true;
  s.hardware.devices_per_node = 2;
  s.hardware.node_link = gb_per_s(1);
  s.implementation.runs_here = true;
  s.strategy.data_parallel = 2;
  for (const int zero : {0, 1, 2, 3}) {
    CAPTURE(zero);
    s.strategy.zero_stage = zero;
    const Report r = predict(s);
    Seconds all, exchanged;
    for (const Row& row : r.rows) {
      all += row.duration;
      if (!row.exposed) continue;
      exchanged += row.duration;
      CHECK(row.exposed->value == Approx(row.duration.value));
    }
    CHECK(exchanged.value > 0.05 * all.value);
    CHECK(r.step_time.value == Approx(all.value).epsilon(1e-6));
  }
}

TEST_CASE("a calibrated prediction of a plan says where its numbers come from") {
  Scenario s = test::training(test::gpt2_124m(), 64, 1, 1, DType::fp32);
  s.hardware = laptop();
  const Calibration c = calibrate(skinny_or_not);
  const Report r = predict(s, &c);
  for (const Row& row : r.rows) {
    const bool is_product = row.kind == OpKind::matmul || row.kind == OpKind::matmul_backward_input ||
                            row.kind == OpKind::matmul_backward_weight;
    CHECK((row.provenance == Provenance::datasheet) == !is_product);
  }
}

}  // namespace
