#include "sim/validate/serving_profiles.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>

namespace sim {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// "0.6.1" is 6, "1.0" is 1000: minor versions, a major one being a thousand of them.
std::optional<int> version_in(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = std::isdigit(static_cast<unsigned char>(text[i])) != 0 &&
                        (i == 0 || text[i - 1] == ' ' || text[i - 1] == 'v');
    if (!begins) continue;
    int major = 0, minor = 0;
    const char* const last = text.data() + text.size();
    const auto after = std::from_chars(text.data() + i, last, major);
    if (after.ptr == last || *after.ptr != '.') continue;
    std::from_chars(after.ptr + 1, last, minor);
    return 1000 * major + minor;
  }
  return std::nullopt;
}

std::optional<int> year_in(std::string_view date) {
  int year = 0;
  const auto end = std::from_chars(date.data(), date.data() + date.size(), year);
  if (end.ec != std::errc() || year < 2000) return std::nullopt;
  return year;
}

// A preset holds from a version on, or, where a table gives none, from a year on.
struct Era {
  std::string_view engine, preset;
  int from_version, from_year;
};
constexpr std::array<Era, 27> kEras{{
    {"pytorch", "transformers_eager", 0, 0},
    {"hugging", "transformers_eager", 0, 0},
    {"text-generation-inference", "vllm_0.5", 0, 0},
    {"tgi", "vllm_0.5", 0, 0},
    {"megakernel", "calm", 0, 0},
    {"exllama", "llama_cpp", 0, 0},
    {"mlc", "llama_cpp", 0, 0},
    {"fastertransformer", "fastertransformer", 0, 0},
    {"gpt-fast", "gpt_fast", 0, 0},
    {"gptfast", "gpt_fast", 0, 0},
    {"tensorrt", "tensorrt_llm_0.6", 0, 0},
    {"tensorrt", "tensorrt_llm_0.18", 10, 2024},
    {"tensorrt", "tensorrt_llm_1.0", 1000, 2025},
    {"trt-llm", "tensorrt_llm_1.0", 0, 0},
    {"vllm", "vllm_0.2", 0, 0},
    {"vllm", "vllm_0.5", 4, 2024},
    {"vllm", "vllm_0.6", 6, 9999},
    {"vllm", "vllm_0.8", 8, 2025},
    {"vllm", "vllm_0.14", 14, 2026},
    {"sglang", "sglang_0.3", 0, 0},
    {"sglang", "sglang_0.4", 4, 2025},
    {"llama.cpp", "llama_cpp", 0, 0},
    {"lmdeploy", "lmdeploy", 0, 0},
    {"deepspeed", "deepspeed_inference", 0, 0},
    {"megatron", "megatron_inference_2021", 0, 0},
    {"transformers", "transformers_eager", 0, 0},
    {"calm", "calm", 0, 0},
}};

}  // namespace

ServingProfile serving_profile_of(std::string_view framework, std::string_view date) {
  const std::string text = lower(framework);
  const std::optional<int> version = version_in(text);
  const std::optional<int> year = year_in(date);
  ServingProfile found;
  for (const Era& era : kEras) {
    if (text.find(era.engine) == std::string::npos) continue;
    const bool holds = version ? *version >= era.from_version : year.value_or(0) >= era.from_year;
    if (found.preset.empty() || holds) found.preset = era.preset;
  }
  if (!found.preset.empty()) return found;
  // An engine nobody described: what was common in its year.
  return {year.value_or(2025) >= 2025 ? "vllm_0.8" : "lmdeploy", true};
}

}  // namespace sim
