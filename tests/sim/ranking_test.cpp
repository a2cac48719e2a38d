// Order of configurations within a model and number of GPUs, and what a first choice costs.
#include "sim/validate/ranking.h"

#include <algorithm>
#include <random>

#include "tests/support/catch.h"

namespace {

struct Run {
  std::string model;
  int gpus = 0;
  double predicted = 0, measured = 0;  // tokens a second and GPU
  bool fits = true;
};

// As they would stand in a table of training steps and in its validation.
struct Runs {
  sim::CsvTable table{
      {"framework", "gpu", "seq_len", "step_time_s", "model_name", "num_gpus", "tokens_per_s_per_gpu"}, {}};
  sim::Validation validation;

  explicit Runs(const std::vector<Run>& runs) {
    validation.reader = sim::reader_of(table.header);
    REQUIRE(validation.reader);
    for (const Run& run : runs) {
      table.rows.push_back(
          {"", "", "", "", run.model, std::to_string(run.gpus), std::to_string(run.measured)});
      sim::ValidatedRow row;
      row.predictions.push_back({"tokens_per_s_per_gpu", run.predicted, run.predicted, run.predicted});
      row.predictions.push_back({sim::kOutcomeColumn, 0, 0, 0, run.fits ? sim::kFits : sim::kDoesNotFit});
      validation.rows.push_back(row);
    }
  }
  std::vector<sim::RankedGroup> groups() const { return sim::rank(table, validation); }
};

std::vector<Run> random_runs(std::mt19937& random) {
  std::uniform_real_distribution<double> rate(100, 20'000);
  std::bernoulli_distribution fits(0.9);
  std::vector<Run> runs;
  for (const char* model : {"a", "b", "c"})
    for (const int gpus : {8, 64, 512})
      for (int i = 0; i < 12; ++i) runs.push_back({model, gpus, rate(random), rate(random), fits(random)});
  return runs;
}

}  // namespace

TEST_CASE("predictions in the measured order have a tau of 1 and lose nothing, reversed ones all there is") {
  std::vector<Run> runs;
  for (int i = 1; i <= 6; ++i) runs.push_back({"model", 64, 10.0 * i * i, 100.0 * i});
  const auto right = Runs(runs).groups();
  REQUIRE(right.size() == 1);
  CHECK(right[0].model == "model");
  CHECK(right[0].gpus == 64);
  CHECK(right[0].configurations == 6);
  CHECK(right[0].pairs == 15);
  CHECK(right[0].tau() == 1);
  CHECK(right[0].chosen == 5);
  CHECK(right[0].best == 5);
  CHECK(right[0].lost == 0);
  for (Run& run : runs) run.predicted = 1 / run.predicted;
  const auto reversed = Runs(runs).groups();
  CHECK(reversed[0].tau() == -1);
  CHECK(reversed[0].chosen == 0);
  CHECK(reversed[0].best == 5);
  // The fastest does six times the tokens of the slowest.
  CHECK(reversed[0].lost == Approx(5));
}

TEST_CASE("what is predicted not to fit is no first choice, but may have been best") {
  std::vector<Run> runs;
  for (int i = 1; i <= 6; ++i) runs.push_back({"model", 64, 100.0 * i, 100.0 * i});
  runs[5].fits = false;
  const auto groups = Runs(runs).groups();
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].tau() == 1);
  CHECK(groups[0].chosen == 4);
  CHECK(groups[0].best == 5);
  CHECK(groups[0].lost == Approx(0.2));
  for (Run& run : runs) run.fits = false;
  CHECK(Runs(runs).groups().empty());
}

TEST_CASE("fewer than five configurations are no group, and other tables have none") {
  std::vector<Run> runs(4, {"model", 64, 1, 1});
  CHECK(Runs(runs).groups().empty());
  runs.push_back({"model", 128, 1, 1});
  CHECK(Runs(runs).groups().empty());
  runs.push_back({"model", 64, 1, 1});
  CHECK(Runs(runs).groups().size() == 1);
  CHECK(sim::rank({{"colour"}, {{"red"}}}, {nullptr, {{}}}).empty());
  CHECK(sim::summarize({}).groups == 0);
}

TEST_CASE("the order of a table's rows changes no group") {
  std::mt19937 random(7);
  std::vector<Run> runs = random_runs(random);
  const auto before = Runs(runs).groups();
  REQUIRE(before.size() == 9);
  const auto measured = [](const Runs& of, std::size_t row) { return of.table.rows[row].back(); };
  const Runs in_order(runs);
  std::shuffle(runs.begin(), runs.end(), random);
  const Runs shuffled(runs);
  const auto after = shuffled.groups();
  REQUIRE(after.size() == before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    CHECK(after[i].model == before[i].model);
    CHECK(after[i].gpus == before[i].gpus);
    CHECK(after[i].balance == before[i].balance);
    CHECK(after[i].lost == before[i].lost);
    CHECK(measured(shuffled, after[i].chosen) == measured(in_order, before[i].chosen));
    CHECK(measured(shuffled, after[i].best) == measured(in_order, before[i].best));
  }
}

TEST_CASE("the numbers of GPUs share out groups, configurations, pairs, order and loss of the whole") {
  std::mt19937 random(11);
  const auto groups = Runs(random_runs(random)).groups();
  const sim::RankingSummary all = sim::summarize(groups);
  CHECK(all.groups == 9);
  CHECK(all.configurations == 9 * 12);
  CHECK(all.pairs == 9 * 66);
  const auto by_gpus = sim::summarize_by_gpus(groups);
  REQUIRE(by_gpus.size() == 3);
  std::size_t pairs = 0;
  double balance = 0, lost = 0;
  for (const auto& [gpus, summary] : by_gpus) {
    CHECK(summary.groups == 3);
    pairs += summary.pairs;
    balance += summary.tau * static_cast<double>(summary.pairs);
    lost += summary.lost_mean * static_cast<double>(summary.groups);
    // The median of three is what lies between the others.
    std::vector<double> of_gpus;
    for (const sim::RankedGroup& group : groups)
      if (group.gpus == gpus) of_gpus.push_back(group.lost);
    std::sort(of_gpus.begin(), of_gpus.end());
    CHECK(summary.lost_median == of_gpus[1]);
  }
  CHECK(pairs == all.pairs);
  CHECK(balance == Approx(all.tau * static_cast<double>(all.pairs)));
  CHECK(lost == Approx(all.lost_mean * static_cast<double>(all.groups)));
}
