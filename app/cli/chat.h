// A question in the form that an instruction-tuned model was trained on.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/text/tokenizer.h"

namespace app::cli {

// Uses ChatML (<|im_start|>user ... <|im_end|>), as SmolLM2 and Qwen2.5 instruct models do. Throws UsageError
// if the tokenizer lacks these marks.
std::vector<std::int32_t> chat_prompt(const runtime::Tokenizer& tokenizer, const std::string& question);

}  // namespace app::cli
