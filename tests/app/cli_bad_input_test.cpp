// What the user got wrong is said in a sentence on stderr, with an exit code of its kind; stdout stays empty.
#include <fstream>
#include <sstream>

#include "sim/report/events.h"
#include "tests/app/program.h"
#include "tests/support/catch.h"

using program::Folder;
using program::Result;
using program::run;

namespace {

constexpr const char* kLlamaConfig = R"({
  "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
  "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 256, "max_position_embeddings": 64,
  "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true})";

std::string without_field(std::string json, const std::string& field) {
  const std::size_t begin = json.find('"' + field + '"');
  json.erase(begin, json.find(',', begin) + 1 - begin);
  return json;
}

void check_refusal(const Result& result, int exit_code, const std::vector<std::string>& words) {
  CAPTURE(result.out, result.err);
  CHECK(result.exit_code == exit_code);
  CHECK(result.out.empty());
  CHECK(result.err.rfind("ridgepoint: ", 0) == 0);
  for (const std::string& word : words) {
    CAPTURE(word);
    CHECK(result.err.find(word) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("an unknown flag is a usage error that names the nearest one") {
  check_refusal(run({"predict", "--model", "tiny-llama", "--seqlen", "64"}), 2,
                {"--seqlen", "did you mean --seq-len"});
}

TEST_CASE("an unknown command is a usage error that names the nearest one") {
  check_refusal(run({"predcit"}), 2, {"predcit", "did you mean predict"});
}

TEST_CASE("an unknown preset is a usage error that names those that are near") {
  check_refusal(run({"predict", "--model", "llama-3.1-8x"}), 2, {"--model", "llama-3.1-8x", "llama-3.1-8b"});
  check_refusal(run({"predict", "--model", "tiny-llama", "--hardware", "h100-sxn"}), 2,
                {"--hardware", "h100-sxn", "h100-sxm"});
}

TEST_CASE("a flag's value that means nothing is a usage error that says what would be accepted") {
  check_refusal(run({"predict", "--model", "tiny-llama", "--seq-len", "many"}), 2,
                {"--seq-len", "many", "8k"});
  check_refusal(run({"predict", "--model", "tiny-llama", "--dtype", "fp7"}), 2, {"--dtype", "bf16", "fp7"});
  check_refusal(run({"predict", "--model", "tiny-llama", "--format", "yaml"}), 2,
                {"--format", "json", "yaml"});
  check_refusal(run({"train", "--model", "tiny-llama", "--lr", "fast"}), 2, {"--lr"});
  check_refusal(run({"train", "--model", "tiny-llama", "--steps", "0"}), 2, {"--steps", "1"});
  check_refusal(run({"train", "--model", "tiny-llama", "--resume"}), 2, {"--checkpoint"});
  check_refusal(run({"tokenize", "--model", "tiny-llama", "--ids", "1,two"}), 2, {"--ids", "two"});
}

TEST_CASE("a missing model is a usage error that says what --model takes") {
  check_refusal(run({"predict"}), 2, {"--model", "preset", "GGUF"});
}

TEST_CASE("degrees that do not multiply to the devices are a violated constraint") {
  check_refusal(run({"predict", "--model", "tiny-llama", "--gpus", "8", "--tp", "3"}), 3,
                {"gpus", "8", "tp 3"});
  check_refusal(run({"predict", "--model", "tiny-llama", "--gpus", "8", "--tp", "4000000", "--pp", "4000000",
                     "--cp", "4000000", "--dp", "4000000"}),
                3, {"gpus", "more than can be counted"});
}

TEST_CASE("every contradiction of a scenario is listed with its field") {
  check_refusal(run({"predict", "--model", "gpt2-124m", "--zero", "5", "--micro-batch", "3", "--global-batch",
                     "4", "--seq-len", "1M"}),
                3, {"strategy.zero_stage", "workload.global_batch_size", "workload.seq_len"});
}

TEST_CASE("a config.json without a field is refused with the file and the field") {
  const Folder folder;
  folder.write("config.json", without_field(kLlamaConfig, "hidden_size"));
  check_refusal(run({"predict", "--model", folder.path("")}), 4, {"config.json", "hidden_size"});
}

TEST_CASE("truncated weights are refused with the file") {
  const Folder folder;
  SECTION("GGUF") {
    const std::string file = folder.write("model.gguf", std::string("GGUF\x03\0\0\0\x05\0", 10));
    check_refusal(run({"predict", "--model", file}), 4, {"model.gguf"});
  }
  SECTION("safetensors") {
    folder.write("config.json", kLlamaConfig);
    folder.write("model.safetensors", std::string("\xff\0\0\0\0\0\0\0{\"a\":", 13));
    check_refusal(run({"generate", "--model", folder.path(""), "--prompt-tokens", "1,2"}), 4,
                  {"model.safetensors"});
  }
}

TEST_CASE("token ids beyond the vocabulary are refused with the id") {
  check_refusal(run({"generate", "--model", "tiny-llama", "--prompt-tokens", "1,256"}), 4, {"256", "255"});
}

TEST_CASE("a scenario file is refused with its name") {
  const Folder folder;
  check_refusal(run({"predict", "--scenario", folder.write("s.json", "{\"model\": ")}), 4, {"s.json"});
  check_refusal(run({"predict", "--scenario", folder.write("t.json", R"({
    "model": "tiny-llama", "hardware": "h100-sxm", "workload": "laptop-train", "strateggy": {}})")}),
                4, {"t.json", "strateggy"});
}

TEST_CASE("a report that is none is refused with its name") {
  const Folder folder;
  const std::string neither = folder.write("a.txt", "hello");
  check_refusal(run({"compare", neither, neither}), 4, {"a.txt"});
  check_refusal(run({"compare", folder.path("missing.json"), neither}), 4,
                {"missing.json", "does not exist"});
}

TEST_CASE("a device that this program lacks has an exit code of its own") {
  check_refusal(run({"train", "--model", "tiny-llama", "--device", "cuda"}), 5, {"--device", "cuda", "cpu"});
  check_refusal(run({"train", "--model", "tiny-llama", "--hardware", "h100-sxm"}), 5,
                {"--hardware", "predict"});
}

TEST_CASE("what no kernel here computes is predicted, and refused by name where it would run") {
  const Folder folder;
  const std::string windows = folder.write("windows.json", R"({
    "model": {"extends": "tiny-llama", "num_key_value_heads": 4, "kv_lora_rank": 16, "qk_nope_head_dim": 24,
      "qk_rope_head_dim": 8, "v_head_dim": 32, "head_dim": 32, "sliding_window": 8}, "hardware": "h100-sxm",
    "workload": {"seq_len": 64}})");
  CHECK(run({"predict", "--scenario", windows}).exit_code == 0);
  check_refusal(run({"train", "--scenario", windows, "--hardware", "this-machine", "--dtype", "fp32"}), 5,
                {"latent attention within windows", "predicted"});
}

TEST_CASE("fp8 trains on one CPU, and what does not is refused by a sentence that says what it takes") {
  check_refusal(run({"train", "--model", "tiny-llama", "--dtype", "fp8", "--dp", "2"}), 5,
                {"training in fp8", "on several devices", "has 2"});
  check_refusal(run({"generate", "--model", "tiny-llama", "--dtype", "fp8", "--prompt", "a"}), 5,
                {"trains in fp8", "workload.dtype must be fp32, bf16 or fp16"});
}

TEST_CASE("a full disk under --record is a device error") {
  if (!std::ofstream("/dev/full")) SKIP_WITHOUT("/dev/full");
  const Result result =
      run({"train", "--model", "tiny-llama", "--seq-len", "16", "--steps", "2", "--record", "/dev/full"});
  CAPTURE(result.err);
  CHECK(result.exit_code == 6);
  CHECK(result.err.find("/dev/full") != std::string::npos);
}

TEST_CASE("with --stream a failure is an event too") {
  const Result result = run({"train", "--model", "tiny-llama", "--device", "cuda", "--stream"});
  CHECK(result.exit_code == 5);
  const sim::Event event = sim::event_from_ndjson(result.out.substr(0, result.out.find('\n')));
  const auto* error = std::get_if<sim::ErrorEvent>(&event);
  REQUIRE(error != nullptr);
  CHECK(error->exit_code == 5);
  CHECK(result.err.find(error->message) != std::string::npos);
}
