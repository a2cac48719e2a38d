// A question in the form that an instruction-tuned model was trained on.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/text/tokenizer.h"

namespace app::cli {

// ChatML (<|im_start|>user ... <|im_end|>), which SmolLM2 and Qwen2.5 instruct models use. Throws UsageError
// if the tokenizer lacks its marks.
std::vector<std::int32_t> chat_prompt(const runtime::Tokenizer& tokenizer, const std::string& question);

}  // namespace app::cli
