// Perplexity of a model on texts, for each way that weights and the KV cache are stored here. Each text is
// read from its beginning, token by token through the KV cache, as generation does; of several texts it is
// that of all their tokens.
//
//   perplexity MODEL.gguf TEXT_FILE...
//   perplexity --as-stored MODEL.gguf TEXT_FILE...      with weights as the file has them alone
//   perplexity --tokens N MODEL.gguf TEXT_FILE...       the first N of each text, no more than 2,048
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/generate.h"
#include "runtime/library_settings.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"

namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::size_t kMostTokens = 2048;  // of a text, as tests/bench/perplexity.py

// Sum over the tokens behind the first of -log of their probability.
double surprise(const runtime::ModelSource& source, const sim::Workload& workload, const Tokens& tokens) {
  sim::Scenario scenario;
  scenario.model = source.model;
  scenario.hardware.peak[sim::DType::fp32] = scenario.hardware.peak[sim::DType::bf16] = sim::tflops(0.1);
  scenario.hardware.memory = sim::gib(64);
  scenario.hardware.memory_bandwidth = sim::gb_per_s(20);
  scenario.implementation = sim::load_implementation_preset("ridgepoint");
  scenario.workload = workload;
  scenario.workload.task = sim::Task::generate;
  scenario.workload.prompt_length = 1;
  scenario.workload.max_new_tokens = static_cast<std::int64_t>(tokens.size()) - 1;
  runtime::GenerateSettings settings;
  settings.prompt = {tokens.front()};
  settings.read.assign(tokens.begin() + 1, tokens.end());
  const double mean =
      std::log(sim::perplexity(runtime::generate(scenario, source, settings, {}, {}).report).value());
  return mean * static_cast<double>(tokens.size() - 1);
}

double perplexity(const runtime::ModelSource& source, const sim::Workload& workload,
                  const std::vector<Tokens>& texts) {
  double sum = 0, count = 0;
  for (const Tokens& tokens : texts) {
    sum += surprise(source, workload, tokens);
    count += static_cast<double>(tokens.size() - 1);
  }
  return std::exp(sum / count);
}

int measure(int argc, char** argv) {
  bool as_stored = false;
  std::size_t most_tokens = kMostTokens;
  for (; argc > 1 && std::string_view(argv[1]).starts_with("--"); --argc, ++argv) {
    if (std::string_view(argv[1]) == "--as-stored") {
      as_stored = true;
    } else if (std::string_view(argv[1]) == "--tokens" && argc > 2) {
      most_tokens = std::clamp(static_cast<std::size_t>(std::atoll(argv[2])), std::size_t{2}, kMostTokens);
      --argc, ++argv;
    } else {
      argc = 0;  // how it is used is told
      break;
    }
  }
  if (argc < 3) {
    std::fprintf(stderr, "usage: perplexity [--as-stored] [--tokens N] MODEL.gguf TEXT_FILE...\n");
    return 2;
  }
  using sim::DType;
  const runtime::ModelSource source = runtime::open_model(argv[1]);
  if (!source.tokenizer) {
    std::fprintf(stderr, "%s has no tokenizer\n", argv[1]);
    return 4;
  }
  std::vector<Tokens> texts;
  std::size_t read = 0;
  for (char** name = argv + 2; name < argv + argc; ++name) {
    std::ifstream file(*name);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    Tokens tokens = source.tokenizer->encode(text, true);
    tokens.resize(std::min(tokens.size(), most_tokens));
    if (tokens.size() < 2) {
      std::fprintf(stderr, "%s has no two tokens\n", *name);
      return 4;
    }
    read += tokens.size();
    texts.push_back(std::move(tokens));
  }

  constexpr const char* kStored = "as the file has them";
  struct Way {
    const char* name;
    DType dtype = DType::fp32;
    std::optional<DType> weights, embedding, cache;
    std::int64_t group = 0;
    bool zeros = true;
  };
  const Way ways[] = {
      {"fp32", DType::fp32, {}, {}, {}, 0},
      {kStored, DType::fp32, {}, {}, {}, 0},
      {"int8, groups of 32", DType::fp32, DType::int8, DType::int8, {}, 32},
      {"int8, no minima", DType::fp32, DType::int8, DType::int8, {}, 32, false},
      {"int8, rows", DType::fp32, DType::int8, DType::int8, {}, 0},
      {"int4, groups of 32", DType::fp32, DType::int4, DType::int4, {}, 32},
      {"int4, no minima", DType::fp32, DType::int4, DType::int4, {}, 32, false},
      {"bf16", DType::bf16, {}, {}, {}, 0},
      {"fp32, cache in bf16", DType::fp32, {}, {}, DType::bf16, 0},
      {"fp32, cache in fp8", DType::fp32, {}, {}, DType::fp8, 0},
  };
  std::printf("%zu tokens\n", read);
  double exact = 0;
  for (const Way& way : ways) {
    if (as_stored && way.name != kStored) continue;
    sim::Workload workload;
    workload.dtype = way.dtype;
    workload.weights_dtype = way.weights;
    workload.embedding_dtype = way.embedding;
    workload.kv_dtype = way.cache;
    workload.weights_group = way.group;
    workload.weights_zeros = way.zeros;
    if (way.name == kStored) source.stored.set(workload);
    const double p = perplexity(source, workload, texts);
    if (exact == 0) exact = p;
    std::printf("%-24s %9.4f  %+7.3f %%\n", way.name, p, 100 * (p / exact - 1));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  runtime::set_up_libraries(argv);
  try {
    return measure(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 4;
  }
}
