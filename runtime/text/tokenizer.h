// Byte-level BPE: text to token ids and back, as Hugging Face's tokenizer.json or a GGUF file describes it.
// Ids agree with Hugging Face's `tokenizers` and, where the two agree, with llama.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/text/byte_pair.h"
#include "runtime/text/pre_tokenizer.h"

namespace runtime {

class Gguf;

// A token that is matched in the text as it stands, before any splitting or merging: <|im_start|>,
// <|endoftext|>, ...
struct AddedToken {
  std::int32_t id = kNoToken;
  std::string content;
  bool special = false;     // marks structure rather than being part of a text
  bool lstrip = false;      // takes the whitespace before it too
  bool rstrip = false;      // and after it
  bool normalized = false;  // is looked for after normalisation
};

// What a tokenizer file says, once read.
struct TokenizerDescription {
  std::vector<std::string>
      tokens;  // by id, as the bytes that decoding gives; empty where no token has the id
  std::array<std::int32_t, 256> byte_tokens{};
  std::vector<TokenMerge> merges;
  std::vector<AddedToken> added;
  std::vector<PreTokenizerStep> steps;
  bool nfc = false;            // text is normalised to form C first; decoding gives the normalised text
  bool ignore_merges = false;  // a piece that is itself a token is taken whole
  std::vector<std::int32_t> prefix, suffix;  // put around a text by add_special
  std::optional<std::int32_t> bos;
  std::vector<std::int32_t> eos;  // any of these ends a generation; may be empty
};

class Tokenizer {
 public:
  // InputError (one sentence) when the file is malformed or describes another kind of tokenizer than
  // byte-level BPE. tokenizer.json does not say which tokens end a text: generation_config.json, config.json
  // or tokenizer_config.json beside it does, where they are.
  static Tokenizer from_tokenizer_json(const std::filesystem::path& path);
  static Tokenizer from_gguf(const Gguf& gguf);
  // Token b is the byte b; 256 tokens, none special. For tiny models.
  static Tokenizer bytes();

  explicit Tokenizer(TokenizerDescription description);

  // Any bytes are accepted. Added tokens in the text are always recognised. add_special puts the file's
  // tokens around the text (<|begin_of_text|>, ...). Bytes for which the vocabulary has no token are dropped
  // (SmolLM2 lacks 21: some control characters, and bytes that occur in no assigned UTF-8 character).
  std::vector<std::int32_t> encode(std::string_view text, bool add_special = false) const;

  // The exact bytes of the tokens, special ones by their name. InputError on an id outside the vocabulary.
  std::string decode(std::span<const std::int32_t> ids) const;
  std::string_view token_bytes(std::int32_t id) const;

  std::int32_t vocab_size() const {
    return static_cast<std::int32_t>(description_.tokens.size());
  }  // largest id + 1
  std::optional<std::int32_t> bos() const { return description_.bos; }
  const std::vector<std::int32_t>& eos() const { return description_.eos; }
  bool is_eos(std::int32_t id) const;
  bool is_special(std::int32_t id) const;

 private:
  class Call;  // the scratch of one encode(): a Tokenizer itself is constant and may be shared by threads

  // The added tokens of one kind, by first byte, longest first. Finds the one that begins a text.
  using Matcher = std::array<std::vector<std::uint32_t>, 256>;

  TokenizerDescription description_;
  BytePairMerger merger_;
  std::unordered_map<std::string, std::int32_t> whole_words_;  // filled for ignore_merges only
  Matcher before_normalization_, after_normalization_;
};

// Decodes token by token for a terminal or a stream: holds back the bytes of a character until it is
// complete.
class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  std::string push(std::int32_t id);  // what became printable, maybe nothing
  std::string finish();               // what is still held back: an incomplete character

 private:
  const Tokenizer* tokenizer_;
  std::string held_;
};

}  // namespace runtime
