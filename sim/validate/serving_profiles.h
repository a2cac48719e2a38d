// The inference engine that a table names, as the implementation preset that describes it.
#pragma once
#include <string>
#include <string_view>

namespace sim {

struct ServingProfile {
  std::string preset;
  bool nearest = false;  // no profile names this engine or version: the nearest one
};

// `framework` as in "TensorRT-LLM 0.6.1", "vLLM 0.21", "gpt-fast (torch.compile)"; `date` (ISO, its beginning
// suffices) decides where no version is given.
ServingProfile serving_profile_of(std::string_view framework, std::string_view date);

}  // namespace sim
