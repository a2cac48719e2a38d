// Waiting for the slowest rank: the largest of many normal numbers, and what a step pays for it.
#include "sim/cost/stragglers.h"

#include <cmath>
#include <numbers>

#include "sim/cost/predict.h"
#include "sim/planner/estimate.h"
#include "sim/report/metrics.h"
#include "tests/sim/random_strategies.h"
#include "tests/sim/scenarios.h"
#include "tests/support/catch.h"

using namespace sim;

namespace {

// E[max of n] = integral of x d(Phi(x)^n), by the trapezoidal rule on the density n Phi^(n-1) phi.
double integrated_maximum(double n) {
  constexpr double kFrom = -9, kTo = 9, kStep = 1e-3;
  double sum = 0;
  for (double x = kFrom; x <= kTo; x += kStep) {
    const double below = std::erfc(-x / std::numbers::sqrt2) / 2;
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    sum += x * n * std::pow(below, n - 1) * density * kStep;
  }
  return sum;
}

Scenario of_ranks(int data, int tensor, int stages) {
  Scenario s = test::training(test::llama_8b(), 2048, 1, 64 * data);
  s.hardware = load_hardware_preset("h100-sxm");
  s.strategy.data_parallel = data;
  s.strategy.tensor_parallel = tensor;
  s.strategy.pipeline_parallel = stages;
  return s;
}

}  // namespace

TEST_CASE("the expected maximum of normal numbers is the integral's to 5 %") {
  for (const std::int64_t n : {2, 3, 8, 64, 512, 16384, 1048576}) {
    CAPTURE(n);
    CHECK(expected_maximum(n) == Approx(integrated_maximum(static_cast<double>(n))).epsilon(0.05));
  }
  CHECK(expected_maximum(1) == 0);
}

TEST_CASE("one rank waits for nobody, and more ranks never for less") {
  const bool steady = GENERATE(true, false);
  Hardware hardware = of_ranks(1, 1, 1).hardware;
  hardware.device_spread = steady ? 0.02 : 0;
  hardware.pass_jitter = steady ? 0 : 0.02;
  CHECK(waiting_over_mean(of_ranks(1, 1, 1), hardware) == 0);
  const auto grows = [&](auto with) {
    double before = 0;
    for (int degree = 1; degree <= 1024; degree *= 2) {
      const double now = waiting_over_mean(with(degree), hardware);
      CAPTURE(degree, steady);
      CHECK(now >= before);
      before = now;
    }
    CHECK(before > 0);
  };
  grows([](int n) { return of_ranks(n, 1, 1); });
  grows([](int n) { return of_ranks(1, n, 1); });
  grows([](int n) { return of_ranks(1, 1, n); });
  grows([](int n) { return of_ranks(2, 2, n); });
}

TEST_CASE("within a node devices' spread costs nothing: what was calibrated holds it") {
  Hardware hardware = of_ranks(1, 1, 1).hardware;
  hardware.device_spread = 0.02;
  CHECK(waiting_over_mean(of_ranks(hardware.devices_per_node, 1, 1), hardware) == 0);
  CHECK(waiting_over_mean(of_ranks(2 * hardware.devices_per_node, 1, 1), hardware) > 0);
}

TEST_CASE("passes even out over a step's micro-batches") {
  Hardware hardware = of_ranks(8, 1, 1).hardware;
  hardware.device_spread = 0;
  hardware.pass_jitter = 0.02;
  Scenario few = of_ranks(8, 1, 1), many = few;
  many.workload.global_batch_size *= 4;
  CHECK(waiting_over_mean(many, hardware) * 2 == Approx(waiting_over_mean(few, hardware)));
}

TEST_CASE("waiting is a share of its own of a predicted step, which estimates have, too") {
  RandomStrategies random(7);
  int waiting = 0;
  for (int i = 0; i < 20; ++i) {
    Scenario s = random.next(), alike = s;
    const Calibration* calibration = random.calibration(s.hardware.name);
    s.hardware.pass_jitter = 0.03;
    alike.hardware.device_spread = alike.hardware.pass_jitter = 0;
    const Report with = predict(s, calibration), without = predict(alike, calibration);
    CHECK(without.waiting_for_slowest.value == 0);
    CHECK((with.step_time - with.waiting_for_slowest).value == Approx(without.step_time.value));
    CHECK(estimate(s, calibration).step / estimate(alike, calibration).step ==
          Approx(with.step_time / without.step_time));
    waiting += with.waiting_for_slowest.value > 0;
  }
  CHECK(waiting > 0);
}
