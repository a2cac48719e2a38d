// The command that describes a scenario, read by a shell's rules and by the program's own parser.
#include "app/cli/predict_command.h"

#include <wordexp.h>

#include <CLI/App.hpp>
#include <random>
#include <set>

#include "app/cli/exit_code.h"
#include "sim/scenario/preset.h"
#include "tests/sim/random_fields.h"
#include "tests/sim/random_scenario.h"
#include "tests/support/catch.h"

using namespace app::cli;

namespace {

std::vector<std::string> words_of(const std::string& line) {
  wordexp_t words;
  REQUIRE(wordexp(line.c_str(), &words, WRDE_NOCMD | WRDE_UNDEF) == 0);
  std::vector<std::string> list(words.we_wordv, words.we_wordv + words.we_wordc);
  wordfree(&words);
  return list;
}

sim::Scenario scenario_of(const std::string& line) {
  std::vector<std::string> words = words_of(line);
  REQUIRE(words.size() > 2);
  REQUIRE(words[0] == "ridgepoint");
  CLI::App program;
  ScenarioFlags flags;
  flags.add_to(*program.add_subcommand(words[1]));
  words.erase(words.begin());
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  program.parse(words);
  sim::Scenario parts = named_parts(flags).scenario;
  settle_hardware(parts, {}, {});
  return with_fields(std::move(parts), flags);
}

// Made of presets, changed here and there, or all of its own.
sim::Scenario any_scenario(std::mt19937_64& random) {
  static const std::vector<std::string> models{"gpt2-124m", "mixtral-8x7b", "deepseek-v3", "llama-3.1-8b"};
  static const std::vector<std::string> software{"ridgepoint", "vllm_0.14", "megatron_2022"};
  static const std::vector<std::string> hardware{"h100-sxm", "a100-sxm-80gb"};
  sim::Scenario s = random_scenario(random);
  if (random() % 4 != 0) s.model = sim::load_model_preset(models[random() % models.size()]);
  if (random() % 4 != 0) s.hardware = sim::load_hardware_preset(hardware[random() % hardware.size()]);
  if (random() % 4 != 0)
    s.implementation = sim::load_implementation_preset(software[random() % software.size()]);
  draw_fields(random, s, 1 + random() % 8);
  // What has no flag.
  if (random() % 4 == 0) s.model.num_hidden_layers += 1;
  if (random() % 4 == 0) s.model.rope_scaling = random_model(random).rope_scaling;
  if (random() % 4 == 0) s.hardware.memory = {static_cast<std::int64_t>(random() >> 20)};
  if (random() % 4 == 0) s.implementation.host.launch = sim::us(draw_magnitude(random, -1, 2));
  if (random() % 4 == 0 && s.implementation.serving) s.implementation.serving->kv_block += 16;
  if (random() % 8 == 0) s.implementation.serving.reset();
  if (random() % 8 == 0) s.implementation.kernels.traffic = {{"swiglu", 2.5}, {"a.b", 1.25}};
  if (random() % 8 == 0) s.strategy.recompute_operations = {"a, b", ""};
  return s;
}

}  // namespace

TEST_CASE("the command of a scenario, parsed again, is the scenario: 10,000 drawn from all fields") {
  const std::uint64_t seed = GENERATE(range<std::uint64_t>(0, 10));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1000; ++i) {
    const sim::Scenario s = any_scenario(random);
    const std::string line = predict_command(s);
    if (scenario_of(line) == s) continue;
    CAPTURE(line);
    CHECK(sim::to_json(scenario_of(line)) == sim::to_json(s));
    FAIL("another scenario");
  }
}

TEST_CASE("the file of a scenario, read again, is the scenario: 10,000 drawn from all fields") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 10'000; ++i) {
    sim::Scenario s = random_scenario(random);
    draw_fields(random, s, 1 + random() % 4);
    if (sim::scenario_from_json(sim::to_json(s), "drawn.json") == s) continue;
    FAIL(sim::to_json(s));
  }
}

TEST_CASE("every field of the table stands in files, and each that people see has a flag of its own") {
  std::mt19937_64 random(1);
  const sim::Scenario s = random_scenario(random);
  std::set<std::string_view> flags;
  for (const sim::AnyField& f : sim::all_fields()) {
    CAPTURE(f.path());
    if (!f.label.empty()) CHECK_FALSE(f.flag.empty());
    if (!f.flag.empty()) CHECK_FALSE(f.help.empty());
    if (!f.flag.empty()) CHECK(flags.insert(f.flag).second);
    CHECK(sim::field_at(f.path()) == &f);
    // Two values that differ are two files.
    std::string text = f.text(s);
    for (int i = 0; i < 100 && text == f.text(s); ++i) text = random_text(random, f);
    sim::Scenario other = s;
    REQUIRE(f.set(other, text));
    CHECK_FALSE(f.same(s, other));
    CHECK(sim::to_json(s) != sim::to_json(other));
  }
}

TEST_CASE("the flag --set takes any field of a scenario's file, and refuses as the file would") {
  const std::string gpt = "ridgepoint predict --model gpt2-124m ";
  CHECK(scenario_of(gpt + "--set model.num_hidden_layers=4").model.num_hidden_layers == 4);
  CHECK(scenario_of(gpt + "--set hardware.memory_gib=40").hardware.memory.value == std::int64_t{40} << 30);
  CHECK(scenario_of(gpt + "--set model.max_position_embeddings=512").workload.seq_len == 512);
  CHECK(scenario_of(gpt + "--set strategy.schedule=gpipe --set strategy.zero_stage=2").strategy.zero_stage ==
        2);
  const auto refusal = [&](const std::string& words) {
    try {
      scenario_of(gpt + words);
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(refusal("--set model.num_hiden_layers=4").find("did you mean \"num_hidden_layers\"?") !=
        std::string::npos);
  CHECK(refusal("--set model.num_hidden_layers=four").find("must be a whole number") != std::string::npos);
  CHECK(refusal("--set layers=4").find("PATH=VALUE") != std::string::npos);
  CHECK(refusal("--zero two").find("--zero takes a whole number") != std::string::npos);
  CHECK(refusal("--recompute all").find("none, selective, full, sqrt or operations") != std::string::npos);
}

TEST_CASE("a command names presets, and says little beside them") {
  sim::Scenario s = sim::load_scenario_preset("train-llama-3.1-405b-16384-h100");
  const std::string line = predict_command(s);
  CAPTURE(line);
  CHECK(line.find("--model llama-3.1-405b --hardware h100-sxm") != std::string::npos);
  CHECK(line.find("--set") == std::string::npos);
  CHECK(line.find("--kv-block") == std::string::npos);
}
