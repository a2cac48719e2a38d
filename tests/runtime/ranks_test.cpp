// Strategies over several ranks against one rank: the ranks are threads of the test.
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <utility>

#include "runtime/checkpoint.h"
#include "runtime/error.h"
#include "runtime/thread_ranks.h"
#include "runtime/train.h"
#include "sim/plan/legality.h"
#include "sim/plan/schedule.h"
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

sim::Model small_model(std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<std::int64_t> values) {
    return values.begin()[random() % values.size()];
  };
  sim::Model m = random() % 2 == 0 ? tests::small_gpt() : tests::small_llama();
  m.num_hidden_layers = one_of({4, 5, 8});
  m.num_attention_heads = one_of({4, 8});
  m.num_key_value_heads = m.position == sim::Position::rope ? one_of({1, 2, 4}) : m.num_attention_heads;
  m.head_dim = 8;
  m.hidden_size = m.position == sim::Position::rope ? 24 : m.num_attention_heads * m.head_dim;
  m.intermediate_size = 64;
  m.vocab_size = one_of({256, 301});
  m.tie_word_embeddings = random() % 2 == 0;
  return m;
}

// A legal strategy of several ranks, drawn at random, over a model drawn at random.
sim::Scenario random_scenario(std::uint32_t seed) {
  std::mt19937 random(seed);
  for (;;) {
    const auto one_of = [&](std::initializer_list<int> values) {
      return values.begin()[random() % values.size()];
    };
    sim::Scenario s = tests::training(small_model(random), 16, 1, 8);
    sim::Strategy& strategy = s.strategy;
    strategy.tensor_parallel = one_of({1, 1, 2, 4});
    strategy.pipeline_parallel = one_of({1, 1, 2, 4});
    strategy.data_parallel = one_of({1, 2, 4});
    strategy.zero_stage = strategy.data_parallel > 1 ? one_of({0, 1, 2, 3}) : 0;
    strategy.sequence_parallel = strategy.tensor_parallel > 1 && random() % 2 == 0;
    const auto schedules = sim::schedule_names();
    if (strategy.pipeline_parallel > 1) {
      strategy.schedule = schedules[random() % schedules.size()];
      strategy.virtual_pipeline = one_of({1, 2});
    }
    strategy.prefetch = strategy.zero_stage == 3 ? one_of({0, 1, 2}) : 1;
    if (strategy.data_parallel > 1) strategy.gradient_bucket = one_of({0, 20000, 1 << 20});
    strategy.recompute = one_of({0, 1}) == 0 ? sim::Recompute::none : sim::Recompute::full;
    s.implementation.head_chunks = one_of({1, 1, 2});
    s.workload.micro_batch_size = one_of({1, 2});
    const int ranks = strategy.devices();
    s.hardware.devices_per_node = ranks;
    s.hardware.node_link = sim::gb_per_s(5);
    const bool runs = sim::placement_of(strategy.schedule) != sim::Placement::two_directions;
    const bool counts_heads_once = strategy.tensor_parallel <= s.model.num_key_value_heads;
    if (ranks >= 2 && ranks <= 8 && runs && counts_heads_once && sim::validate(s).empty()) return s;
  }
}

void check_equal(const sim::Scenario& scenario, const runtime::TrainSettings& settings) {
  const sim::Strategy& s = scenario.strategy;
  CAPTURE(scenario.model.name, scenario.model.num_hidden_layers, scenario.model.num_key_value_heads,
          scenario.model.vocab_size, scenario.model.tie_word_embeddings, s.tensor_parallel,
          s.pipeline_parallel, s.data_parallel, s.zero_stage, s.sequence_parallel, s.schedule,
          s.virtual_pipeline, s.gradient_bucket, scenario.implementation.head_chunks,
          scenario.workload.micro_batch_size, sim::name(s.recompute));
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
    check_equal(random_scenario(seed), settings);
  }
}

TEST_CASE(
    "Each rank's measured arena is its plan's, and it runs its stage's operations as often as planned") {
  for (std::uint32_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    const sim::Scenario scenario = random_scenario(seed);
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

TEST_CASE("A checkpoint written by some ranks is read bit by bit by others") {
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
    s.hardware.node_link = sim::gb_per_s(5);
    return s;
  };
  const auto content = [&](const std::string& name) {
    std::ifstream in(folder.path() / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  settings.checkpoint = (folder.path() / "a").string();
  train_on_ranks(on(2, 2, 1, 0), settings);
  const std::string parameters = content("a/model-2.safetensors"),
                    moments = content("a/optimizer-2.safetensors");
  REQUIRE(!parameters.empty());
  // Nothing is left to train: the same step is written again by whoever reads it.
  const sim::Scenario reader =
      GENERATE_COPY(on(1, 1, 4, 0), on(1, 1, 4, 3), on(1, 4, 1, 0), on(2, 1, 2, 2), on(1, 1, 1, 0));
  CAPTURE(reader.strategy.data_parallel, reader.strategy.zero_stage, reader.strategy.pipeline_parallel);
  runtime::run_thread_ranks(reader.strategy.devices(), [&](runtime::Transport& transport) {
    runtime::Communicator communicator(transport);
    runtime::Run run(reader, runtime::make_cpu_device(1), communicator);
    const runtime::CheckpointState state = runtime::load_checkpoint(settings.checkpoint, run);
    runtime::save_checkpoint(folder.path() / "b", run, state, {});
  });
  CHECK(content("b/model-2.safetensors") == parameters);
  CHECK(content("b/optimizer-2.safetensors") == moments);
}

TEST_CASE("When a rank fails, every other hears of it and its reason is what the caller hears") {
  const auto failing = [](runtime::Transport& transport) {
    runtime::Communicator communicator(transport);
    if (transport.rank() == 2) throw runtime::DeviceError("no memory left");
    communicator.barrier();
  };
  CHECK_THROWS_WITH(runtime::run_thread_ranks(4, failing), "no memory left");
}
