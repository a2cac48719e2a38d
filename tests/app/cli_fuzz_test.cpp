// Command lines and files drawn at random, sound and absurd: each ends with a result or with a sentence, none
// with a crash.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "sim/scenario/fields.h"
#include "tests/app/program.h"
#include "tests/support/catch.h"

using program::Folder;
using program::Result;
using program::run;

namespace {

constexpr int kFine = 0, kUsage = 2, kConstraint = 3, kBadFile = 4;

template <class T>
const T& one_of(std::mt19937& random, const std::vector<T>& values) {
  return values[random() % values.size()];
}

const std::vector<std::string>& any_number() {
  static const std::vector<std::string> numbers = {"1",
                                                   "1",
                                                   "1",
                                                   "2",
                                                   "2",
                                                   "3",
                                                   "4",
                                                   "7",
                                                   "8",
                                                   "16",
                                                   "0",
                                                   "-1",
                                                   "1024",
                                                   "8k",
                                                   "2147483647",
                                                   "2147483648",
                                                   "9223372036854775807",
                                                   "99999999999999999999",
                                                   "1e9",
                                                   "0x10",
                                                   "many",
                                                   "",
                                                   "1.5"};
  return numbers;
}

struct FuzzedFlag {
  std::string name;
  std::vector<std::string> values;  // empty: a switch
};

// Flags of all fields, and those beside them; each with values that it takes and others.
const std::vector<FuzzedFlag>& flags() {
  static const std::vector<FuzzedFlag> all = [] {
    std::vector<FuzzedFlag> list = {
        {"--gpus", any_number()},
        {"--model", {"tiny-llama", "gpt2-124m", "mixtral-8x7b", "deepseek-v3", "llama-3.1-8x", ""}},
        {"--hardware", {"h100-sxm", "a100-sxm-80gb", "b300", ""}},
        {"--implementation", {"ridgepoint", "megatron_2022", "vllm_0.6", "megatron_3022", ""}},
        {"--scenario", {"/dev/null", "/", "nothing.json", ""}},
        {"--set",
         {"model.num_hidden_layers=3", "model.head_dim=-1", "hardware.memory_gib=1e300", "strategy={}",
          "model=null", "workload.seq_len", "=", "implementation.serving={}", ""}},
        {"--format", {"text", "json", "csv", "md", "yaml"}}};
    for (const sim::AnyField& f : sim::all_fields()) {
      if (f.flag.empty()) continue;
      FuzzedFlag flag{"--" + std::string(f.flag), {}};
      if (f.kind == sim::AnyField::Kind::number || f.kind == sim::AnyField::Kind::fraction)
        flag.values = any_number();
      else if (f.kind != sim::AnyField::Kind::toggle)
        flag.values = {"waltz", "", ",", "fp7"};
      for (const std::string_view word : f.words) flag.values.insert(flag.values.end(), 2, std::string(word));
      list.push_back(std::move(flag));
    }
    return list;
  }();
  return all;
}

std::vector<std::string> any_command_line(std::mt19937& random) {
  std::vector<std::string> words = {"predict", "--model", "tiny-llama"};
  const std::size_t count = random() % 7;
  for (std::size_t i = 0; i < count; ++i) {
    const FuzzedFlag& flag = one_of(random, flags());
    if (std::find(words.begin(), words.end(), flag.name) != words.end()) continue;
    words.push_back(flag.name);
    if (!flag.values.empty()) words.push_back(one_of(random, flag.values));
  }
  return words;
}

void check_ends_well(const Result& result) {
  CAPTURE(result.exit_code, result.out, result.err);
  const bool known = result.exit_code == kFine || result.exit_code == kUsage ||
                     result.exit_code == kConstraint || result.exit_code == kBadFile;
  CHECK(known);
  if (result.exit_code == kFine) {
    CHECK_FALSE(result.out.empty());
  } else {
    CHECK(result.out.empty());
    CHECK(result.err.rfind("ridgepoint: ", 0) == 0);
  }
}

// A sound text with some of its characters lost, doubled or replaced.
std::string mangled(std::string text, std::mt19937& random) {
  const std::string any = "{}[]\",:\n\t0-9.eE\\x";
  for (std::size_t n = 1 + random() % 4; n > 0 && !text.empty(); --n) {
    const std::size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text.erase(at, 1 + random() % 8);
        break;
      case 1:
        text.insert(at, 1, any[random() % any.size()]);
        break;
      case 2:
        text[at] = static_cast<char>(random() % 256);
        break;
      default:
        text.resize(at);
    }
  }
  return text;
}

}  // namespace

TEST_CASE("predict ends with a result or a sentence, whatever its flags") {
  std::mt19937 random(20261121);
  for (int i = 0; i < 250; ++i) {
    const std::vector<std::string> words = any_command_line(random);
    std::string line;
    for (const std::string& word : words) line += "'" + word + "' ";
    CAPTURE(line);
    check_ends_well(run(words));
  }
}

TEST_CASE("a contradiction of a strategy is named by the field that says it") {
  const std::vector<std::pair<std::vector<std::string>, std::string>> contradictions = {
      {{"--gpus", "8", "--tp", "3"}, "gpus"},
      {{"--gpus", "3", "--tp", "3"}, "tensor_parallel"},
      {{"--gpus", "64", "--pp", "64"}, "pipeline_parallel"},
      {{"--gpus", "4", "--dp", "4", "--global-batch", "3"}, "global_batch"},
      {{"--gpus", "2", "--pp", "2", "--schedule", "zb-v"}, "virtual_pipeline"},
      {{"--gpus", "2", "--ep", "2"}, "expert_parallel"},
      {{"--gpus", "1", "--zero", "4"}, "zero"},
      {{"--gpus", "1", "--recompute", "operations"}, "recompute_operations"}};
  for (const auto& [words, field] : contradictions) {
    std::vector<std::string> all = {"predict", "--model", "tiny-llama"};
    all.insert(all.end(), words.begin(), words.end());
    const Result result = run(all);
    CAPTURE(field, result.err);
    CHECK((result.exit_code == kConstraint || result.exit_code == kUsage));
    CHECK(result.err.find(field) != std::string::npos);
  }
}

TEST_CASE("predict and validate end with a result or a sentence, whatever is in their files") {
  std::mt19937 random(20261121);
  const Folder folder;
  const std::string scenario =
      R"({"model": "tiny-llama", "hardware": "h100-sxm", "implementation": "ridgepoint",
  "strategy": {"tensor_parallel": 2, "sequence_parallel": true, "recompute": "full"},
  "workload": {"task": "train", "seq_len": 64, "micro_batch_size": 1, "global_batch_size": 4}})";
  const std::string table =
      "id,source,model_name,gpu,num_gpus,tp,pp,dp,seq_len,micro_batch,global_batch,framework,precision,step_"
      "time_s\n"
      "1,a,Llama 3 8B,H100-80GB-SXM,8,1,1,8,8192,1,64,torchtitan,bf16,1.5\n"
      "2,\"b, c\",GPT 22B,A100-80GB-SXM,8,8,1,1,2048,4,4,Megatron-LM,fp16,1.4\n";
  for (int i = 0; i < 40; ++i) {
    const std::string json = mangled(scenario, random), csv = mangled(table, random);
    CAPTURE(json, csv);
    check_ends_well(run({"predict", "--scenario", folder.write("scenario.json", json)}));
    const Result validated =
        run({"validate", folder.write("table.csv", csv), "--out", folder.path("out.csv")});
    CAPTURE(validated.exit_code, validated.out, validated.err);
    CHECK((validated.exit_code == kFine || validated.exit_code == kBadFile));
  }
}
