// Strategies over several ranks against one rank: the ranks are threads of the test.
#include "sim/plan/ranks.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/checkpoint_writer.h"
#include "runtime/error.h"
#include "runtime/generate.h"
#include "runtime/rank_trace.h"
#include "runtime/thread_ranks.h"
#include "runtime/train.h"
#include "sim/cost/step_detail.h"
#include "tests/runtime/random_strategy.h"
#include "tests/runtime/reference_device.h"
#include "tests/runtime/run_strategy.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

runtime::TrainSettings settings_for(const TemporaryFolder& folder) {
  runtime::TrainSettings settings;
  settings.steps = 4;
  settings.learning_rate = 1e-3f;
  settings.data = tests::write_tokens(folder.path());
  settings.device.threads = 1;
  return settings;
}

void on_node_of_eight(sim::Scenario& scenario) {
  scenario.hardware.devices_per_node = 8;
  scenario.hardware.node_link = sim::gb_per_s(5);
}

// Rank 0's report.
sim::Report train_on_ranks(const sim::Scenario& scenario, const runtime::TrainSettings& settings) {
  sim::Report report;
  runtime::run_thread_ranks(scenario.strategy.devices(), [&](runtime::Transport& transport) {
    runtime::Communicator communicator(transport);
    sim::Report own = runtime::train(scenario, tests::drawn(scenario.model), settings, communicator, {}, {});
    if (transport.rank() == 0) report = std::move(own);
  });
  return report;
}

void check_equal(const sim::Scenario& scenario, const runtime::TrainSettings& settings) {
  const sim::Strategy& s = scenario.strategy;
  CAPTURE(scenario.model.name, scenario.model.num_hidden_layers, scenario.model.num_key_value_heads,
          scenario.model.vocab_size, scenario.model.tie_word_embeddings, s.tensor_parallel,
          s.pipeline_parallel, s.context_parallel, sim::name(s.context_parallel_comm), s.expert_parallel,
          s.expert_tensor_parallel, s.data_parallel, s.zero_stage, s.sequence_parallel, s.schedule,
          s.virtual_pipeline, s.gradient_bucket, scenario.implementation.head_chunks,
          scenario.workload.micro_batch_size, sim::name(s.recompute), s.shard_group, s.rank_order,
          s.offload_optimizer, s.offload_activations);
  sim::Scenario of_one = scenario;
  of_one.strategy = {};
  const sim::Report one = train_on_ranks(of_one, settings), several = train_on_ranks(scenario, settings);
  REQUIRE(several.steps.size() == one.steps.size());
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    CHECK(several.steps[i].loss == Approx(one.steps[i].loss).epsilon(1e-5));
    CHECK(several.steps[i].grad_norm == Approx(one.steps[i].grad_norm).epsilon(1e-5));
  }
}

}  // namespace

TEST_CASE("Thirty random strategies of 2 to 8 ranks have the losses and gradient norms of one rank") {
  const TemporaryFolder folder;
  const runtime::TrainSettings settings = settings_for(folder);
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    check_equal(tests::random_scenario(seed), settings);
  }
}

TEST_CASE(
    "In double random strategies have the losses, gradient norms and parameters of one rank within 1e-11") {
  const TemporaryFolder folder;
  const runtime::TrainSettings settings = settings_for(folder);
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    const sim::Scenario scenario = tests::random_scenario(seed);
    sim::Scenario of_one = scenario;
    of_one.strategy = {};
    const tests::Trained several = tests::train_on_ranks(scenario, settings, tests::make_reference_device),
                         one = tests::train_on_ranks(of_one, settings, tests::make_reference_device);
    CHECK(tests::steps_apart(several.report, one.report) <= 1e-11);
    CHECK(tests::parameters_apart(several, one) <= 1e-11);
  }
}

TEST_CASE("Gradients of experts that stand whole on each tensor-parallel rank count once in the norm") {
  const TemporaryFolder folder;
  sim::Scenario s = tests::training(tests::small_experts(), 16, 1, 4);
  s.strategy.tensor_parallel = 2;
  s.strategy.expert_tensor_parallel = 1;
  s.strategy.sequence_parallel = true;
  on_node_of_eight(s);
  check_equal(s, settings_for(folder));
}

TEST_CASE(
    "Two directions of a pipeline, each of whose stages ends its sums in an order of its own, train as one "
    "rank") {
  const TemporaryFolder folder;
  sim::Model model = tests::small_llama();
  model.num_hidden_layers = 8;
  sim::Scenario s = tests::training(model, 16, 1, 8);
  s.strategy.pipeline_parallel = 4;
  s.strategy.schedule = "dualpipe";
  on_node_of_eight(s);
  check_equal(s, settings_for(folder));
}

TEST_CASE("Ranks that divide sequences cap scores as one rank, however they exchange keys") {
  const TemporaryFolder folder;
  sim::Model model = tests::small_llama();
  model.attn_logit_softcapping = 0.02;  // below most scores of an untrained model
  sim::Scenario s = tests::training(model, 32, 1, 4);
  on_node_of_eight(s);
  s.strategy.context_parallel = GENERATE(2, 4);
  s.strategy.context_parallel_comm =
      GENERATE(sim::ContextParallelComm::ring, sim::ContextParallelComm::all_gather,
               sim::ContextParallelComm::all_to_all);
  if (s.strategy.context_parallel_comm == sim::ContextParallelComm::all_to_all)
    s.strategy.context_parallel = 2;
  check_equal(s, settings_for(folder));
}

TEST_CASE("In 16 bits the losses of several ranks are one rank's as far as these bits say") {
  const TemporaryFolder folder;
  const runtime::TrainSettings settings = settings_for(folder);
  const sim::DType dtype = GENERATE(sim::DType::bf16, sim::DType::fp16);
  const auto [tensor, pipeline, data, zero] = GENERATE(table<int, int, int, int>(
      {{2, 1, 1, 0}, {1, 2, 1, 0}, {1, 1, 2, 0}, {2, 2, 2, 0}, {1, 1, 2, 1}, {1, 1, 2, 3}}));
  sim::Scenario s = tests::training(GENERATE(tests::small_gpt(), tests::small_llama()), 16, 1, 4);
  s.workload.dtype = dtype;
  s.hardware.peak[dtype] = sim::tflops(0.1);
  on_node_of_eight(s);
  CAPTURE(sim::name(dtype), s.model.name, tensor, pipeline, data, zero);
  sim::Scenario of_one = s;
  s.strategy.tensor_parallel = tensor;
  s.strategy.pipeline_parallel = pipeline;
  s.strategy.data_parallel = data;
  s.strategy.zero_stage = zero;
  const sim::Report one = train_on_ranks(of_one, settings), several = train_on_ranks(s, settings);
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    CHECK(several.steps[i].loss == Approx(one.steps[i].loss).epsilon(2e-3));
    CHECK(several.steps[i].grad_norm == Approx(one.steps[i].grad_norm).epsilon(2e-2));
  }
}

namespace {

// Sets the loss's scale of a checkpoint: a run that resumes there begins with it.
void set_loss_scale(const std::filesystem::path& checkpoint, float scale) {
  const std::filesystem::path index = checkpoint / runtime::kCheckpointIndex;
  nlohmann::json text = nlohmann::json::parse(std::ifstream(index));
  REQUIRE(text["metadata"].contains("loss_scale"));
  text["metadata"]["loss_scale"] = scale;
  std::ofstream(index) << text;
}

}  // namespace

TEST_CASE("In fp16 a step in which gradients of one rank overflow is skipped by all") {
  const TemporaryFolder folder;
  runtime::TrainSettings settings = settings_for(folder);
  sim::Scenario s = tests::training(tests::small_llama(), 16, 1, 4);
  s.workload.dtype = sim::DType::fp16;
  s.hardware.peak[sim::DType::fp16] = sim::tflops(0.1);
  on_node_of_eight(s);
  settings.checkpoint = folder.path() / "begun";
  settings.steps = 1;
  train_on_ranks(s, settings);
  const auto resumed = [&](const sim::Scenario& scenario, const char* name) {
    runtime::TrainSettings on = settings;
    on.checkpoint = folder.path() / name;
    std::filesystem::copy(settings.checkpoint, on.checkpoint, std::filesystem::copy_options::recursive);
    // Between 728,000 and 808,000 the largest gradients of the second step, and of no other, exceed 65,504.
    set_loss_scale(on.checkpoint, 774000);
    on.resume = true;
    on.steps = 4;
    return train_on_ranks(scenario, on);
  };
  const sim::Report one = resumed(s, "one");
  REQUIRE(one.steps.size() == 3);
  CHECK_FALSE(std::isfinite(one.steps[1].grad_norm));
  const auto [tensor, pipeline, data] = GENERATE(table<int, int, int>({{2, 1, 1}, {1, 2, 1}, {1, 1, 2}}));
  s.strategy.tensor_parallel = tensor;
  s.strategy.pipeline_parallel = pipeline;
  s.strategy.data_parallel = data;
  s.strategy.zero_stage = data > 1 ? 1 : 0;  // whose ranks have a part of the gradients each
  CAPTURE(tensor, pipeline, data);
  const sim::Report several = resumed(s, "several");
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    CHECK(several.steps[i].loss == Approx(one.steps[i].loss).epsilon(2e-3));
    REQUIRE(std::isfinite(several.steps[i].grad_norm) == std::isfinite(one.steps[i].grad_norm));
    if (std::isfinite(one.steps[i].grad_norm))
      CHECK(several.steps[i].grad_norm == Approx(one.steps[i].grad_norm).epsilon(2e-2));
  }
}

TEST_CASE("Types that several ranks are not known to train in are refused by a sentence") {
  const TemporaryFolder folder;
  sim::Scenario s = tests::training(tests::small_llama(), 16, 1, 4);
  s.workload.dtype = sim::DType::fp8;
  s.hardware.peak[sim::DType::fp8] = sim::tflops(0.1);
  s.strategy.data_parallel = 2;
  on_node_of_eight(s);
  CHECK_THROWS_WITH(
      train_on_ranks(s, settings_for(folder)),
      contains("training in fp8 can be predicted but not run here on several devices; the strategy has 2"));
}

TEST_CASE("Adapters that several ranks train are one rank's") {
  const TemporaryFolder folder;
  sim::Scenario s = tests::training(GENERATE(tests::small_gpt(), tests::small_llama()), 16, 1, 4);
  s.workload.lora_rank = 2;
  const auto [tensor, pipeline, context, data, zero] =
      GENERATE(table<int, int, int, int, int>({{2, 1, 1, 1, 0},
                                               {1, 2, 1, 1, 0},
                                               {1, 1, 2, 1, 0},
                                               {1, 1, 1, 2, 0},
                                               {1, 1, 1, 2, 1},
                                               {1, 1, 1, 2, 2},
                                               {1, 1, 1, 2, 3},
                                               {2, 2, 1, 2, 1}}));
  CAPTURE(s.model.name, tensor, pipeline, context, data, zero);
  s.strategy.tensor_parallel = tensor;
  s.strategy.pipeline_parallel = pipeline;
  s.strategy.context_parallel = context;
  s.strategy.data_parallel = data;
  s.strategy.zero_stage = zero;
  on_node_of_eight(s);
  check_equal(s, settings_for(folder));
}

TEST_CASE("Adapters that several ranks train beside frozen weights in fewer bits are one rank's") {
  const TemporaryFolder folder;
  sim::Scenario s = tests::training(tests::small_llama(), 16, 1, 4);
  s.workload.lora_rank = 2;
  s.workload.frozen_weights = GENERATE(sim::FrozenWeights::int8, sim::FrozenWeights::nf4_double);
  const auto [pipeline, context, data, zero] = GENERATE(
      table<int, int, int, int>({{3, 1, 1, 0}, {1, 2, 1, 0}, {1, 1, 2, 0}, {1, 1, 2, 1}, {1, 1, 2, 2}}));
  CAPTURE(sim::name(s.workload.frozen_weights), pipeline, context, data, zero);
  s.strategy.pipeline_parallel = pipeline;
  s.strategy.context_parallel = context;
  s.strategy.data_parallel = data;
  s.strategy.zero_stage = zero;
  on_node_of_eight(s);
  check_equal(s, settings_for(folder));
}

TEST_CASE("Tensor-parallel ranks beside frozen weights in fewer bits are refused by a sentence") {
  const TemporaryFolder folder;
  sim::Scenario s = tests::training(tests::small_llama(), 16, 1, 4);
  s.workload.lora_rank = 2;
  s.workload.frozen_weights = sim::FrozenWeights::nf4;
  s.strategy.tensor_parallel = 2;
  on_node_of_eight(s);
  CHECK_THROWS_WITH(train_on_ranks(s, settings_for(folder)),
                    contains("frozen weights in nf4 are stored whole here; strategy.tensor_parallel is 2, it "
                             "must be 1"));
}

TEST_CASE("Ranks that divide sequences learn attention sinks as one rank, however they exchange keys") {
  const TemporaryFolder folder;
  runtime::TrainSettings settings = settings_for(folder);
  settings.learning_rate = 0.3f;
  sim::Model model = tests::small_llama();
  model.attention_sinks = true;
  model.num_attention_heads = 8;
  model.num_key_value_heads = 4;
  sim::Scenario s = tests::training(model, 16, 1, 4);
  s.workload.optimizer = sim::Optimizer::sgd;  // its steps are as long as gradients are
  on_node_of_eight(s);
  const auto trained = [&] {
    return tests::train_on_ranks(s, settings, [] { return runtime::make_cpu_device(1); });
  };
  const tests::Trained one = trained();
  const auto [tensor, context] = GENERATE(table<int, int>({{1, 2}, {1, 4}, {2, 2}}));
  s.strategy.tensor_parallel = tensor;
  s.strategy.context_parallel = context;
  s.strategy.context_parallel_comm =
      GENERATE(sim::ContextParallelComm::ring, sim::ContextParallelComm::all_gather,
               sim::ContextParallelComm::all_to_all);
  CAPTURE(tensor, context, sim::name(s.strategy.context_parallel_comm));
  const tests::Trained several = trained();
  CHECK(tests::steps_apart(several.report, one.report) <= 1e-5);
  CHECK(tests::parameters_apart(several, one) <= 1e-5);
}

TEST_CASE("Ranks that divide a vocabulary cap its logits as one rank") {
  const TemporaryFolder folder;
  sim::Model model = tests::small_llama();
  model.final_logit_softcapping = 0.02;  // below most logits of an untrained model
  model.vocab_size = 301;                // the last rank's part is shorter
  sim::Scenario s = tests::training(model, 16, 1, 4);
  s.strategy.tensor_parallel = 2;
  on_node_of_eight(s);
  check_equal(s, settings_for(folder));
  sim::Scenario without = s;
  without.model.final_logit_softcapping = 0;
  CHECK(train_on_ranks(without, settings_for(folder)).steps.back().loss !=
        Approx(train_on_ranks(s, settings_for(folder)).steps.back().loss).epsilon(1e-4));
}

TEST_CASE("In bf16 ranks that divide sequences train as one, however they exchange keys") {
  const TemporaryFolder folder;
  const runtime::TrainSettings settings = settings_for(folder);
  sim::Scenario s = tests::training(tests::small_llama(), 16, 1, 4);
  s.workload.dtype = sim::DType::bf16;
  s.hardware.peak[sim::DType::bf16] = sim::tflops(0.1);
  on_node_of_eight(s);
  const sim::Report one = train_on_ranks(s, settings);
  s.strategy.context_parallel = 2;
  s.strategy.context_parallel_comm =
      GENERATE(sim::ContextParallelComm::ring, sim::ContextParallelComm::all_gather,
               sim::ContextParallelComm::all_to_all);
  CAPTURE(sim::name(s.strategy.context_parallel_comm));
  const sim::Report several = train_on_ranks(s, settings);
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    CHECK(several.steps[i].loss == Approx(one.steps[i].loss).epsilon(2e-3));
    CHECK(several.steps[i].grad_norm == Approx(one.steps[i].grad_norm).epsilon(2e-2));
  }
}

TEST_CASE("Optimizers of whole tensors train on ranks that divide data, sequences or layers as on one") {
  const TemporaryFolder folder;
  const runtime::TrainSettings settings = settings_for(folder);
  sim::Model model = tests::small_llama();
  model.num_hidden_layers = 4;
  model.vocab_size = 301;
  sim::Scenario s = tests::training(model, 16, 1, 4);
  on_node_of_eight(s);
  for (const sim::Optimizer optimizer :
       {sim::Optimizer::muon, sim::Optimizer::adafactor, sim::Optimizer::adamw_8bit}) {
    CAPTURE(sim::name(optimizer));
    s.workload.optimizer = optimizer;
    for (const auto& [data, pipeline, context] :
         {std::tuple{2, 1, 1}, std::tuple{1, 2, 1}, std::tuple{1, 1, 2}, std::tuple{2, 2, 1}}) {
      s.strategy = {};
      s.strategy.data_parallel = data;
      s.strategy.pipeline_parallel = pipeline;
      s.strategy.context_parallel = context;
      check_equal(s, settings);
    }
    s.strategy = {};
    s.strategy.tensor_parallel = 2;
    CHECK_THROWS_WITH(train_on_ranks(s, settings),
                      contains("works on whole tensors here; strategy.tensor_parallel is 2"));
  }
  s.strategy = {};
  s.strategy.data_parallel = 2;
  s.strategy.zero_stage = 1;
  CHECK_THROWS_WITH(train_on_ranks(s, settings), contains("strategy.zero_stage is 1, it must be 0"));
}

TEST_CASE("Divided experts have room for whatever tokens choose, and a run says how uneven that was") {
  const TemporaryFolder folder;
  sim::Model model = tests::small_experts();
  model.moe.num_experts_per_tok = 1;
  sim::Scenario s = tests::training(model, 16, 1, 4);
  s.strategy.data_parallel = s.strategy.expert_parallel = 2;
  on_node_of_eight(s);
  const runtime::TrainSettings settings = settings_for(folder);
  check_equal(s, settings);
  const double uneven = train_on_ranks(s, settings).expert_imbalance;
  CHECK(uneven > 1);
  CHECK(uneven <= 2);  // all on one rank
  s.strategy.expert_parallel = 1;
  CHECK(train_on_ranks(s, settings).expert_imbalance == 0);
}

TEST_CASE("Experts to whom more rows come than the plan provides for say what would do") {
  const TemporaryFolder folder;
  sim::Scenario s = tests::training(tests::small_experts(), 16, 1, 4);
  s.strategy.data_parallel = s.strategy.expert_parallel = 2;
  s.implementation.expert_parallel.room_for_any_choice = false;
  on_node_of_eight(s);
  CHECK_THROWS_WITH(train_on_ranks(s, settings_for(folder)), contains("workload.expert_imbalance"));
}

TEST_CASE("Experts of several ranks with places for every row train as one rank's, however rows are spread") {
  const TemporaryFolder folder;
  sim::Scenario s = tests::training(tests::small_experts(), 16, 1, 4);
  const sim::Report one = runtime::train(s, tests::drawn(s.model), settings_for(folder), {}, {});
  s.strategy.data_parallel = s.strategy.expert_parallel = 2;
  s.workload.expert_capacity_factor = static_cast<double>(s.model.moe.num_experts);
  on_node_of_eight(s);
  const sim::Report two = train_on_ranks(s, settings_for(folder));
  REQUIRE(two.steps.size() == one.steps.size());
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    CHECK(two.steps[i].loss == Approx(one.steps[i].loss).epsilon(1e-5));
    CHECK(two.steps[i].grad_norm == Approx(one.steps[i].grad_norm).epsilon(1e-5));
  }
}

TEST_CASE(
    "Each rank's measured arena is its plan's, and it runs its stage's operations as often as planned") {
  for (std::uint32_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    const sim::Scenario scenario = tests::random_scenario(seed);
    struct OfRank {
      sim::Bytes planned, touched;
      std::vector<std::int64_t> counted, expected;
    };
    std::vector<OfRank> ranks(static_cast<std::size_t>(scenario.strategy.devices()));
    runtime::run_thread_ranks(scenario.strategy.devices(), [&](runtime::Transport& transport) {
      runtime::Communicator communicator(transport);
      runtime::Run run(scenario, runtime::make_cpu_device(1), communicator);
      run.fill_parameters(tests::drawn(scenario.model), 1);
      runtime::RunSettings settings;
      settings.vocabulary = run.vocabulary();
      settings.context = run.context();
      const runtime::SectionTiming timing = run.executor().run(0, settings);
      OfRank& own = ranks[static_cast<std::size_t>(transport.rank())];
      own.planned = run.memory().arena;
      own.touched = run.executor().arena().high_water();
      std::map<std::pair<sim::Phase, std::string>, std::int64_t> count;
      const auto stage = static_cast<std::size_t>(run.place().pipeline);
      for (const sim::Action& action : run.plan().programs[stage].actions)
        for (const sim::Operation& op : run.plan().blocks[static_cast<std::size_t>(action.block)].operations)
          ++count[{action.phase, op.id}];
      for (std::size_t r = 0; r < run.executor().rows().size(); ++r) {
        const runtime::RowKey& key = run.executor().rows()[r];
        own.counted.push_back(timing.count[r]);
        own.expected.push_back(count[{key.phase, key.id}]);
      }
    });
    for (const OfRank& own : ranks) {
      CHECK(own.touched == own.planned);
      CHECK(own.counted == own.expected);
    }
  }
}

namespace {

std::vector<runtime::Generation> generated_by_ranks(const sim::Scenario& s,
                                                    const runtime::GenerateSettings& settings) {
  std::vector<runtime::Generation> ranks(static_cast<std::size_t>(s.strategy.devices()));
  runtime::run_thread_ranks(s.strategy.devices(), [&](runtime::Transport& transport) {
    runtime::Communicator communicator(transport);
    ranks[static_cast<std::size_t>(transport.rank())] =
        runtime::generate(s, tests::drawn(s.model), settings, communicator, {}, {});
  });
  return ranks;
}

float farthest(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  float most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

}  // namespace

TEST_CASE(
    "Generation by several ranks gives one rank's tokens: dense, few key-value heads, experts, hybrids, any "
    "batch") {
  const auto batch = GENERATE(1, 3);
  const auto temperature = GENERATE(0.0f, 1.0f);
  sim::Model few_heads = tests::small_llama();
  few_heads.num_attention_heads = 8;
  few_heads.num_hidden_layers = 5;
  few_heads.vocab_size = 301;
  sim::Model tied = tests::small_gpt();
  tied.num_hidden_layers = 4;
  tied.tie_word_embeddings = true;
  sim::Model deep_experts = tests::small_experts();
  deep_experts.num_hidden_layers = 4;
  const auto [model, tensor, pipeline, experts] =
      GENERATE_COPY(table<sim::Model, int, int, int>({{tests::small_gpt(), 2, 1, 1},
                                                      {few_heads, 4, 1, 1},
                                                      {tests::small_llama(), 2, 1, 1},
                                                      {tests::small_experts(), 2, 1, 1},
                                                      {tests::small_experts(), 1, 1, 2},
                                                      {tied, 1, 2, 1},
                                                      {tied, 1, 4, 1},
                                                      {few_heads, 2, 3, 1},
                                                      {few_heads, 4, 2, 1},
                                                      {deep_experts, 1, 2, 2},
                                                      {deep_experts, 2, 2, 1},
                                                      {tests::small_hybrid(), 1, 2, 1}}));
  CAPTURE(model.name, tensor, pipeline, experts, batch, temperature);
  sim::Scenario s = tests::generation(model, 12, batch);
  runtime::GenerateSettings settings;
  settings.prompt = {1, 2, 3, 5, 8};
  settings.temperature = temperature;
  settings.device.threads = 1;
  const runtime::Generation one = runtime::generate(s, tests::drawn(model), settings, {}, {});
  s.strategy.tensor_parallel = tensor;
  s.strategy.pipeline_parallel = pipeline;
  s.strategy.data_parallel = s.strategy.expert_parallel = experts;
  on_node_of_eight(s);
  const std::vector<runtime::Generation> ranks = generated_by_ranks(s, settings);
  REQUIRE(one.tokens[0].size() == 12);
  for (const runtime::Generation& of_rank : ranks) CHECK(of_rank.tokens == one.tokens);
  CHECK(farthest(ranks[0].first_logits, one.first_logits) < 1e-4);
}

TEST_CASE("Several ranks with weights in 2 to 8 bits, by layer too, give one rank's tokens") {
  using sim::DType;
  sim::Model model = tests::small_llama();
  model.hidden_size = 64;
  model.intermediate_size = 128;
  model.num_hidden_layers = 4;
  model.vocab_size = 301;  // padded where ranks divide it
  struct Stored {
    DType type;
    bool zeros;
    std::optional<DType> qkv_and_down, up_and_output;
    std::string layers;
  };
  const Stored stored = GENERATE(
      Stored{DType::int8, false, {}, {}, ""}, Stored{DType::int8, true, {}, {}, ""},
      Stored{DType::int5, true, {}, {}, ""}, Stored{DType::int4, true, {}, {}, ""},
      Stored{DType::int4, true, DType::int8, {}, "0,2-3"}, Stored{DType::int4, false, {}, DType::int8, ""},
      Stored{DType::q2_k, false, {}, {}, ""}, Stored{DType::q4_k, false, DType::q6_k, {}, "1"},
      Stored{DType::q3_k, false, DType::q5_k, DType::int8, ""});
  CAPTURE(std::string(sim::name(stored.type)), stored.zeros, stored.layers);
  if (sim::stored_blocks(stored.type)) {  // ranks have rows of whole blocks
    model.hidden_size = 512;
    model.intermediate_size = 1024;
    model.head_dim = model.hidden_size / model.num_attention_heads;
  }
  sim::Scenario s = tests::generation(model, 6, 2);
  sim::Workload& w = s.workload;
  w.weights_dtype = w.embedding_dtype = stored.type;
  w.head_dtype = stored.up_and_output;
  w.weights_group = 32;
  w.weights_zeros = stored.zeros;
  w.qkv_dtype = w.down_dtype = stored.qkv_and_down;
  w.up_dtype = w.output_dtype = stored.up_and_output;
  w.mixed_layers = stored.layers;
  runtime::GenerateSettings settings;
  settings.prompt = {1, 2, 3, 5, 300};
  settings.device.threads = 1;
  const runtime::Generation one = runtime::generate(s, tests::drawn(model), settings, {}, {});
  for (const auto& [tensor, pipeline] : {std::pair{2, 1}, {1, 2}, {2, 2}}) {
    CAPTURE(tensor, pipeline);
    s.strategy.tensor_parallel = tensor;
    s.strategy.pipeline_parallel = pipeline;
    on_node_of_eight(s);
    const std::vector<runtime::Generation> ranks = generated_by_ranks(s, settings);
    for (const runtime::Generation& of_rank : ranks) CHECK(of_rank.tokens == one.tokens);
    CHECK(farthest(ranks[0].first_logits, one.first_logits) < 1e-4);
  }
}

TEST_CASE(
    "Several ranks with experts in 2 to 8 bits, divided by experts and within each, give one rank's tokens") {
  using sim::DType;
  sim::Model model = tests::small_experts();
  model.num_hidden_layers = 4;
  model.moe.shared_expert_intermediate_size = 64;
  struct Stored {
    std::optional<DType> weights, experts, down;
    std::string layers;
  };
  const Stored stored = GENERATE(Stored{DType::int8, {}, {}, ""}, Stored{{}, DType::int4, {}, ""},
                                 Stored{DType::int5, DType::int4, DType::int8, "1-2"},
                                 Stored{DType::q4_k, {}, DType::q6_k, "0,3"},
                                 Stored{DType::q6_k, DType::q3_k, DType::q5_k, ""});
  const bool in_blocks = stored.weights && sim::stored_blocks(*stored.weights);
  const std::int64_t columns = in_blocks ? 512 : 64;  // whole groups or blocks in each of two ranks
  model.hidden_size = model.intermediate_size = columns;
  model.moe.moe_intermediate_size = model.moe.shared_expert_intermediate_size = columns;
  model.head_dim = columns / model.num_attention_heads;
  sim::Scenario s = tests::generation(model, 6, 2);
  sim::Workload& w = s.workload;
  w.weights_dtype = stored.weights;
  w.expert_weights_dtype = stored.experts;
  w.down_dtype = stored.down;
  w.mixed_layers = stored.layers;
  w.weights_group = 32;
  runtime::GenerateSettings settings;
  settings.prompt = {1, 2, 3, 5, 300};
  settings.device.threads = 1;
  const runtime::Generation one = runtime::generate(s, tests::drawn(model), settings, {}, {});
  for (const auto& [tensor, pipeline, experts] : {std::tuple{2, 1, 1}, {1, 1, 2}, {1, 2, 1}, {1, 2, 2}}) {
    CAPTURE(columns, stored.layers, tensor, pipeline, experts);
    s.strategy.tensor_parallel = tensor;
    s.strategy.pipeline_parallel = pipeline;
    s.strategy.data_parallel = s.strategy.expert_parallel = experts;
    on_node_of_eight(s);
    const std::vector<runtime::Generation> ranks = generated_by_ranks(s, settings);
    for (const runtime::Generation& of_rank : ranks) CHECK(of_rank.tokens == one.tokens);
    CHECK(farthest(ranks[0].first_logits, one.first_logits) < 1e-4);
  }
}

TEST_CASE(
    "Every schedule's actions run on each stage in the plan's order, none is received before it is sent, and "
    "each rank touches the bytes that its plan says") {
  const auto name = GENERATE_COPY(from_range(sim::kScheduleNames));
  std::size_t ran = 0;
  for (const int stages : {2, 4})
    for (const int chunks : {1, 2}) {
      sim::Model model = tests::small_llama();
      model.num_hidden_layers = 8;
      sim::Scenario s = tests::training(model, 16, 1, 8);
      s.strategy.pipeline_parallel = stages;
      s.strategy.virtual_pipeline = chunks;
      s.strategy.schedule = name;
      on_node_of_eight(s);
      if (!sim::validate(s).empty()) continue;
      ++ran;
      CAPTURE(name, stages, chunks);
      const auto ranks = static_cast<std::size_t>(stages);
      std::vector<sim::Bytes> planned(ranks), touched(ranks);
      std::vector<runtime::TracedAction> trace;
      const sim::Plan plan = sim::make_plan(s);
      runtime::run_thread_ranks(stages, [&](runtime::Transport& transport) {
        runtime::Communicator communicator(transport);
        runtime::Run run(s, runtime::make_cpu_device(1), communicator);
        run.fill_parameters(tests::drawn(model), 1);
        runtime::RunSettings settings;
        settings.vocabulary = run.vocabulary();
        settings.context = run.context();
        run.executor().run(0, settings);
        const auto rank = static_cast<std::size_t>(transport.rank());
        planned[rank] = run.memory().arena;
        touched[rank] = run.executor().arena().high_water();
        std::vector<runtime::TracedAction> actions = runtime::actions_of(runtime::gather_trace(run));
        if (rank == 0) trace = std::move(actions);
      });
      CHECK(touched == planned);

      std::vector<std::vector<runtime::TracedAction>> of_stage(ranks);
      for (const runtime::TracedAction& a : trace) of_stage[static_cast<std::size_t>(a.rank)].push_back(a);
      using Message = std::tuple<std::size_t, sim::Phase, std::int32_t, std::int32_t>;  // to, what
      std::map<Message, double> sent;
      for (std::size_t stage = 0; stage < ranks; ++stage) {
        REQUIRE(of_stage[stage].size() == plan.programs[stage].actions.size());
        bool in_order = true;
        for (std::size_t i = 0; i < of_stage[stage].size(); ++i) {
          const runtime::TracedAction& a = of_stage[stage][i];
          in_order = in_order && a.action == i && a.end >= a.start &&
                     (i == 0 || a.start >= of_stage[stage][i - 1].start);
          const sim::Action& action = plan.programs[stage].actions[i];
          if (action.stream == sim::kSendStream)
            sent[{static_cast<std::size_t>(action.peer), action.phase, action.micro_batch, action.chunk}] =
                a.start;
        }
        CHECK(in_order);
      }
      std::size_t received = 0;
      for (std::size_t stage = 0; stage < ranks; ++stage)
        for (const runtime::TracedAction& a : of_stage[stage]) {
          const sim::Action& action = plan.programs[stage].actions[a.action];
          if (action.peer < 0 || action.stream == sim::kSendStream) continue;
          const auto message = sent.find({stage, action.phase, action.micro_batch, action.chunk});
          REQUIRE(message != sent.end());
          ++received;
          // Clocks are the same here, but for what their comparison takes.
          CHECK(a.end > message->second - 1e-3);
        }
      CHECK(received == sent.size());
      CHECK(received > 0);
    }
  CHECK(ran > 0);
}

TEST_CASE("A trace has a process for each rank, and in it all that the rank's stage runs in a step") {
  const TemporaryFolder folder;
  runtime::TrainSettings settings = settings_for(folder);
  settings.steps = 2;
  settings.trace = (folder.path() / "trace.json").string();
  sim::Model model = tests::small_llama();
  model.num_hidden_layers = 4;
  sim::Scenario s = tests::training(model, 16, 1, 8);
  s.strategy.pipeline_parallel = s.strategy.data_parallel = 2;
  on_node_of_eight(s);
  train_on_ranks(s, settings);
  std::ifstream file(settings.trace);
  const nlohmann::json trace = nlohmann::json::parse(file);
  std::map<int, std::size_t> spans;
  std::map<int, std::string> names;
  double earliest = 1e9;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    const int rank = event.at("pid");
    if (event.at("ph") == "X") {
      ++spans[rank];
      earliest = std::min(earliest, event.at("ts").get<double>());
      CHECK(event.at("dur").get<double>() >= 0);
    } else if (event.at("name") == "process_name") {
      names[rank] = event.at("args").at("name");
    }
  }
  const sim::Plan plan = sim::make_plan(s);
  REQUIRE(spans.size() == 4);
  for (int rank = 0; rank < 4; ++rank) {
    const auto stage = static_cast<std::size_t>(sim::place_of_rank(s.strategy, rank).pipeline);
    CHECK(spans[rank] == plan.programs[stage].actions.size());
    CHECK(names[rank] == "rank " + std::to_string(rank) + ", stage " + std::to_string(stage));
  }
  CHECK(earliest == 0);
}

TEST_CASE(
    "While ranks train, each one's passes are told as events, and are those that its stage is planned to "
    "run") {
  const TemporaryFolder folder;
  runtime::TrainSettings settings = settings_for(folder);
  settings.steps = 2;
  settings.tell_timelines = true;
  sim::Model model = tests::small_llama();
  model.num_hidden_layers = 4;
  sim::Scenario s = tests::training(model, 16, 1, 8);
  s.strategy.tensor_parallel = s.strategy.pipeline_parallel = s.strategy.data_parallel = 2;
  on_node_of_eight(s);
  std::map<std::int32_t, std::vector<sim::TimelineSlot>> told;
  runtime::run_thread_ranks(8, [&](runtime::Transport& transport) {
    runtime::Communicator communicator(transport);
    runtime::train(s, tests::drawn(s.model), settings, communicator,
                   [&](const sim::Event& event) {
                     if (const auto* timeline = std::get_if<sim::RankTimelineEvent>(&event))
                       told[timeline->rank] = timeline->slots;
                   },
                   {});
  });
  REQUIRE(told.size() == 8);
  const std::vector<sim::TimelineSlot> planned = sim::step_detail(sim::make_plan(s), s.hardware).slots;
  for (const auto& [rank, slots] : told) {
    CAPTURE(rank);
    const std::int32_t stage = sim::place_of_rank(s.strategy, rank).pipeline;
    const auto passes = [&](const std::vector<sim::TimelineSlot>& of) {
      std::vector<std::tuple<sim::Phase, bool, std::int32_t, std::int32_t>> all;
      for (const sim::TimelineSlot& slot : of)
        if (slot.stage == stage) all.emplace_back(slot.phase, slot.weights, slot.micro_batch, slot.chunk);
      return all;
    };
    CHECK(passes(slots) == passes(planned));
  }
}

TEST_CASE(
    "a run tells each operation of a step as its plan orders them, and the memory of its first four steps") {
  const TemporaryFolder folder;
  runtime::TrainSettings settings = settings_for(folder);
  settings.steps = 5;
  settings.tell_timelines = true;
  const sim::Scenario s = tests::training(tests::small_llama(), 16, 1, 2);
  std::vector<sim::OperationTimelineEvent> told;
  std::vector<sim::StepMemoryEvent> memory;
  std::vector<sim::StepResult> steps;
  runtime::train(s, tests::drawn(s.model), settings,
                 [&](const sim::Event& event) {
                   if (const auto* one = std::get_if<sim::OperationTimelineEvent>(&event))
                     told.push_back(*one);
                   if (const auto* one = std::get_if<sim::StepMemoryEvent>(&event)) memory.push_back(*one);
                   if (const auto* one = std::get_if<sim::StepResult>(&event)) steps.push_back(*one);
                 },
                 {});
  REQUIRE(!told.empty());
  CHECK(told.back().step == settings.steps);
  const sim::OperationTimeline& last = told.back().timeline;
  const sim::Plan plan = sim::make_plan(s);
  std::vector<std::string> planned;
  for (const sim::Action& action : plan.programs.front().actions)
    for (const sim::Operation& operation : plan.blocks[static_cast<std::size_t>(action.block)].operations)
      planned.push_back(std::string(sim::name(action.phase)) + operation.id);
  REQUIRE(last.spans.size() == planned.size());
  double before = 0;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    const sim::OperationSpan& span = last.spans[i];
    const sim::OperationName& name = last.names[static_cast<std::size_t>(span.name)];
    CHECK(std::string(sim::name(name.phase)) + name.id == planned[i]);
    CHECK(span.start.value >= before);
    CHECK(span.end >= span.start);
    before = span.end.value;
  }
  CHECK(before <= told.back().duration.value);

  REQUIRE(memory.size() == 4);
  for (std::size_t i = 0; i < memory.size(); ++i) {
    CHECK(memory[i].step == static_cast<std::int64_t>(i) + 1);
    CHECK(memory[i].duration == steps[i].duration);
    CHECK(memory[i].in_use.value > 0);
    if (i > 0) CHECK(memory[i].begin.value >= (memory[i - 1].begin + memory[i - 1].duration).value * 0.999);
    sim::Bytes peak;
    for (const sim::MemoryTimePoint& point : memory[i].points) peak = std::max(peak, sim::total(point.bytes));
    if (i > 0) CHECK(peak == sim::plan_memory(plan).live_peak);
  }
}

TEST_CASE(
    "A checkpoint written by some ranks is read bit by bit by others, and back, and resumed from alike") {
  const TemporaryFolder folder;
  runtime::TrainSettings settings = settings_for(folder);
  settings.steps = 2;
  sim::Model model = tests::small_llama();
  model.num_hidden_layers = 4;
  model.vocab_size = 301;
  const auto on = [&](int tensor, int pipeline, int data, int zero) {
    sim::Scenario s = tests::training(model, 16, 1, 8);
    s.strategy.tensor_parallel = tensor;
    s.strategy.pipeline_parallel = pipeline;
    s.strategy.data_parallel = data;
    s.strategy.zero_stage = zero;
    s.hardware.devices_per_node = 4;
    s.hardware.node_link = s.hardware.host_link = s.hardware.host_memory_bandwidth = sim::gb_per_s(5);
    return s;
  };
  const auto with_states_on_host = [](sim::Scenario s) {
    s.strategy.offload_optimizer = true;
    return s;
  };
  const auto content = [&](const std::string& name) {
    std::ifstream in(folder.path() / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  settings.checkpoint = (folder.path() / "a").string();
  const sim::Scenario writer = on(2, 2, 1, 0);
  train_on_ranks(writer, settings);
  const std::string parameters = content("a/model-2.safetensors"),
                    moments = content("a/optimizer-2.safetensors");
  REQUIRE(!parameters.empty());
  // Nothing is left to train: the same step is written again by whoever reads it.
  const sim::Scenario reader =
      GENERATE_COPY(on(1, 1, 4, 0), on(1, 1, 4, 3), on(1, 4, 1, 0), on(2, 1, 2, 2), on(1, 1, 1, 0),
                    with_states_on_host(on(1, 1, 1, 0)), with_states_on_host(on(1, 2, 2, 1)));
  CAPTURE(reader.strategy.data_parallel, reader.strategy.zero_stage, reader.strategy.pipeline_parallel);
  const auto write_again = [&](const sim::Scenario& scenario, const char* from, const char* to) {
    runtime::run_thread_ranks(scenario.strategy.devices(), [&](runtime::Transport& transport) {
      runtime::Communicator communicator(transport);
      runtime::Run run(scenario, runtime::make_cpu_device(1), communicator);
      const runtime::CheckpointState state = runtime::load_checkpoint(folder.path() / from, run);
      runtime::CheckpointWriter checkpoint(folder.path() / to, {}, sim::gib(1));
      checkpoint.save(run, state);
      checkpoint.finish();
    });
  };
  write_again(reader, "a", "b");
  CHECK(content("b/model-2.safetensors") == parameters);
  CHECK(content("b/optimizer-2.safetensors") == moments);
  write_again(writer, "b", "c");  // and back
  CHECK(content("c/model-2.safetensors") == parameters);
  CHECK(content("c/optimizer-2.safetensors") == moments);

  settings.steps = 4;
  settings.resume = true;
  const auto resumed = [&](const sim::Scenario& scenario, const char* from) {
    settings.checkpoint = (folder.path() / from).string();
    return train_on_ranks(scenario, settings).steps;
  };
  const std::vector<sim::StepResult> of_reader = resumed(reader, "b"), of_writer = resumed(writer, "c");
  REQUIRE(of_reader.size() == 2);
  for (std::size_t i = 0; i < of_reader.size(); ++i)
    CHECK(of_reader[i].loss == Approx(of_writer[i].loss).epsilon(1e-5));
}

TEST_CASE("When a rank fails, every other hears of it and its reason is what the caller hears") {
  const auto failing = [](runtime::Transport& transport) {
    runtime::Communicator communicator(transport);
    if (transport.rank() == 2) throw runtime::DeviceError("no memory left");
    communicator.barrier();
  };
  CHECK_THROWS_WITH(runtime::run_thread_ranks(4, failing), "no memory left");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which reserve more than any such limit
TEST_CASE(
    "Where the system has no room for another rank, those that run end and the caller hears which one") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  std::ifstream pages("/proc/self/statm");
  rlim_t size = 0;
  REQUIRE(pages >> size);
  // Room for a few threads' stacks, of 64.
  const rlimit tight{size * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{64} << 20), before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_AS, &tight) == 0);
  std::string reason;
  try {
    runtime::run_thread_ranks(64, [](runtime::Transport& transport) {
      runtime::Communicator communicator(transport);
      communicator.barrier();
    });
  } catch (const runtime::DeviceError& error) {
    reason = error.what();
  }
  setrlimit(RLIMIT_AS, &before);
  CHECK_THAT(reason, contains("of 64 cannot be started"));
}
#endif
