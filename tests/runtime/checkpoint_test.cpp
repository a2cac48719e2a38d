#include "runtime/checkpoint.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "runtime/error.h"
#include "runtime/train.h"
#include "tests/runtime/small_run.h"
#include "tests/support/catch.h"

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSteps = 6;
// Read by the hidden test case below, which runs in a process of its own to be killed.
constexpr const char* kFolderVariable = "RIDGEPOINT_TEST_CHECKPOINT_FOLDER";

sim::Scenario scenario() {
  return tests::training(tests::small_llama());
}

runtime::TrainSettings settings_in(const fs::path& folder) {
  runtime::TrainSettings settings;
  settings.steps = kSteps;
  settings.data = (folder / "tokens.bin").string();
  settings.checkpoint = (folder / "checkpoint").string();
  settings.device.threads = 2;
  return settings;
}

sim::Report train(const runtime::TrainSettings& settings) {
  return runtime::train(scenario(), tests::drawn(scenario().model), settings, {}, {});
}

std::vector<float> weights_in(const fs::path& checkpoint) {
  runtime::Run run(scenario(), 1);
  runtime::load_checkpoint(checkpoint, run);
  std::vector<float> all;
  for (const sim::BufferClass c : {sim::BufferClass::parameter, sim::BufferClass::optimizer})
    for (const runtime::InstanceName& name : run.instances_of(c)) {
      std::vector<float> values(run.elements_of(name));
      run.read(name.buffer, std::span(values), name.layer);
      all.insert(all.end(), values.begin(), values.end());
    }
  return all;
}

// The last three of six steps, resumed in `folder`, are those of a run that went on in `whole`, and so is
// what they leave.
void check_last_three(runtime::TrainSettings settings, const sim::Report& expected, const fs::path& folder,
                      const fs::path& whole) {
  settings.resume = true;
  const sim::Report resumed = train(settings);
  REQUIRE(resumed.steps.size() == 3);
  CHECK(resumed.steps.front().step == 4);
  for (std::size_t s = 0; s < 3; ++s) CHECK(resumed.steps[s].loss == expected.steps[s + 3].loss);
  CHECK(weights_in(folder / "checkpoint") == weights_in(whole / "checkpoint"));
}

// This test program again, as a process that trains in `folder` and saves after every step.
pid_t start_training_process(const fs::path& folder) {
  const pid_t child = fork();
  if (child == 0) {
    setenv(kFolderVariable, folder.c_str(), 1);
    execl("/proc/self/exe", "test_runtime", "[train-until-killed]", static_cast<char*>(nullptr));
    _exit(127);
  }
  return child;
}

// The index is what a checkpoint ends with.
bool has_checkpoint(const fs::path& directory) {
  return fs::exists(directory / "model.safetensors.index.json");
}

}  // namespace

TEST_CASE("Trains and saves after every step, until killed", "[.][train-until-killed]") {
  const char* const folder = std::getenv(kFolderVariable);
  REQUIRE(folder != nullptr);
  runtime::TrainSettings settings = settings_in(folder);
  settings.checkpoint_every = 1;
  settings.resume = has_checkpoint(settings.checkpoint);
  train(settings);
}

TEST_CASE("Killed at any time and resumed, a run is equal bit by bit to one that was left alone") {
  const TemporaryFolder alone, killed;
  tests::write_tokens(alone.path());
  tests::write_tokens(killed.path());
  const sim::Report expected = train(settings_in(alone.path()));

  for (const int milliseconds : {40, 90, 20, 60, 130}) {
    const pid_t child = start_training_process(killed.path());
    REQUIRE(child > 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    // Whatever stands there is whole.
    if (const fs::path checkpoint = killed.path() / "checkpoint"; has_checkpoint(checkpoint))
      CHECK_NOTHROW(weights_in(checkpoint));
  }
  runtime::TrainSettings settings = settings_in(killed.path());
  settings.resume = has_checkpoint(settings.checkpoint);
  const sim::Report resumed = train(settings);
  for (const sim::StepResult& step : resumed.steps) {
    CHECK(step.loss == expected.steps[static_cast<std::size_t>(step.step - 1)].loss);
    CHECK(step.grad_norm == expected.steps[static_cast<std::size_t>(step.step - 1)].grad_norm);
  }
  CHECK(weights_in(killed.path() / "checkpoint") == weights_in(alone.path() / "checkpoint"));
}

TEST_CASE(
    "Three steps, killed without warning in the fourth, then resumed: losses and weights as of six in one "
    "go") {
  const TemporaryFolder alone, parts;
  tests::write_tokens(alone.path());
  tests::write_tokens(parts.path());
  const sim::Report expected = train(settings_in(alone.path()));

  std::stop_source stop;
  runtime::TrainSettings settings = settings_in(parts.path());
  runtime::train(
      scenario(), tests::drawn(scenario().model), settings,
      [&](const sim::Event& event) {
        if (const auto* step = std::get_if<sim::StepResult>(&event); step && step->step == 3)
          stop.request_stop();
      },
      stop.get_token());
  check_last_three(settings, expected, parts.path(), alone.path());
}

TEST_CASE("A full disk is one sentence, and the checkpoint before it stays whole") {
  const TemporaryFolder folder;
  tests::write_tokens(folder.path());
  runtime::TrainSettings settings = settings_in(folder.path());
  settings.steps = 2;
  train(settings);
  const std::vector<float> before = weights_in(settings.checkpoint);

  // The kernel refuses to let a file grow beyond the limit, as a full disk would.
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  rlimit limit = old_limit;
  limit.rlim_cur = 20000;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  settings.steps = 4;
  settings.resume = true;
  std::string message;
  try {
    train(settings);
  } catch (const runtime::DeviceError& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);

  CHECK(message.find("model-4.safetensors") != std::string::npos);
  CHECK(weights_in(settings.checkpoint) == before);
  train(settings);  // with room again, it goes on
  CHECK(weights_in(settings.checkpoint) != before);
}

TEST_CASE("A checkpoint is a Hugging Face model folder with the trained weights") {
  const TemporaryFolder folder;
  tests::write_tokens(folder.path());
  for (const sim::Model& model : {tests::small_gpt(), tests::small_llama(), tests::small_hybrid()}) {
    const sim::Scenario s = tests::training(model);
    runtime::TrainSettings settings = settings_in(folder.path());
    settings.checkpoint = (folder.path() / model.name).string();
    settings.steps = 2;
    runtime::train(s, tests::drawn(model), settings, {}, {});

    const runtime::ModelSource reopened = runtime::open_model(settings.checkpoint);
    CHECK(reopened.model.hidden_size == model.hidden_size);
    runtime::Run from_model(s, 1), from_checkpoint(s, 1);
    from_model.fill_parameters(reopened, 0);
    runtime::load_checkpoint(settings.checkpoint, from_checkpoint);
    for (const runtime::InstanceName& name : from_model.instances_of(sim::BufferClass::parameter)) {
      std::vector<float> a(from_model.elements_of(name)), b(a.size());
      from_model.read(name.buffer, std::span(a), name.layer);
      from_checkpoint.read(name.buffer, std::span(b), name.layer);
      CHECK(a == b);
    }
  }
}

namespace {

// A run ends with the loss that it ends with when it stops half way and is resumed. Leaves that one's
// checkpoint.
void check_resumed(const sim::Scenario& scenario, runtime::TrainSettings& settings) {
  const auto run = [&] { return runtime::train(scenario, tests::drawn(scenario.model), settings, {}, {}); };
  const double whole = run().steps.back().loss;
  fs::remove_all(settings.checkpoint);
  settings.steps = kSteps / 2;
  run();
  settings.steps = kSteps;
  settings.resume = true;
  CHECK(run().steps.back().loss == whole);
}

}  // namespace

TEST_CASE(
    "A LoRA run that is resumed is equal bit by bit, and leaves the frozen weights as they were stored") {
  const TemporaryFolder folder;
  tests::write_tokens(folder.path());
  sim::Scenario lora = scenario();
  lora.workload.lora_rank = 4;
  lora.workload.lora_targets = {"all"};
  lora.workload.frozen_weights = GENERATE(sim::FrozenWeights::as_dtype, sim::FrozenWeights::int8,
                                          sim::FrozenWeights::nf4, sim::FrozenWeights::nf4_double);
  CAPTURE(sim::name(lora.workload.frozen_weights));
  runtime::TrainSettings settings = settings_in(folder.path());
  settings.schedule = runtime::LearningRateSchedule::constant;
  check_resumed(lora, settings);

  runtime::Run learned(lora, 1), drawn(lora, 1);
  runtime::load_checkpoint(settings.checkpoint, learned);
  drawn.fill_parameters(tests::drawn(lora.model), settings.seed);
  int adapters = 0, frozen = 0;
  for (const runtime::InstanceName& name : drawn.instances_of(sim::BufferClass::parameter)) {
    std::vector<float> before(drawn.elements_of(name)), after(before.size());
    drawn.read_values(name, std::span(before));
    learned.read_values(name, std::span(after));
    const std::string& buffer = drawn.plan().buffers[static_cast<std::size_t>(name.buffer)].name;
    const bool learns = buffer.find("_adapter_") != std::string::npos;
    CAPTURE(buffer, name.layer);
    CHECK((before == after) != learns);
    ++(learns ? adapters : frozen);
  }
  CHECK(adapters == 2 * 7 * lora.model.num_hidden_layers);
  CHECK(frozen > 0);
}

TEST_CASE(
    "A run that is resumed is equal bit by bit with each optimizer, also where the vocabulary is padded") {
  const TemporaryFolder folder;
  tests::write_tokens(folder.path());
  sim::Scenario s = scenario();
  s.model.vocab_size = 301;
  REQUIRE(s.implementation.vocabulary_multiple > 1);
  for (const sim::Optimizer optimizer : {sim::Optimizer::sgd, sim::Optimizer::lion, sim::Optimizer::muon,
                                         sim::Optimizer::adafactor, sim::Optimizer::adamw_8bit}) {
    CAPTURE(sim::name(optimizer));
    s.workload.optimizer = optimizer;
    runtime::TrainSettings settings = settings_in(folder.path());
    settings.schedule = runtime::LearningRateSchedule::constant;
    check_resumed(s, settings);
    fs::remove_all(settings.checkpoint);
  }
}

TEST_CASE("A large checkpoint lies in several files, which are resumed from bit by bit as from one") {
  const TemporaryFolder one, several;
  tests::write_tokens(one.path());
  tests::write_tokens(several.path());
  const sim::Report expected = train(settings_in(one.path()));
  runtime::TrainSettings settings = settings_in(several.path());
  settings.schedule = runtime::LearningRateSchedule::cosine;
  settings.checkpoint_every = 2;
  settings.checkpoint_shard = {100'000};
  std::stop_source stop;
  runtime::train(
      scenario(), tests::drawn(scenario().model), settings,
      [&](const sim::Event& event) {
        if (const auto* step = std::get_if<sim::StepResult>(&event); step && step->step == 3)
          stop.request_stop();
      },
      stop.get_token());
  std::size_t models = 0, optimizers = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(settings.checkpoint)) {
    const std::string name = entry.path().filename().string();
    models += name.starts_with("model-3-0000") && name.find("-of-0000") != std::string::npos;
    optimizers += name.starts_with("optimizer-3-0000");
    if (entry.path().extension() == ".safetensors") CHECK(entry.file_size() < 120'000);
  }
  CHECK(models > 1);
  CHECK(optimizers > models);
  check_last_three(settings, expected, several.path(), one.path());
}

TEST_CASE("Steps go on while a checkpoint is written, and one that cannot be written is told by its file") {
  const TemporaryFolder folder;
  tests::write_tokens(folder.path());
  runtime::TrainSettings settings = settings_in(folder.path());
  settings.checkpoint_every = 1;
  fs::create_directories(settings.checkpoint);
  // Who opens a pipe to write waits for a reader, as for a disk that does not answer; and no pipe can be
  // synced.
  const std::string pipe = settings.checkpoint + "/model-1.safetensors.tmp";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  std::jthread reader;
  const auto read = [&pipe] {
    const int descriptor = open(pipe.c_str(), O_RDONLY);
    char ignored[4096];
    while (descriptor >= 0 && ::read(descriptor, ignored, sizeof ignored) > 0) {
    }
    if (descriptor >= 0) close(descriptor);
  };
  // Were steps to wait, they would wait no longer than this.
  std::jthread at_last([&read](const std::stop_token& stop) {
    for (int i = 0; i < 600 && !stop.stop_requested(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (!stop.stop_requested()) read();
  });
  std::int64_t steps = 0, checkpoints = 0;
  CHECK_THROWS_WITH(runtime::train(scenario(), tests::drawn(scenario().model), settings,
                                   [&](const sim::Event& event) {
                                     checkpoints += std::holds_alternative<sim::CheckpointEvent>(event);
                                     if (!std::holds_alternative<sim::StepResult>(event)) return;
                                     if (++steps == kSteps) reader = std::jthread(read);
                                   },
                                   {}),
                    contains("model-1.safetensors: cannot be written"));
  CHECK(steps == kSteps);
  CHECK(checkpoints == 0);
}

TEST_CASE("Only the newest step's files stay in the folder") {
  const TemporaryFolder folder;
  tests::write_tokens(folder.path());
  runtime::TrainSettings settings = settings_in(folder.path());
  settings.checkpoint_every = 2;
  train(settings);
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(settings.checkpoint))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"config.json", "lock", "model-6.safetensors",
                                          "model.safetensors.index.json", "optimizer-6.safetensors"});
}

TEST_CASE("Resuming what is not there, of another shape or with another seed is refused by a sentence") {
  const TemporaryFolder folder;
  tests::write_tokens(folder.path());
  runtime::TrainSettings settings = settings_in(folder.path());
  settings.resume = true;
  CHECK_THROWS_AS(train(settings), runtime::InputError);
  settings.resume = false;
  settings.steps = 1;
  train(settings);
  settings.resume = true;
  settings.seed = 2;
  CHECK_THROWS_AS(train(settings), runtime::InputError);
  settings.seed = 1;
  sim::Model wider = tests::small_llama();
  wider.intermediate_size += 8;
  CHECK_THROWS_AS(runtime::train(tests::training(wider), tests::drawn(wider), settings, {}, {}),
                  runtime::InputError);
}

TEST_CASE("A folder that holds somebody's model is refused before the first step") {
  const TemporaryFolder folder;
  tests::write_tokens(folder.path());
  runtime::TrainSettings settings = settings_in(folder.path());
  fs::create_directories(settings.checkpoint);
  std::ofstream(fs::path(settings.checkpoint) / "model.safetensors") << "theirs";
  std::int64_t steps = 0;
  CHECK_THROWS_AS(
      runtime::train(
          scenario(), tests::drawn(scenario().model), settings,
          [&](const sim::Event& event) { steps += std::holds_alternative<sim::StepResult>(event); }, {}),
      runtime::InputError);
  CHECK(steps == 0);
}
