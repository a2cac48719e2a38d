// Residuals of fits, what an operation's time rests on, and the memories of a chip.
#include "sim/cost/fits.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "sim/cost/calibration_preset.h"
#include "sim/cost/predict.h"
#include "sim/quantile.h"
#include "sim/scenario/memory_levels.h"
#include "sim/scenario/preset.h"
#include "tests/support/catch.h"

namespace {

// Products whose times are a power of their size, so that each is known from its neighbours.
sim::Calibration timed_here() {
  sim::Calibration calibration;
  calibration.hardware = sim::load_hardware_preset("h100-sxm");
  calibration.hardware.name = std::string(sim::kThisMachine);
  calibration.device = "test";
  calibration.launch = sim::Seconds{1e-6};
  for (const std::int64_t n : {128, 256, 512, 1024, 2048}) {
    sim::KernelSample s;
    s.kind = sim::OpKind::matmul;
    s.dtype = sim::DType::fp32;
    s.rows = s.cols = s.inner = n;
    const double size = static_cast<double>(n);
    s.flops = {2 * size * size * size};
    s.bytes = {12 * n * n};
    s.median = sim::roofline_time(calibration.hardware, calibration.launch, s.dtype, s.flops, s.bytes) *
               (1.5 + 0.1 * std::sin(size));
    calibration.samples.push_back(s);
  }
  sim::set_residuals(calibration);
  return calibration;
}

}  // namespace

TEST_CASE("a chip's memories stand fastest first, caches before its own memory before the host's link") {
  for (const std::string& name : sim::preset_names(sim::PresetKind::hardware)) {
    CAPTURE(name);
    const sim::Hardware hardware = sim::load_hardware_preset(name);
    const std::vector<sim::MemoryLevel> levels = sim::memory_levels(hardware);
    REQUIRE_FALSE(levels.empty());
    std::vector<std::string> order;
    for (std::size_t i = 0; i < levels.size(); ++i) {
      CHECK_FALSE(levels[i].source.empty());
      if (i > 0) CHECK(levels[i].bandwidth.value <= levels[i - 1].bandwidth.value);
      order.push_back(levels[i].name);
    }
    std::vector<std::string> expected = {"shared memory", "L2", "memory", "host link"};
    std::erase_if(expected, [&](const std::string& level) {
      return std::find(order.begin(), order.end(), level) == order.end();
    });
    CHECK(order == expected);
  }
}

TEST_CASE("A100's caches are as fast as the papers say: 19 TB/s of shared memory, 7.2 TB/s of L2") {
  // Dao et al. 2022 (arXiv 2205.14135), figure 1; doi 10.1016/j.ultsonch.2023.106546, table 3.
  const auto levels = sim::memory_levels(sim::load_hardware_preset("a100-sxm-40gb"));
  REQUIRE(levels.size() >= 3);
  CHECK(levels[0].bandwidth.value == Approx(19e12).epsilon(0.03));
  CHECK(levels[1].bandwidth.value == Approx(7.219e12));
}

TEST_CASE("a file of memories says what is wrong with it: an unknown field, a bandwidth of nothing") {
  const auto read = [](const std::string& level) {
    return sim::levels_on_chip("{\"levels\": [" + level + "]}", "levels.json", "x");
  };
  const std::string good = R"({"hardware": ["x"], "level": "L2", "gb_per_s": 5, "source": "measured"})";
  REQUIRE(read(good).size() == 1);
  CHECK(read(good)[0].bandwidth.value == 5e9);
  CHECK_THROWS_WITH(read(R"({"hardware": ["x"], "level": "L2", "gb_per_s": 0, "source": "s"})"),
                    contains("gb_per_s") && contains("levels.json"));
  CHECK_THROWS_WITH(read(R"({"hardware": ["x"], "level": "L2", "gb_per_s": 5, "source": "s", "colour": 1})"),
                    contains("colour"));
}

TEST_CASE("every table that a GPU is priced by is listed with its source and the errors of rows held out") {
  for (const std::string& name : sim::preset_names(sim::PresetKind::hardware)) {
    CAPTURE(name);
    const auto gpu = sim::load_gpu_calibration(name);
    const std::vector<sim::FittedRows> fits = sim::published_fits(name);
    REQUIRE(fits.size() == (gpu ? gpu->kernels.size() + gpu->collectives.size() : 0));
    for (const sim::FittedRows& fit : fits) {
      CAPTURE(fit.what);
      CHECK_FALSE(fit.source.empty());
      CHECK_FALSE(fit.software.empty());
      CHECK(fit.median <= fit.p90);
    }
  }
}

TEST_CASE("kernels held out, one by one, have the residuals that the calibration says") {
  const sim::Calibration calibration = timed_here();
  const std::vector<sim::HeldOut> all = sim::held_out(calibration);
  REQUIRE(all.size() == calibration.samples.size());
  std::vector<double> errors;
  for (const sim::HeldOut& one : all) errors.push_back(std::abs(one.predicted / one.sample->median - 1));
  CHECK(sim::quantile(errors, 0.5) == Approx(calibration.residual.median));
  CHECK(sim::quantile(errors, 0.9) == Approx(calibration.residual.p90));
  const std::vector<sim::FittedRows> fits = sim::fits_of(calibration);
  REQUIRE(fits.size() == 1);
  CHECK(fits[0].rows == 5);
  CHECK(fits[0].median == calibration.residual.median);
}

TEST_CASE(
    "every operation of a step is traced to tables of its kind and type, or to none where none has it") {
  sim::Scenario s = sim::load_scenario_preset("train-llama-3.1-8b-8-h100");
  const auto calibration = sim::load_calibration_preset("h100-sxm");
  REQUIRE(calibration);
  const sim::Plan plan = sim::make_plan(s);
  std::set<std::string> with_tables;
  for (const sim::Row& row : sim::predict(s, &*calibration).rows) {
    if (row.rank != 0) continue;
    CAPTURE(row.id);
    const auto trace = sim::trace_price(plan, row.phase, row.id, &*calibration);
    REQUIRE(trace);
    CHECK(trace->shape.kind == row.kind);
    for (const sim::FittedRows& table : trace->tables) with_tables.insert(table.what);
    if (row.provenance != sim::Provenance::datasheet && row.fused_into.empty())
      CHECK_FALSE(trace->tables.empty());
  }
  CHECK(with_tables.count("matmul, bf16") == 1);
  CHECK_FALSE(sim::trace_price(plan, sim::Phase::forward, "no.such.operation", nullptr));
}

TEST_CASE("a product that was timed here is traced to its own row first") {
  sim::Calibration calibration = timed_here();
  sim::Scenario s = sim::load_scenario_preset("train-gpt-10m-here");
  s.hardware = calibration.hardware;
  s.workload.dtype = sim::DType::fp32;
  const sim::Plan plan = sim::make_plan(s);
  const sim::Row* product = nullptr;
  const sim::Report report = sim::predict(s, &calibration);
  for (const sim::Row& row : report.rows)
    if (row.kind == sim::OpKind::matmul && row.rank == 0 && !product) product = &row;
  REQUIRE(product);
  auto trace = sim::trace_price(plan, product->phase, product->id, &calibration);
  REQUIRE(trace);
  REQUIRE(trace->ratio);
  sim::KernelSample own = trace->shape;
  own.median = sim::Seconds{1e-3};
  calibration.samples.push_back(own);
  trace = sim::trace_price(plan, product->phase, product->id, &calibration);
  REQUIRE_FALSE(trace->nearest.empty());
  CHECK(trace->nearest.front() == &calibration.samples.back());
  CHECK(trace->nearest.size() <= sim::PriceTrace::kNearest);
}
