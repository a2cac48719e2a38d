// Perplexity of a model on a text, for each way that weights and the KV cache are stored here. The text is
// read token by token through the KV cache, as generation does.
//
//   perplexity MODEL.gguf TEXT_FILE [MOST_TOKENS]
//   perplexity --as-stored MODEL.gguf TEXT_FILE      with weights as the file has them alone
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/generate.h"
#include "runtime/thread_waiting.h"
#include "sim/report/metrics.h"
#include "sim/scenario/preset.h"

namespace {

double perplexity(const runtime::ModelSource& source, const sim::Workload& workload,
                  const std::vector<std::int32_t>& tokens) {
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
  return sim::perplexity(runtime::generate(scenario, source, settings, {}, {}).report).value();
}

int measure(int argc, char** argv) {
  const bool as_stored = argc > 1 && std::string_view(argv[1]) == "--as-stored";
  if (as_stored) --argc, ++argv;
  if (argc < 3) {
    std::fprintf(stderr, "usage: perplexity [--as-stored] MODEL.gguf TEXT_FILE [MOST_TOKENS]\n");
    return 2;
  }
  using sim::DType;
  const runtime::ModelSource source = runtime::open_model(argv[1]);
  std::ifstream file(argv[2]);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!source.tokenizer || text.empty()) {
    std::fprintf(stderr, "%s\n", text.empty() ? "the text is empty" : "the model has no tokenizer");
    return 4;
  }
  std::vector<std::int32_t> tokens = source.tokenizer->encode(text, true);
  if (argc > 3) tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(std::atoll(argv[3]))));

  constexpr const char* kStored = "as the file has them";
  struct Way {
    const char* name;
    DType dtype = DType::fp32;
    std::optional<DType> weights, embedding, cache;
    std::int64_t group = 0;
  };
  const Way ways[] = {
      {"fp32", DType::fp32, {}, {}, {}, 0},
      {kStored, DType::fp32, source.stored.weights, source.stored.embedding, {}, source.stored.group},
      {"int8, groups of 32", DType::fp32, DType::int8, DType::int8, {}, 32},
      {"int8, rows", DType::fp32, DType::int8, DType::int8, {}, 0},
      {"int4, groups of 32", DType::fp32, DType::int4, DType::int4, {}, 32},
      {"bf16", DType::bf16, {}, {}, {}, 0},
      {"fp32, cache in bf16", DType::fp32, {}, {}, DType::bf16, 0},
      {"fp32, cache in fp8", DType::fp32, {}, {}, DType::fp8, 0},
  };
  std::printf("%zu tokens\n", tokens.size());
  double exact = 0;
  for (const Way& way : ways) {
    if (as_stored && way.name != kStored) continue;
    sim::Workload workload;
    workload.dtype = way.dtype;
    workload.weights_dtype = way.weights;
    workload.embedding_dtype = way.embedding;
    workload.kv_dtype = way.cache;
    workload.weights_group = way.group;
    const double p = perplexity(source, workload, tokens);
    if (exact == 0) exact = p;
    std::printf("%-24s %9.4f  %+7.3f %%\n", way.name, p, 100 * (p / exact - 1));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  runtime::restart_with_short_waiting(argv);
  try {
    return measure(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 4;
  }
}
