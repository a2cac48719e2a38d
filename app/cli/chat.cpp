#include "app/cli/chat.h"

#include "app/cli/exit_code.h"

namespace app::cli {

std::vector<std::int32_t> chat_prompt(const runtime::Tokenizer& tokenizer, const std::string& question) {
  constexpr std::string_view kBegin = "<|im_start|>", kEnd = "<|im_end|>";
  if (tokenizer.encode(kBegin).size() != 1 || tokenizer.encode(kEnd).size() != 1)
    throw UsageError(
        "--chat: this model's vocabulary has no <|im_start|> and <|im_end|>; it was not trained to chat so");
  return tokenizer.encode("<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n", true);
}

}  // namespace app::cli
