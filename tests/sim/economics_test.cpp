#include <array>
#include <cmath>

#include "sim/economics/batch_size.h"
#include "sim/economics/noise_scale.h"
#include "sim/economics/run_cost.h"
#include "sim/economics/scaling_law.h"
#include "sim/scenario/preset.h"
#include "tests/support/catch.h"

namespace {

using namespace sim;

TEST_CASE("the Llama 3.1 model card's emissions follow from its hours, power, PUE and grid") {
  const EconomicRates rates = load_economic_rates();
  RunPlan run{.devices = 16384, .power_w = 700};
  run.site = *rates.site("llama-3.1-model-card");
  struct Row {
    double device_hours, tonnes, printed_to;
  };
  // models/llama3_1/MODEL_CARD.md prints hours to 0.01 to 0.1 million and tonnes to ten.
  const Row row = GENERATE(Row{1.46e6, 420, 5}, Row{7.0e6, 2040, 15}, Row{30.84e6, 8930, 10});
  CHECK(cost_of_hours(row.device_hours, run).tonnes_co2e == Approx(row.tonnes).margin(row.printed_to));
}

TEST_CASE("405B parameters on 15T tokens take 25.3 million H100 hours at 400 TFLOP/s, 66 days on 16K") {
  // The lecture's 6 X Y / (400e12 x 3600).
  const double devices = 16000, flops_per_token = 6 * 405e9;
  const RunCost cost = cost_of_run(
      {.tokens = 15e12, .tokens_per_second = devices * 400e12 / flops_per_token, .devices = devices});
  CHECK(cost.device_hours == Approx(25.3e6).margin(0.05e6));
  CHECK(std::floor(cost.days) == 65);  // 65.9: the lecture rounds up
  CHECK(std::ceil(cost.days) == 66);
}

TEST_CASE("LLaMA's table of energy and carbon is hours x 400 W x PUE 1.1 x 0.385 kg a kWh") {
  // arXiv 2302.13971, table 15: 65B.
  RunPlan run{.devices = 2048, .power_w = 400};
  run.site = *load_economic_rates().site("llama-1-paper");
  const RunCost cost = cost_of_hours(1'022'362, run);
  CHECK(cost.mwh == Approx(449).margin(1));
  CHECK(cost.tonnes_co2e == Approx(173).margin(0.5));
}

TEST_CASE("DeepSeek-V3's 2.788 million H800 hours cost 5.576 million dollars at 2 dollars an hour") {
  const EconomicRates rates = load_economic_rates();
  const HourlyPrice* price = rates.price_of("h800-sxm");
  REQUIRE(price != nullptr);
  const RunCost cost = cost_of_hours(2.788e6, {.devices = 2048, .usd_per_device_hour = price->usd()});
  CHECK(cost.usd == Approx(5.576e6));
}

TEST_CASE("every price belongs to a hardware preset") {
  for (const HourlyPrice& price : load_economic_rates().prices)
    CHECK(load_hardware_preset(price.hardware).name == price.hardware);
}

TEST_CASE("no checkpoint interval has a better goodput than Young's to first order") {
  const Reliability r;
  const double devices = GENERATE(8.0, 1024.0, 16384.0);
  const Seconds best = best_checkpoint_interval(r, devices);
  for (const double factor : {0.25, 0.5, 0.9, 1.1, 2.0, 4.0})
    CHECK(goodput(r, devices, best * factor) <= goodput(r, devices, best));
}

TEST_CASE(
    "16,384 devices fail every three hours, and keep more than 90 % of their time, as Llama 3 reports") {
  const Reliability r;
  CHECK(mean_time_between_failures(r, 16384).value / 3600 == Approx(3.1).margin(0.05));
  CHECK(goodput(r, 16384, best_checkpoint_interval(r, 16384)) > 0.9);
}

TEST_CASE("steps and tokens obey McCandlish's hyperbola at every batch, and double at the critical one") {
  const BatchTradeOff run = trade_off(300e9, 2e6, 4e6);
  CHECK(run.tokens(2e6) == Approx(300e9));
  CHECK(run.critical() == Approx(4e6));
  CHECK(run.steps(run.critical()) == Approx(2 * run.least_steps));
  CHECK(run.tokens(run.critical()) == Approx(2 * run.least_tokens));
  for (double batch = 1e4; batch < 1e9; batch *= 3) {
    CHECK((run.steps(batch) / run.least_steps - 1) * (run.tokens(batch) / run.least_tokens - 1) == Approx(1));
    CHECK(run.steps(batch) * batch == Approx(run.tokens(batch)));
  }
}

TEST_CASE("the noise scale is found again from exact expectations of gradient norms at two batches") {
  const double squared_gradient = 3, variance = 700;
  const auto expected = [&](double batch) { return squared_gradient + variance / batch; };
  const NoiseEstimate found = noise_estimate(8, expected(8), 512, expected(512));
  CHECK(found.squared_gradient == Approx(squared_gradient));
  CHECK(found.variance == Approx(variance));
}

TEST_CASE("signal and noise are averaged before their ratio is taken, later steps slightly more") {
  NoiseAverage average;
  CHECK_FALSE(average.noise_scale());
  average.add({.squared_gradient = 1, .variance = 10});
  CHECK(*average.noise_scale() == Approx(10));
  CHECK(average.mean().squared_gradient == Approx(1));
  average.add({.squared_gradient = 3, .variance = 20});
  CHECK(average.mean().squared_gradient == Approx((0.98 * 1 + 3) / 1.98));
  CHECK(*average.noise_scale() == Approx((0.98 * 10 + 20) / (0.98 * 1 + 3)));
  for (int step = 0; step < 1000; ++step) average.add({.squared_gradient = 2, .variance = 8});
  CHECK(*average.noise_scale() == Approx(4));
  average.add({.squared_gradient = -1000, .variance = 8});
  CHECK_FALSE(average.noise_scale());
}

TEST_CASE("critical batch by loss: 7.4 M tokens at 2, 2.5 M at 2.5 (Kaplan et al. 2020)") {
  CHECK(critical_batch_by_loss(2) == Approx(7.4e6).epsilon(0.01));
  CHECK(critical_batch_by_loss(2.5) == Approx(2.55e6).epsilon(0.01));
}

TEST_CASE("MiniMax-01's critical batches are a power law of its loss, 3.5 to 5.8 times Kaplan's") {
  // arXiv 2501.08313, section 4: the batch doubles where the fit of critical batch to loss does.
  struct Point {
    double loss, batch;
  };
  const std::array<Point, 4> points{{{2.22, 16e6}, {1.98, 32e6}, {1.77, 64e6}, {1.58, 128e6}}};
  const double exponent = std::log(points.back().batch / points.front().batch) /
                          std::log(points.front().loss / points.back().loss);
  CHECK(exponent > 1 / 0.21);  // steeper than Kaplan's
  for (const auto [loss, batch] : points) {
    CAPTURE(loss);
    CHECK(points.front().batch * std::pow(points.front().loss / loss, exponent) ==
          Approx(batch).epsilon(0.01));
    CHECK(batch / critical_batch_by_loss(loss) > 3.5);
    CHECK(batch / critical_batch_by_loss(loss) < 5.8);
  }
}

TEST_CASE(
    "where a step's time is a fixed part and one a token, the fastest batch is where its derivative is 0") {
  // (1 + Bc / B)(f + t B): least at B = sqrt(f Bc / t).
  const BatchTradeOff run{.least_steps = 1e4, .least_tokens = 1e10};
  const double fixed = 0.5, per_token = 2e-7;
  const double ratio = 1.001;
  const BatchOptimum best =
      best_batch(run, 1e3, 1e9, ratio, [&](double batch) { return Seconds{fixed + per_token * batch}; });
  CHECK(best.batch == Approx(std::sqrt(fixed * run.critical() / per_token)).epsilon(2 * (ratio - 1)));
}

// The least loss that `flops` buy: where alpha A / N^alpha = beta B / D^beta and 6 N D is what there is
// (Hoffmann et al. 2022, equation 4).
ModelAndData compute_optimal(const ScalingLaw& law, double flops) {
  const double both = law.alpha + law.beta;
  const double scale = std::pow(law.alpha * law.a / (law.beta * law.b), 1 / both);
  const double parameters = scale * std::pow(flops / 6, law.beta / both);
  return {.parameters = parameters, .tokens = flops / 6 / parameters};
}

TEST_CASE("the compute-optimal model is the least loss of all that the same compute trains") {
  const ScalingLaw law = GENERATE(hoffmann_2022(), besiroglu_2024());
  const double flops = GENERATE(1e20, 5.76e23, 3.8e25);
  const ModelAndData best = compute_optimal(law, flops);
  CHECK(best.training_flops() == Approx(flops));
  for (const double factor : {0.5, 0.9, 0.99, 1.01, 1.1, 2.0}) {
    const double parameters = best.parameters * factor;
    CHECK(law.loss(parameters, flops / 6 / parameters) > law.loss(best.parameters, best.tokens));
  }
}

TEST_CASE("the refitted law trains Chinchilla's compute on about 20 tokens a parameter") {
  const ModelAndData best = compute_optimal(besiroglu_2024(), 5.76e23);  // Gopher's and Chinchilla's budget
  CHECK(best.tokens / best.parameters > 15);
  CHECK(best.tokens / best.parameters < 30);
}

TEST_CASE("no model of fewer parameters reaches the loss, and one a little larger does") {
  const ScalingLaw law = besiroglu_2024();
  const double loss = law.loss(8e9, 15e12), smallest = smallest_model(law, loss);
  CHECK(std::isinf(tokens_to_loss(law, smallest * 0.999, loss)));
  CHECK(std::isfinite(tokens_to_loss(law, smallest * 1.001, loss)));
  // Llama 3's 8 billion on 15 trillion tokens, and as many served: a third more than training (6 N D, 2 N).
  const ModelAndData llama{8e9, 15e12};
  CHECK(llama.training_flops() == Approx(7.2e23));
  CHECK(llama.inference_flops(15e12) == Approx(llama.training_flops() / 3));
}

TEST_CASE("a model that serves nothing is compute-optimal, the more it serves, the smaller it is") {
  const ScalingLaw law = besiroglu_2024();
  const ModelAndData optimal = compute_optimal(law, 1e23);
  const double loss = law.loss(optimal.parameters, optimal.tokens);
  const ModelAndData none = least_lifetime_flops(law, loss, 0);
  CHECK(none.parameters == Approx(optimal.parameters).epsilon(1e-3));
  CHECK(law.loss(none.parameters, none.tokens) == Approx(loss));
  double before = none.parameters;
  for (const double served : {1e11, 1e12, 1e13, 1e14}) {
    const ModelAndData model = least_lifetime_flops(law, loss, served);
    CHECK(model.parameters < before);
    CHECK(law.loss(model.parameters, model.tokens) == Approx(loss));
    before = model.parameters;
  }
}

TEST_CASE("a price below nothing, or above its upper end, is refused by field") {
  const std::string sites = R"("sites": [{"name": "s", "pue": 1, "kg_co2e_per_kwh": 0, "host_w_per_device": 0,
      "source": "x"}])";
  CHECK_THROWS_WITH(
      economic_rates_from_json(R"({"prices": [{"hardware": "h100-sxm", "market": "m", "low_usd_per_hour": 3,
          "high_usd_per_hour": 2, "date": "2026-05", "source": "x"}], )" +
                                   sites + "}",
                               "e.json"),
      contains("high_usd_per_hour"));
}

}  // namespace
