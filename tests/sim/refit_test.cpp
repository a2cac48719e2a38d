#include <cmath>
#include <random>

#include "sim/cost/fits.h"
#include "sim/preset_error.h"
#include "sim/quantile.h"
#include "sim/scenario/preset.h"
#include "sim/validate/refit_rows.h"
#include "tests/support/catch.h"

namespace {

// Products and a collective of H100 as its tables predict them, the products `factor` times as slow.
sim::CsvTable products_of(const std::string& hardware, double factor) {
  const auto gpu = sim::load_gpu_calibration(hardware);
  REQUIRE(gpu);
  sim::CsvTable table{{"gpu", "framework", "dtype", "m", "n", "k", "latency_ms"}, {}};
  for (const double m : {64., 256., 1024., 4096.})
    for (const double n : {1024., 4096., 8192.}) {
      const auto time =
          sim::product_time(*gpu, sim::load_hardware_preset(hardware), {m, n, 4096, sim::DType::bf16});
      REQUIRE(time);
      table.rows.push_back({hardware, "", "bfloat16", std::to_string(m), std::to_string(n), "4096",
                            std::to_string(1e3 * factor * time->seconds.value)});
    }
  return table;
}

}  // namespace

TEST_CASE("rows that are all as far off give their factor, and tables of that factor predict them") {
  const std::string hardware = GENERATE("h100-sxm", "a100-sxm-80gb", "h200-sxm");
  for (const double factor : {0.8, 1.0, 1.25}) {
    const sim::Refit refit = sim::refit(products_of(hardware, factor), "rows.csv", hardware, "2026");
    REQUIRE(refit.shifts.size() == 1);
    const sim::TableShift& shift = refit.shifts[0];
    CHECK(shift.rows == 12);
    CHECK(shift.factor == Approx(factor).epsilon(1e-3));
    CHECK(shift.median_before == Approx(std::abs(1 / factor - 1)).margin(1e-3));
    CHECK(shift.median < 1e-3);
    auto gpu = sim::load_gpu_calibration(hardware);
    const sim::Hardware chip = sim::load_hardware_preset(hardware);
    const sim::ProductShape shape{512, 2048, 4096, sim::DType::bf16};
    const double before = sim::product_time(*gpu, chip, shape)->seconds.value;
    sim::apply(refit, *gpu);
    CHECK(sim::product_time(*gpu, chip, shape)->seconds.value / before == Approx(factor).epsilon(1e-3));
  }
}

TEST_CASE("errors of a refit are of rows held out, and a factor that brings rows no nearer is none") {
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0, 0.2);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> ratios(1 + static_cast<std::size_t>(trial) % 12);
    for (double& ratio : ratios) ratio = std::exp(0.1 * (trial % 5 - 2) + noise(random));
    const sim::TableShift shift = sim::shift_of("matmul, bf16", "x", ratios);
    if (shift.factor == 1) {
      CHECK(shift.median == shift.median_before);
      continue;
    }
    CHECK(shift.median < shift.median_before);
    CHECK(ratios.size() >= sim::kLeastRowsOfShift);
    // By leaving each out in turn, in the plain way.
    std::vector<double> errors;
    for (std::size_t i = 0; i < ratios.size(); ++i) {
      std::vector<double> rest;
      for (std::size_t k = 0; k < ratios.size(); ++k)
        if (k != i) rest.push_back(std::log(ratios[k]));
      errors.push_back(std::abs(std::exp(sim::quantile(rest, 0.5)) / ratios[i] - 1));
    }
    CHECK(shift.median == Approx(sim::quantile(errors, 0.5)));
    CHECK(shift.p90 == Approx(sim::quantile(errors, 0.9)));
  }
}

TEST_CASE("a refit comes back from its file, and one of rows of another GPU is refused in a sentence") {
  const sim::Refit refit = sim::refit(products_of("h100-sxm", 1.1), "rows.csv", "h100-sxm", "2026-11-26");
  CHECK(sim::refit_from_json(sim::to_json(refit), "x") == refit);
  CHECK_THROWS_WITH(sim::refit(products_of("h100-sxm", 1.1), "rows.csv", "a100-sxm-80gb", ""),
                    contains("rows.csv") && contains("a100-sxm-80gb"));
  CHECK_THROWS_WITH(sim::refit({{"gpu", "m"}, {}}, "rows.csv", "h100-sxm", ""), contains("rows.csv"));
  std::string broken = sim::to_json(refit);
  broken.replace(broken.find("\"factor\": "), 10, "\"factor\": -");
  CHECK_THROWS_WITH(sim::refit_from_json(broken, "refit.json"), contains("refit.json") && contains("factor"));
}
