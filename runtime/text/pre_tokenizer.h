// Cutting text into the pieces within which byte-pair encoding merges. The pieces are those of well-known
// regular expressions, matched by hand-written scanners; each step cuts every piece that the step before it
// left.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace runtime {

enum class PreTokenizerStep {
  // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+          (GPT-2, 2019)
  gpt2,
  // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
  // ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  llama3,
  // llama3 with \p{N} for \p{N}{1,3}
  qwen2,
  each_number,   // each \p{N} by itself
  number_runs,   // each \p{N}+ by itself
  prefix_space,  // a space before each piece that has none
};

// The step that cuts as this regular expression does, spelled as tokenizer.json spells it; nothing when it is
// not known.
std::optional<PreTokenizerStep> step_of_regex(std::string_view regex);

// Pieces of `text`, in order. They view `text`, or `storage` where a step had to write (its elements stay in
// place).
std::vector<std::string_view> pre_tokenize(std::string_view text, const std::vector<PreTokenizerStep>& steps,
                                           std::deque<std::string>& storage);

}  // namespace runtime
