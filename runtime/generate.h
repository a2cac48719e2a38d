// Generation for real: prefill, then a token at a time, streamed.
#pragma once
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/train.h"

namespace runtime {

struct GenerateSettings {
  std::vector<std::int32_t> prompt;  // tokens; every sequence of the batch starts with it
  // Tokens that follow the prompt whatever the model would say, of every sequence: a text is read, not
  // written, and the report has how little the model expected each (TokenResult::surprise). At least as many
  // as the workload's new tokens; empty: the model chooses. In one process alone.
  std::vector<std::int32_t> read;
  float temperature = 0;   // 0: greedy
  std::int32_t top_k = 0;  // 0: all
  float top_p = 1;
  std::uint64_t seed = 1;
  bool ignore_eos = false;
  // On a GPU each token after the first few is one CUDA graph, replayed, and none waits for the host: what is
  // told of a token comes while the next is at work. The report's rows are then of the first few alone, the
  // tokens' times of all.
  bool replay = true;
  DeviceChoice device;
  sim::Slowdown slowdown;  // of this machine since its calibration: noted in the report
};

struct Generation {
  std::vector<std::vector<std::int32_t>>
      tokens;                       // new tokens of each sequence, end-of-sequence token included
  std::vector<float> first_logits;  // (V) after the prompt, sequence 0: what checks compare
  sim::Report report;
};

// The scenario's workload says lengths, batch and whether there is a KV cache.
Generation generate(const sim::Scenario& scenario, const ModelSource& model, const GenerateSettings& settings,
                    const EventSink& sink, std::stop_token stop);

// The same as one rank of several, which all call it: all have the tokens, rank 0 tells them. The report's
// rows are rank 0's.
Generation generate(const sim::Scenario& scenario, const ModelSource& model, const GenerateSettings& settings,
                    Communicator& communicator, const EventSink& sink, std::stop_token stop);

// The same generation `times` times, at least once, with weights that are put in place once; a measurement
// takes the median. `sink` is told of each as of a generation of its own. A stop request ends them early.
std::vector<Generation> generate_repeatedly(std::int64_t times, const sim::Scenario& scenario,
                                            const ModelSource& model, const GenerateSettings& settings,
                                            Communicator& communicator, const EventSink& sink,
                                            std::stop_token stop);

}  // namespace runtime
