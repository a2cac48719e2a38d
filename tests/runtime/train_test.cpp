#include "runtime/train.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "runtime/error.h"
#include "runtime/run.h"
#include "sim/plan/recompute.h"
#include "tests/runtime/random_strategy.h"
#include "tests/runtime/short_training.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

runtime::TrainSettings settings_for(const TemporaryFolder& folder, std::int64_t steps) {
  return tests::short_training(folder, steps, 3e-3f, 2);
}

using tests::train;

}  // namespace

TEST_CASE("A fresh model's loss is that of guessing, and training lowers it") {
  const TemporaryFolder folder;
  const sim::Scenario scenario =
      tests::training(GENERATE(tests::small_gpt(), tests::small_llama(), tests::small_hybrid()));
  runtime::TrainSettings settings = settings_for(folder, 150);
  settings.learning_rate = 1e-2f;
  const sim::Report report = train(scenario, settings);
  REQUIRE(report.steps.size() == 150);
  const double guessing = std::log(static_cast<double>(scenario.model.vocab_size));
  // Logits of weights drawn at 0.02 are nearly equal.
  CHECK(report.steps.front().loss == Approx(guessing).margin(0.1));
  CHECK(report.steps.back().loss < guessing - 1);
}

TEST_CASE("Recomputing activations does not change a bit") {
  const TemporaryFolder folder;
  const runtime::TrainSettings settings = settings_for(folder, 4);
  sim::Scenario scenario =
      tests::training(GENERATE(tests::small_gpt(), tests::small_llama(), tests::small_hybrid()));
  const sim::Report kept = train(scenario, settings);
  scenario.strategy.recompute = GENERATE(sim::Recompute::selective, sim::Recompute::full);
  const sim::Report recomputed = train(scenario, settings);
  for (std::size_t s = 0; s < kept.steps.size(); ++s) {
    CHECK(kept.steps[s].loss == recomputed.steps[s].loss);
    CHECK(kept.steps[s].grad_norm == recomputed.steps[s].grad_norm);
  }
}

TEST_CASE(
    "Inputs kept every k layers, every square root of them, and any choice of operations change no bit") {
  const TemporaryFolder folder;
  const runtime::TrainSettings settings = settings_for(folder, 2);
  sim::Model model = GENERATE(tests::small_gpt(), tests::small_llama(), tests::small_hybrid());
  model.num_hidden_layers = 5;
  const sim::Scenario scenario = tests::training(model);
  const sim::Report kept = train(scenario, settings);
  std::vector<sim::Scenario> others;
  for (const int interval : {2, 3, 5, 7}) {
    others.push_back(scenario);
    others.back().strategy.recompute = sim::Recompute::full;
    others.back().strategy.recompute_interval = interval;
  }
  others.push_back(scenario);
  others.back().strategy.recompute = sim::Recompute::sqrt;
  // Every subset of the words.
  const auto& words = sim::kRecomputeWords;
  for (unsigned subset = 1; subset < 1u << words.size(); subset += 3) {
    others.push_back(scenario);
    others.back().strategy.recompute = sim::Recompute::operations;
    for (std::size_t w = 0; w < words.size(); ++w)
      if (subset >> w & 1u) others.back().strategy.recompute_operations.emplace_back(words[w]);
  }
  for (const sim::Scenario& other : others) {
    CAPTURE(sim::name(other.strategy.recompute), other.strategy.recompute_interval,
            other.strategy.recompute_operations);
    const sim::Report recomputed = train(other, settings);
    for (std::size_t s = 0; s < kept.steps.size(); ++s) {
      CHECK(kept.steps[s].loss == recomputed.steps[s].loss);
      CHECK(kept.steps[s].grad_norm == recomputed.steps[s].grad_norm);
    }
  }
}

TEST_CASE("Dropout drops the same elements again where they are recomputed, and changes what is learned") {
  const TemporaryFolder folder;
  runtime::TrainSettings settings = settings_for(folder, 3);
  const auto losses = [&](float probability, sim::Recompute recompute) {
    sim::Scenario scenario = tests::training(tests::small_gpt());
    scenario.implementation.dropout = probability > 0;
    scenario.strategy.recompute = recompute;
    settings.dropout = probability;
    std::vector<double> all;
    for (const sim::StepResult& step : train(scenario, settings).steps) {
      all.push_back(step.loss);
      all.push_back(step.grad_norm);
    }
    return all;
  };
  const std::vector<double> kept = losses(0.2f, sim::Recompute::none);
  CHECK(losses(0.2f, sim::Recompute::full) == kept);
  const std::vector<double> without = losses(0, sim::Recompute::none);
  CHECK(without != kept);
  // So small a probability that none of these elements is dropped leaves the function as it is.
  const std::vector<double> hardly = losses(1e-9f, sim::Recompute::none);
  for (std::size_t i = 0; i < without.size(); ++i) CHECK(hardly[i] == Approx(without[i]).epsilon(1e-5));
}

TEST_CASE("Two runs with the same seed are equal bit by bit, with another they differ") {
  const TemporaryFolder folder;
  runtime::TrainSettings settings = settings_for(folder, 3);
  const sim::Scenario scenario = tests::training(tests::small_llama());
  const sim::Report first = train(scenario, settings), second = train(scenario, settings);
  CHECK(first.steps.back().loss == second.steps.back().loss);
  settings.seed = 2;
  CHECK(first.steps.back().loss != train(scenario, settings).steps.back().loss);
}

TEST_CASE("Micro-batches accumulate the gradient that one micro-batch writes, step after step") {
  const TemporaryFolder folder;
  const runtime::TrainSettings settings = settings_for(folder, 3);
  for (const sim::Model& model : {tests::small_gpt(), tests::small_llama()}) {
    CAPTURE(model.name);
    const sim::Report whole = train(tests::training(model, 16, 4, 4), settings);
    const sim::Report parts = train(tests::training(model, 16, 1, 4), settings);
    // The same fp32 sums in another order, over 64 tokens and the steps before.
    for (std::size_t step = 0; step < 3; ++step) {
      const double rounding = 64 * 0x1p-23 * static_cast<double>(1 + 2 * step);
      CHECK(parts.steps[step].loss == Approx(whole.steps[step].loss).epsilon(rounding));
      CHECK(parts.steps[step].grad_norm == Approx(whole.steps[step].grad_norm).epsilon(rounding));
    }
  }
}

TEST_CASE("A head in chunks trains as one at once does, in the planned memory, which is less") {
  const TemporaryFolder folder;
  const runtime::TrainSettings settings = settings_for(folder, 3);
  sim::Model model = GENERATE(tests::small_gpt(), tests::small_llama(), tests::small_hybrid());
  const bool tied = model.tie_word_embeddings = GENERATE(true, false);
  model.vocab_size = 2003;
  sim::Scenario scenario = tests::training(model, 16, 2, 4);
  scenario.strategy.recompute = GENERATE(sim::Recompute::none, sim::Recompute::full);
  const sim::Report whole = train(scenario, settings);
  const auto held = [](const sim::Report& report) {
    std::int64_t bytes = 0;
    for (const sim::MemoryLine& line : report.memory)
      if (!line.category.starts_with("platform")) bytes += line.bytes.value;
    return bytes;
  };
  for (const int chunks : {2, 8, 32}) {
    CAPTURE(model.name, tied, chunks);
    scenario.implementation.head_chunks = chunks;
    const sim::Report parts = train(scenario, settings);
    // The same fp32 sums in another order, over 64 tokens and the steps before.
    const double rounding = 64 * 0x1p-23 * 3;
    for (std::size_t step = 0; step < 3; ++step) {
      CHECK(parts.steps[step].loss == Approx(whole.steps[step].loss).epsilon(rounding));
      CHECK(parts.steps[step].grad_norm == Approx(whole.steps[step].grad_norm).epsilon(rounding));
    }
    // Categories of the ledger are what the operations touched: equal to the plan's arena.
    CHECK(held(parts) == sim::plan_memory(sim::make_plan(scenario)).arena.value);
    CHECK(held(parts) < held(whole));
  }
}

TEST_CASE("A padded vocabulary trains as one without padding, and is saved without it") {
  namespace fs = std::filesystem;
  sim::Model model =
      GENERATE(tests::small_gpt(), tests::small_llama());  // learned positions and rotated ones
  model.tie_word_embeddings = GENERATE(true, false);
  model.vocab_size = 301;
  sim::Scenario scenario = tests::training(model);
  const auto run = [&](int multiple, const TemporaryFolder& folder) {
    scenario.implementation.vocabulary_multiple = multiple;
    runtime::TrainSettings settings = settings_for(folder, 3);
    settings.checkpoint = (folder.path() / "checkpoint").string();
    return train(scenario, settings);
  };
  const TemporaryFolder with, without;
  const sim::Report alone = run(1, without), padded = run(128, with);
  // The same sums; products may add them up in another order, over 64 tokens and the steps before.
  const double rounding = 64 * 0x1p-23 * 3;
  for (std::size_t step = 0; step < 3; ++step) {
    CHECK(padded.steps[step].loss == Approx(alone.steps[step].loss).epsilon(rounding));
    CHECK(padded.steps[step].grad_norm == Approx(alone.steps[step].grad_norm).epsilon(rounding));
  }
  for (const char* const file : {"model-3.safetensors", "optimizer-3.safetensors"})
    CHECK(fs::file_size(with.path() / "checkpoint" / file) ==
          fs::file_size(without.path() / "checkpoint" / file));
}

TEST_CASE("Standard attention trains as flash attention does") {
  const TemporaryFolder folder;
  const runtime::TrainSettings settings = settings_for(folder, 1);
  sim::Scenario scenario = tests::training(tests::small_llama());
  const sim::Report flash = train(scenario, settings);
  scenario.implementation.attention = sim::AttentionKind::standard;
  const sim::Report standard = train(scenario, settings);
  const double rounding = 64 * 0x1p-23;
  CHECK(standard.steps[0].loss == Approx(flash.steps[0].loss).epsilon(rounding));
  CHECK(standard.steps[0].grad_norm == Approx(flash.steps[0].grad_norm).epsilon(rounding));
}

TEST_CASE("The events of a run fold into the report that it returns") {
  const TemporaryFolder folder;
  const sim::Scenario scenario = tests::training(tests::small_gpt());
  sim::Report folded;
  const sim::Report returned =
      runtime::train(scenario, tests::drawn(scenario.model), settings_for(folder, 3),
                     [&](const sim::Event& event) { sim::apply(folded, event); }, {});
  CHECK(sim::to_json(folded) == sim::to_json(returned));
}

TEST_CASE("The step's time is no less than its rows' and the median of the steps after the first") {
  const TemporaryFolder folder;
  const sim::Report report = train(tests::training(tests::small_gpt()), settings_for(folder, 6));
  double sum = 0;
  for (const sim::Row& row : report.rows) {
    sum += row.duration.value;
    CHECK(row.count > 0);
    CHECK(row.low <= row.duration);
    CHECK(row.duration <= row.high);
    CHECK(row.provenance == sim::Provenance::measured);
  }
  CHECK(sum <= report.step_time.value);
  std::vector<double> durations;
  for (std::size_t s = 1; s < report.steps.size(); ++s) durations.push_back(report.steps[s].duration.value);
  std::sort(durations.begin(), durations.end());
  CHECK(report.step_time.value == durations[2]);
}

TEST_CASE("A stop request ends the run after the step in hand, with the partial report") {
  const TemporaryFolder folder;
  const sim::Scenario scenario = tests::training(tests::small_gpt());
  std::stop_source stop;
  const sim::Report report = runtime::train(
      scenario, tests::drawn(scenario.model), settings_for(folder, 100),
      [&](const sim::Event& event) {
        if (const auto* step = std::get_if<sim::StepResult>(&event); step && step->step == 3)
          stop.request_stop();
      },
      stop.get_token());
  CHECK(report.steps.size() == 3);
  CHECK_FALSE(report.rows.empty());
  CHECK(report.message == "interrupted after 3 of 100 steps");
}

TEST_CASE("A run that cannot fit is refused before it starts, with both numbers") {
  const TemporaryFolder folder;
  const sim::Scenario scenario = tests::training(tests::small_gpt(), 64, 1 << 24, 1 << 24);
  REQUIRE_THROWS_AS(train(scenario, settings_for(folder, 1)), runtime::DoesNotFit);
}

TEST_CASE("A type that the CPU does not compute in is no suitable device") {
  const TemporaryFolder folder;
  sim::Scenario scenario = tests::training(tests::small_gpt());
  scenario.workload.dtype = sim::DType::tf32;
  scenario.hardware.peak[sim::DType::tf32] = sim::tflops(0.1);
  REQUIRE_THROWS_WITH(train(scenario, settings_for(folder, 1)),
                      Catch::Matchers::EndsWith("computes in fp32, bf16, fp16, fp8; workload.dtype is tf32"));
}

TEST_CASE("Experts with places for every row train as those that drop none, with fewer otherwise") {
  const TemporaryFolder folder;
  sim::Scenario scenario = tests::training(tests::small_experts());
  const runtime::TrainSettings settings = settings_for(folder, 4);
  const sim::Report dropless = train(scenario, settings);
  scenario.workload.expert_capacity_factor = static_cast<double>(scenario.model.moe.num_experts);
  const sim::Report all = train(scenario, settings);
  scenario.workload.expert_capacity_factor = 0.5;
  const sim::Report few = train(scenario, settings);
  for (std::size_t s = 0; s < dropless.steps.size(); ++s) {
    CHECK(all.steps[s].loss == Approx(dropless.steps[s].loss).epsilon(1e-5));
    CHECK(all.steps[s].grad_norm == Approx(dropless.steps[s].grad_norm).epsilon(1e-5));
    CHECK(few.steps[s].grad_norm != Approx(dropless.steps[s].grad_norm).epsilon(1e-5));
  }
}

TEST_CASE(
    "A capacity that leaves an expert no whole place, or one in generation, is refused with its field") {
  const TemporaryFolder folder;
  sim::Scenario scenario = tests::training(tests::small_experts(), 2, 1, 1);
  scenario.workload.expert_capacity_factor = 0.5;
  CHECK_THROWS_WITH(train(scenario, settings_for(folder, 1)),
                    "workload.expert_capacity_factor 0.500 leaves an expert less than one place of a "
                    "micro-batch's rows, of which it has 1 on average");
  scenario = tests::generation(tests::small_experts(), 2);
  scenario.workload.expert_capacity_factor = 1;
  CHECK_THROWS_WITH(runtime::Run(scenario, 1),
                    "experts take all rows that are sent to them where tokens are generated; "
                    "workload.expert_capacity_factor must be 0");
}

TEST_CASE("In bf16 the first loss is fp32's to the roundings of its logits, and training lowers it as far") {
  const TemporaryFolder folder;
  sim::Scenario scenario = tests::training(GENERATE(tests::small_gpt(), tests::small_llama()));
  runtime::TrainSettings settings = settings_for(folder, 150);
  settings.learning_rate = 1e-2f;
  const sim::Report wide = train(scenario, settings);
  scenario.workload.dtype = sim::DType::bf16;
  scenario.hardware.peak[sim::DType::bf16] = sim::tflops(0.1);
  const sim::Report narrow = train(scenario, settings);
  constexpr double kHalfStep = 0x1p-9;  // of bf16
  CHECK(narrow.steps.front().loss == Approx(wide.steps.front().loss).epsilon(kHalfStep));
  CHECK(narrow.steps.front().grad_norm == Approx(wide.steps.front().grad_norm).epsilon(8 * kHalfStep));
  const double guessing = std::log(static_cast<double>(scenario.model.vocab_size));
  CHECK(narrow.steps.back().loss < guessing - 1);
  // What is learned, not how: after 150 steps the two have taken other ways.
  CHECK(guessing - narrow.steps.back().loss > 0.9 * (guessing - wide.steps.back().loss));
}
