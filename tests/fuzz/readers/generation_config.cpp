// The files beside tokenizer.json that say which tokens end a text.
// Read by: runtime/text/tokenizer_json.cpp
#include "runtime/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  return {R"({"eos_token_id":2,"bos_token_id":1,"temperature":0.6})", R"({"eos_token_id":[2,3],"top_p":0.9})",
          R"({"eos_token":"<s>","model_max_length":8192})",
          R"({"eos_token":{"content":"<s>","lstrip":false}})"};
}

void fuzz::read(std::string_view input) {
  const std::filesystem::path tokenizer =
      fuzz::file("tokenizer.json",
                 R"({"added_tokens":[{"id":3,"content":"<s>","special":true}],"normalizer":null,
"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},"post_processor":null,
"model":{"type":"BPE","vocab":{"t":0,"h":1,"th":2},"merges":["t h"]}})");
  std::filesystem::path before;
  for (const char* const name : {"generation_config.json", "config.json", "tokenizer_config.json"}) {
    if (!before.empty()) std::filesystem::remove(before);
    before = fuzz::file(name, input);
    const auto read = runtime::Tokenizer::from_tokenizer_json(tokenizer);
    for (const std::int32_t id : read.eos())
      require(id >= 0 && id < read.vocab_size(), "end tokens are of the vocabulary");
  }
}
