// Hugging Face's tokenizer.json, then a text through what it describes.
// Read by: runtime/text/tokenizer_json.cpp runtime/text/vocabulary.cpp runtime/text/pre_tokenizer.cpp
// runtime/text/byte_pair.cpp
#include "runtime/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> all = files_of("tests/runtime/data/tokenizers", "tokenizer.json");
  // Small enough that a change hits what counts.
  all.push_back(
      R"({"added_tokens":[{"id":4,"content":"<s>","special":true,"lstrip":false,"rstrip":true,"normalized":false}],
"normalizer":{"type":"NFC"},
"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},
{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}]},
"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},
{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[4],"tokens":["<s>"]}}},
"decoder":{"type":"ByteLevel"},
"model":{"type":"BPE","dropout":null,"unk_token":null,"ignore_merges":true,
"vocab":{"t":0,"h":1,"th":2,"e":3},"merges":["t h"]}})");
  return all;
}

void fuzz::read(std::string_view input) {
  const auto tokenizer = require_shallow(
      input, [&] { return runtime::Tokenizer::from_tokenizer_json(fuzz::file("tokenizer.json", input)); });
  for (const std::string_view text :
       {std::string_view("the <s> the\xcc\x81 12345\n\n"), input.substr(0, 400)}) {
    const std::vector<std::int32_t> ids = tokenizer.encode(text, true);
    for (const std::int32_t id : ids)
      require(id >= 0 && id < tokenizer.vocab_size(), "ids are of the vocabulary");
    tokenizer.decode(ids);
    runtime::StreamDecoder stream(tokenizer);
    std::string streamed;
    for (const std::int32_t id : ids) streamed += stream.push(id);
    streamed += stream.finish();
    require(streamed == tokenizer.decode(ids), "a stream of tokens has the bytes of all of them");
  }
}
