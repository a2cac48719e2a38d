// Reading of config.json, shared by the readers of its families. Included by .cpp files only.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "sim/json_object.h"
#include "sim/scenario/model.h"

namespace sim {

// A config.json has dozens of fields that do not bear on shapes; those that would change the mathematics and
// are not supported are refused by name.
class HuggingFaceConfig {
 public:
  HuggingFaceConfig(const Json& json, const std::string& file) : object_(json, file) {}

  JsonObject& fields() { return object_; }

  // Whole numbers of at least 1, which is what every size is.
  std::int64_t size(std::string_view key) {
    const std::int64_t value = object_.integer(key);
    if (value < 1) object_.fail(key, "must be at least 1, but is " + std::to_string(value));
    return value;
  }
  std::int64_t size(std::string_view key, std::int64_t otherwise) {
    return object_.has_value(key) ? size(key) : otherwise;
  }
  double positive(std::string_view key) {
    const double value = object_.number(key);
    if (!(value > 0)) object_.fail(key, "must be a number above 0");
    return value;
  }

  void refuse_unless(std::string_view key, bool expected, bool otherwise) {
    if (object_.has_value(key) ? object_.boolean(key) == expected : otherwise == expected) return;
    object_.fail(
        key, std::string("must be ") + (expected ? "true" : "false") + ": no plan is made for it otherwise");
  }

 private:
  JsonObject object_;
};

// What a head has of the hidden size, which the heads must divide.
std::int64_t heads_share(HuggingFaceConfig& config, std::string_view hidden_key, std::int64_t hidden,
                         std::int64_t heads);

// Sizes that Llama and most later families share, by its names.
Model read_sizes(HuggingFaceConfig& config);

// Families that do not lie as Llama's do. Empty where the family is none of these.
std::optional<Model> read_predicted_family(HuggingFaceConfig& config, std::string_view family);
inline constexpr std::string_view kPredictedFamilies =
    "mixtral, qwen2_moe, qwen3, qwen3_moe, deepseek_v2, deepseek_v3, llama4, gpt_oss, gemma, gemma3_text, "
    "olmo2, bloom, mpt, opt, gpt_neox, gptj, falcon, nemotron_h";

}  // namespace sim
