// Reading of config.json, shared by the readers of its families. Included by .cpp files only.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "sim/foreign_text.h"
#include "sim/format.h"
#include "sim/json_object.h"
#include "sim/scenario/field.h"
#include "sim/scenario/model.h"

namespace sim {

// A config.json has dozens of fields that do not bear on shapes. Fields that would change the mathematics and
// are not supported are refused by name.
class HuggingFaceConfig : public JsonObject {
 public:
  using JsonObject::JsonObject;

  // A size: a whole number of at least 1. Throws PresetError for any other.
  std::int64_t size(std::string_view key) {
    const std::int64_t value = integer(key);
    if (value < 1) fail(key, "must be at least 1, but is " + std::to_string(value));
    return value;
  }
  std::int64_t size(std::string_view key, std::int64_t otherwise) {
    return has_value(key) ? size(key) : otherwise;
  }
  // A number from which a size is computed. Within the bounds of real models the size stays in 64 bits.
  // validate() finds impossible sizes where nothing is computed from them here.
  std::int64_t factor(std::string_view key, std::int64_t least = 1, std::int64_t most = kLargestWidth) {
    const std::int64_t value = integer(key);
    if (value < least || value > most)
      fail(key, sentence("must be from ", least, " to ", most, ", but is ", value));
    return value;
  }
  double positive(std::string_view key) {
    const double value = number(key);
    if (!(value > 0)) fail(key, "must be a number above 0");
    return value;
  }

  void refuse_unless(std::string_view key, bool expected, bool otherwise) {
    if (has_value(key) ? boolean(key) == expected : otherwise == expected) return;
    fail(key, std::string("must be ") + (expected ? "true" : "false") + ": no plan is made for it otherwise");
  }

  // One of these words. Where the file has none: `usual`, or the first word if `usual` is empty.
  std::string one_of(std::string_view key, std::initializer_list<std::string_view> words,
                     std::string_view usual = {}) {
    const std::string word = text(key, std::string(usual.empty() ? *words.begin() : usual));
    if (std::ranges::find(words, word) == words.end())
      fail(key, "must be " + listed({words.begin(), words.size()}) + ", but is \"" + excerpt(word) + "\"");
    return word;
  }
};

// The width of one head: the hidden size divided by the heads. Fails if they do not divide it.
std::int64_t heads_share(HuggingFaceConfig& config, std::string_view hidden_key, std::int64_t hidden,
                         std::int64_t heads);

// Sizes that Llama and most later families share, by Llama's names; families may rename two of them.
Model read_sizes(HuggingFaceConfig& config, std::string_view norm_eps = "rms_norm_eps",
                 std::string_view head_dim = "head_dim");

// Reads the windows of attention; windows that mask nothing are left out.
void read_window(HuggingFaceConfig& config, Model& m);

// A family of models, by its model_type.
struct HuggingFaceFamily {
  std::string_view name;
  Model (*read)(HuggingFaceConfig& config, std::string_view name);
  bool rotates = false;  // has rotary embeddings, described in files as Llama's are
  // Fields, as JSON, that files leave out because transformers has defaults for them.
  std::string_view defaults{};
};
// The families whose files are not laid out as Llama's.
std::span<const HuggingFaceFamily> other_families();

}  // namespace sim
