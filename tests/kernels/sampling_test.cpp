#include "kernels/sampling.h"

#include <map>
#include <numeric>

#include "kernels/threads.h"
#include "tests/kernels/compare.h"

using kernels::SamplingSettings;

namespace {

std::vector<std::int32_t> draws(const std::vector<float>& logits, const SamplingSettings& settings,
                                std::int64_t steps) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t step = 0; step < steps; ++step) {
    std::int32_t token = -1;
    kernels::cpu::sample(&token, logits.data(), settings, step, 1, static_cast<std::int64_t>(logits.size()));
    tokens.push_back(token);
  }
  return tokens;
}

// Softmax of logits / temperature over the tokens in `allowed`, by definition.
std::map<std::int32_t, double> distribution(const std::vector<float>& logits, double temperature,
                                            const std::vector<std::int32_t>& allowed) {
  std::map<std::int32_t, double> p;
  double sum = 0;
  for (const std::int32_t token : allowed)
    sum += p[token] = std::exp(logits[static_cast<std::size_t>(token)] / temperature);
  for (auto& [token, probability] : p) probability /= sum;
  return p;
}

// Pearson's chi-square of the draws against p; fails at once where a token outside p was drawn.
double chi_square(const std::vector<std::int32_t>& tokens, const std::map<std::int32_t, double>& p) {
  std::map<std::int32_t, double> counts;
  for (const std::int32_t token : tokens) {
    REQUIRE(p.count(token) == 1);
    ++counts[token];
  }
  double sum = 0;
  for (const auto& [token, probability] : p) {
    const double expected = probability * static_cast<double>(tokens.size());
    sum += (counts[token] - expected) * (counts[token] - expected) / expected;
  }
  return sum;
}

// Upper 0.1 % points of the chi-square distribution (Abramowitz & Stegun, table 26.8).
constexpr double kChi2Of2 = 13.816, kChi2Of3 = 16.266, kChi2Of7 = 24.322;

const std::vector<float> kLogits = {0.5f, 2.0f, -1.0f, 1.0f, 0.0f, 1.5f, -0.5f, 0.8f};

}  // namespace

TEST_CASE("greedy takes the largest logit, the lowest id among equals") {
  const std::vector<float> logits = {1, 3, 3, 2, /* second row */ 5, 5, 5, 5};
  std::vector<std::int32_t> tokens(2, -1);
  kernels::cpu::sample(tokens.data(), logits.data(), SamplingSettings{}, 0, 2, 4);
  CHECK(tokens == std::vector<std::int32_t>{1, 0});
}

TEST_CASE("sampling follows the softmax at its temperature") {
  for (const float temperature : {0.7f, 1.0f, 2.0f}) {
    CAPTURE(temperature);
    const auto p = distribution(kLogits, temperature, {0, 1, 2, 3, 4, 5, 6, 7});
    CHECK(chi_square(draws(kLogits, {temperature, 0, 1, 17}, 20000), p) < kChi2Of7);
  }
}

TEST_CASE("rows of one batch draw independently of each other") {
  const std::int64_t B = 20000;
  std::vector<float> logits;
  for (std::int64_t b = 0; b < B; ++b) logits.insert(logits.end(), kLogits.begin(), kLogits.end());
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(B));
  kernels::cpu::sample(tokens.data(), logits.data(), {1, 0, 1, 3}, 0, B, 8);
  CHECK(chi_square(tokens, distribution(kLogits, 1, {0, 1, 2, 3, 4, 5, 6, 7})) < kChi2Of7);
}

TEST_CASE("top-k draws from the k most probable tokens, in their renormalised proportion") {
  CHECK(chi_square(draws(kLogits, {1, 3, 1, 5}, 20000), distribution(kLogits, 1, {1, 5, 3})) < kChi2Of2);
  const auto ones = draws(kLogits, {1, 1, 1, 5}, 100);
  CHECK(std::all_of(ones.begin(), ones.end(), [](std::int32_t token) { return token == 1; }));
}

TEST_CASE("top-p draws from the fewest tokens that reach p, in their renormalised proportion") {
  // Sorted probabilities of kLogits: 0.367 (1), 0.223 (5), 0.135 (3), 0.111 (7), ...: 0.8 is reached by the
  // fourth.
  const auto all = distribution(kLogits, 1, {0, 1, 2, 3, 4, 5, 6, 7});
  REQUIRE(all.at(1) + all.at(5) + all.at(3) < 0.8);
  REQUIRE(all.at(1) + all.at(5) + all.at(3) + all.at(7) >= 0.8);
  CHECK(chi_square(draws(kLogits, {1, 0, 0.8f, 7}, 20000), distribution(kLogits, 1, {1, 5, 3, 7})) <
        kChi2Of3);
}

TEST_CASE("top-p cuts what top-k has left, after the temperature") {
  // Two of the three best, renormalised at temperature 2, hold 0.6 or more: 0.43 + 0.31.
  const auto three = distribution(kLogits, 2, {1, 5, 3});
  REQUIRE(three.at(1) < 0.6);
  REQUIRE(three.at(1) + three.at(5) >= 0.6);
  const auto tokens = draws(kLogits, {2, 3, 0.6f, 11}, 2000);
  CHECK(
      std::all_of(tokens.begin(), tokens.end(), [](std::int32_t token) { return token == 1 || token == 5; }));
  CHECK(std::count(tokens.begin(), tokens.end(), 5) > 0);
}

TEST_CASE("a tiny top-p keeps the most probable token") {
  const auto tokens = draws(kLogits, {1, 0, 0.0f, 7}, 100);
  CHECK(std::all_of(tokens.begin(), tokens.end(), [](std::int32_t token) { return token == 1; }));
}

TEST_CASE("a draw is a function of seed, step and row, whatever the threads and the rest of the batch") {
  const std::int64_t B = 6, V = 5000;
  const auto logits = test::normal_tensor(B * V, 1);
  const SamplingSettings settings{1, 50, 0.9f, 42};
  const auto run = [&](int threads, std::int64_t rows) {
    kernels::cpu::set_threads(threads);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows));
    kernels::cpu::sample(tokens.data(), logits.data(), settings, 9, rows, V);
    kernels::cpu::set_threads(0);
    return tokens;
  };
  const auto tokens = run(1, B);
  CHECK(run(3, B) == tokens);
  CHECK(run(2, 4) == std::vector<std::int32_t>(tokens.begin(), tokens.begin() + 4));

  CHECK(draws(kLogits, {1, 0, 1, 1}, 200) != draws(kLogits, {1, 0, 1, 2}, 200));
}
