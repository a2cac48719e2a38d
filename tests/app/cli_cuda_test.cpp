// --device cuda, end to end: the backend is the GPU's own sources with threads emulated on the CPU, the
// driver a stand-in (tests/support/fake_nvml.cpp).
#include "programs.h"

#ifdef RIDGEPOINT_EMULATED_CUDA
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "runtime/communicator.h"
#include "runtime/generate.h"
#include "sim/report/report.h"
#include "tests/app/program.h"
#include "tests/runtime/small_run.h"
#include "tests/support/cache_folder.h"
#include "tests/support/catch.h"
#include "tests/support/known_machine.h"

using nlohmann::json;
using program::Folder;
using program::Result;

namespace {

// The environment of programs that are started while it lives.
class Environment {
 public:
  Environment() {
    setenv("RIDGEPOINT_CUDA_BACKEND", RIDGEPOINT_EMULATED_CUDA, 1);
    setenv("RIDGEPOINT_NVML", RIDGEPOINT_FAKE_NVML, 1);
  }
  ~Environment() {
    unsetenv("RIDGEPOINT_CUDA_BACKEND");
    unsetenv("RIDGEPOINT_NVML");
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  CacheFolder cache_;
};

Result train(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"train",      "--device",  "cuda", "--model",
                                        "tiny-llama", "--seq-len", "16",   "--micro-batch",
                                        "1",          "--steps",   "3"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return program::run(arguments);
}

}  // namespace

TEST_CASE("the program trains on a GPU in fp16 and fp8, with the driver's samples in stream and report") {
  const Folder folder;
  const Environment environment;
  for (const char* const dtype : {"fp16", "fp8"}) {
    CAPTURE(dtype);
    const std::string file = folder.path(std::string(dtype) + ".ndjson");
    const Result result = train({"--dtype", dtype, "--record", file, "--format", "json"});
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
    const json document = json::parse(result.out);
    const sim::Report report = sim::report_from_json(document.at("report").dump(), "stdout");
    CHECK(report.source.device == "NVIDIA H100, emulated");
    REQUIRE(report.steps.size() == 3);
    // Before it has learned anything a model's loss is near ln 256 = 5.5; what follows depends on the
    // machine's text.
    CHECK(report.steps.front().loss == Approx(5.6).margin(0.4));
    for (const sim::StepResult& step : report.steps) CHECK(std::isfinite(step.loss));
    REQUIRE(!report.device_samples.empty());
    CHECK(report.device_samples.back().throttle == "power cap");
    CHECK(document.at("metrics").at("power_w").get<double>() == Approx(698.5));
  }
}

TEST_CASE("dropout and stochastic rounding train on a GPU") {
  const Environment environment;
  const Result result =
      train({"--dtype", "bf16", "--dropout", "0.1", "--stochastic-rounding", "--format", "json"});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  const sim::Report report = sim::report_from_json(json::parse(result.out).at("report").dump(), "stdout");
  CHECK(report.source.scenario.implementation.dropout);
  CHECK_FALSE(report.source.scenario.implementation.master_weights);
  for (const sim::MemoryLine& line : report.memory)
    if (line.category == "optimizer") CHECK(line.bytes.value > 0);
}

TEST_CASE("a model that the GPU's memory does not hold is refused before it starts, with both numbers") {
  const Environment environment;
  const Result result = program::run({"train", "--device", "cuda", "--model", "gpt2-124m", "--dtype", "bf16",
                                      "--seq-len", "64", "--steps", "1"});
  CAPTURE(result.out, result.err);
  CHECK(result.exit_code == 3);
  CHECK(result.err.find("the plan needs ") != std::string::npos);
  CHECK(result.err.find("NVIDIA H100, emulated has ") != std::string::npos);
}

TEST_CASE("measure runs a series on a GPU beside its prediction, whose memory is equal to the byte") {
  const Folder folder;
  const Environment environment;
  const std::string file = folder.write("series.json", R"x({"title": "t", "source": "s", "series": [
    {"name": "steps", "scenario": "train-tiny-llama-here", "set": {"workload.dtype": "bf16", "workload.seq_len": 8,
     "workload.micro_batch_size": 1, "workload.global_batch_size": 1}},
    {"name": "tokens", "scenario": {"model": "tiny-llama", "hardware": "h100-sxm", "implementation": "ridgepoint",
     "workload": {"task": "generate", "dtype": "bf16", "prompt_length": 2, "max_new_tokens": 6}}},
    {"name": "impossible", "scenario": "train-tiny-llama-here", "set": {"model.num_key_value_heads": 3}}]})x");
  const Result result = program::run({"measure", file, "--device", "cuda", "--seconds", "1e-4", "--format",
                                      "json", "--out", folder.path("runs")});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  const json document = json::parse(result.out);
  CHECK(document.at("ran") == 2);
  CHECK(document.at("memory_equal") == 2);
  CHECK(document.at("series").at(2).at("runs").at(0).contains("why_not"));
  CHECK(json::parse(std::ifstream(folder.path("runs/002.measured.json"))).dump().find("H100") !=
        std::string::npos);
  const Result ranks = program::run({"measure", "ranks", "--device", "cuda"});
  CHECK(ranks.exit_code == 2);
  CHECK(ranks.err.find("on the CPU alone") != std::string::npos);
}

TEST_CASE(
    "with the weights in place on a GPU, where tokens are replayed, a generation's tokens are the same "
    "again") {
  const Environment environment;
  sim::Scenario scenario = tests::generation(tests::small_llama(), 12, 2);
  scenario.workload.dtype = sim::DType::bf16;
  scenario.hardware.peak[sim::DType::bf16] = sim::tflops(0.1);
  runtime::GenerateSettings settings;
  settings.prompt = {1, 2, 3, 5, 8};
  settings.temperature = 1;
  settings.ignore_eos = true;
  settings.device.kind = runtime::DeviceChoice::Kind::cuda;
  runtime::Communicator alone;
  const std::vector<runtime::Generation> repeated =
      runtime::generate_repeatedly(3, scenario, tests::drawn(scenario.model), settings, alone, {}, {});
  REQUIRE(repeated.size() == 3);
  for (const runtime::Generation& generation : repeated) {
    CHECK(generation.tokens == repeated.front().tokens);
    CHECK(generation.report.tokens.size() == 12);
    CHECK(generation.report.message.empty());
  }
}

TEST_CASE("the program generates on a GPU from a cache of blocks, in bf16 and fp8, in the bytes predicted") {
  const Environment environment;
  const std::vector<std::string> workload = {"--model",          "tiny-llama", "--max-new-tokens", "16",
                                             "--implementation", "ridgepoint", "--dtype",          "bf16"};
  const auto with = [&](std::vector<std::string> first, const std::vector<std::string>& more) {
    first.insert(first.end(), workload.begin(), workload.end());
    first.insert(first.end(), more.begin(), more.end());
    const Result result = program::run(first);
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
    return json::parse(result.out);
  };
  const auto generate = [&](const std::vector<std::string>& more) {
    return with({"generate", "--device", "cuda", "--prompt-tokens", "1,2,3", "--format", "json"}, more);
  };
  const auto cache_bytes = [](const json& report) {
    for (const json& line : report.at("memory"))
      if (line.at("category") == "kv_cache") return line.at("bytes").get<std::int64_t>();
    return std::int64_t{0};
  };
  const json whole = generate({});
  for (const std::string type : {"bf16", "fp8"}) {
    CAPTURE(type);
    const std::vector<std::string> blocks = {"--kv-block", "16", "--kv-dtype", type};
    const json paged = generate(blocks);
    const json predicted = with({"predict", "--prompt-length", "3", "--format", "json"}, blocks);
    CHECK(cache_bytes(paged.at("report")) == cache_bytes(predicted.at("report")));
    if (type == "bf16") CHECK(paged.at("tokens") == whole.at("tokens"));
    // 19 tokens are two blocks of 16.
    const json& m = paged.at("report").at("source").at("scenario").at("model");
    const auto size = [&](const char* field) { return m.at(field).get<std::int64_t>(); };
    CHECK(cache_bytes(paged.at("report")) == 2 * size("num_hidden_layers") * 32 *
                                                 size("num_key_value_heads") * size("head_dim") *
                                                 (type == "fp8" ? 1 : 2));
  }
  const Result odd = program::run({"generate", "--device", "cuda", "--model", "tiny-llama", "--prompt-tokens",
                                   "1,2,3", "--kv-block", "20"});
  CHECK(odd.exit_code == 5);
  CHECK_THAT(odd.err, contains("in blocks of a multiple of 16 tokens; workload.kv_block is 20"));
}

TEST_CASE(
    "a GPU that rotates keys on their way into the cache generates the CPU's tokens, and its report says "
    "so") {
  const Environment environment;
  tests::keep_known_machine();
  const auto generate = [](const std::string& device, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"generate",   "--device",        device,  "--model",
                                          "tiny-llama", "--dtype",         "fp32",  "--format",
                                          "json",       "--prompt-tokens", "1,2,3", "--max-new-tokens",
                                          "16"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Result result = program::run(arguments);
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
    return json::parse(result.out);
  };
  const auto kernels_of_appends = [](const json& of) {
    std::set<std::string> kernels;
    for (const json& row : of.at("report").at("rows"))
      if (row.at("kind") == "kv_append") kernels.insert(row.value("fused_into", "its own"));
    return kernels;
  };
  const std::vector<std::vector<std::string>> caches = {
      {"--no-cuda-graphs"}, {"--kv-block", "16"}, {"--kv-block", "16", "--kv-dtype", "fp8"}};
  for (const std::vector<std::string>& cache : caches) {
    const json gpu = generate("cuda", cache), cpu = generate("cpu", cache);
    CHECK(gpu.at("tokens") == cpu.at("tokens"));
    CHECK(kernels_of_appends(gpu) == std::set<std::string>{"layer.attention.rope.forward"});
    CHECK(kernels_of_appends(cpu) == std::set<std::string>{"its own"});
  }
}

TEST_CASE("bench on a GPU times captured launches too") {
  const Environment environment;
  const Result result =
      program::run({"bench", "--device", "cuda", "--format", "json", "--seconds", "0.001", "gemm", "launch",
                    "graph-launch", "--gemm", "32x32x32", "--launches", "2"});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  std::vector<std::string> kinds;
  const json document = json::parse(result.out);
  for (const json& row : document.at("rows")) {
    kinds.push_back(row.at("what").get<std::string>());
    CHECK(row.at("dtype") == "bf16");
    CHECK(row.at("median_seconds").get<double>() > 0);
  }
  CHECK(kinds == std::vector<std::string>{"gemm", "launch", "graph-launch"});
}

TEST_CASE(
    "doctor names the driver, its version and the GPU's clocks, a driver that does not start is a sentence") {
  const Environment environment;
  const Result result = program::run({"doctor"});
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("NVIDIA H100 80GB HBM3: driver 570.86.15, ") != std::string::npos);
  setenv("FAKE_NVML_FAILS", "1", 1);
  const Result broken = program::run({"doctor"});
  unsetenv("FAKE_NVML_FAILS");
  CHECK(broken.exit_code == 0);
  CHECK(broken.out.find("NVML does not start: Driver Not Loaded") != std::string::npos);
}

TEST_CASE(
    "doctor lists what --device takes with its types, and a GPU without a backend with what is missing") {
  const Environment environment;
  const auto devices = [] {
    return json::parse(program::run({"doctor", "--devices", "--format", "json"}).out).at("devices");
  };
  const json with_backend = devices();
  REQUIRE(with_backend.size() >= 2);
  CHECK(with_backend.at(0).at("device") == "cpu");
  CHECK(with_backend.at(0).at("dtypes") == json({"fp32", "bf16", "fp16", "fp8"}));
  CHECK(with_backend.at(1).at("device") == "cuda:0");
  CHECK(with_backend.at(1).at("dtypes") == json({"bf16", "fp16", "fp32", "tf32", "fp8"}));
  CHECK(with_backend.at(1).at("missing") == "");
  setenv("RIDGEPOINT_CUDA_BACKEND", "/nowhere/libridgepoint_cuda.so", 1);
  const json without = devices();
  REQUIRE(without.size() == 2);
  CHECK(without.at(1).at("name") == "NVIDIA H100 80GB HBM3");
  CHECK(without.at(1).at("dtypes").empty());
  CHECK_THAT(without.at(1).at("missing").get<std::string>(), contains("built without the CUDA backend"));
  setenv("FAKE_NVML_FAILS", "1", 1);
  const json no_driver = devices();
  unsetenv("FAKE_NVML_FAILS");
  REQUIRE(no_driver.size() == 2);
  CHECK_THAT(no_driver.at(1).at("missing").get<std::string>(), contains("Driver Not Loaded"));
}
#endif
