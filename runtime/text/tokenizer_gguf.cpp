// Tokenizer::from_gguf: the tokenizer.ggml.* metadata.
#include <algorithm>
#include <array>
#include <set>

#include "runtime/error.h"
#include "runtime/formats/excerpt.h"
#include "runtime/formats/gguf.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/vocabulary.h"

namespace runtime {
namespace {

// Values of tokenizer.ggml.token_type (llama_token_type in llama.h) that are matched as they stand.
constexpr std::int64_t kControl = 3;
constexpr std::int64_t kUserDefined = 4;

struct KnownPreTokenizer {
  std::string_view name;  // tokenizer.ggml.pre
  std::vector<PreTokenizerStep> steps;
  bool ignore_merges;
  bool add_bos;  // unless tokenizer.ggml.add_bos_token says otherwise
};

// What llama.cpp does for each name (src/llama-vocab.cpp).
const std::vector<KnownPreTokenizer>& known_pre_tokenizers() {
  using enum PreTokenizerStep;
  static const std::vector<KnownPreTokenizer> known = {
      {"gpt-2", {gpt2}, false, false},
      {"smollm", {each_number, gpt2}, false, false},
      {"starcoder", {each_number, gpt2}, false, false},
      {"llama-bpe", {llama3}, true, true},
      {"llama3", {llama3}, true, true},
      {"qwen2", {qwen2}, false, false},
  };
  return known;
}

const KnownPreTokenizer& pre_tokenizer_of(const Gguf& gguf, const std::string& where) {
  const std::string_view name = gguf.string("tokenizer.ggml.pre");
  const auto& known = known_pre_tokenizers();
  const auto found = std::ranges::find(known, name, &KnownPreTokenizer::name);
  if (found != known.end()) return *found;
  std::string names;
  for (const KnownPreTokenizer& each : known) names += (names.empty() ? "" : ", ") + std::string(each.name);
  throw InputError(where + ": tokenizer.ggml.pre is '" + excerpt(name) + "'; known are " + names);
}

bool flag_or(const Gguf& gguf, std::string_view key, bool otherwise) {
  return gguf.has(key) ? gguf.boolean(key) : otherwise;
}

}  // namespace

Tokenizer Tokenizer::from_gguf(const Gguf& gguf) {
  const std::string where = gguf.path().string();
  if (const std::string_view model = gguf.string("tokenizer.ggml.model"); model != "gpt2") {
    throw InputError(where + ": tokenizer.ggml.model is '" + excerpt(model) +
                     "'; only gpt2 (byte-level BPE) is supported");
  }
  const KnownPreTokenizer& pre_tokenizer = pre_tokenizer_of(gguf, where);

  TokenizerDescription description;
  description.steps = pre_tokenizer.steps;
  description.ignore_merges = pre_tokenizer.ignore_merges;

  const std::vector<std::string_view> written = gguf.strings("tokenizer.ggml.tokens");
  if (written.empty() || static_cast<std::int64_t>(written.size()) > kMaxVocabulary) {
    throw InputError(where + ": tokenizer.ggml.tokens has " + std::to_string(written.size()) +
                     " entries; from 1 to " + std::to_string(kMaxVocabulary) + " are accepted");
  }
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  for (const std::string_view merge : gguf.strings("tokenizer.ggml.merges")) {
    merges.push_back(split_merge(where, merge));
  }
  set_vocabulary(where, written, merges, description);

  const std::vector<std::int64_t> types = gguf.integers("tokenizer.ggml.token_type");
  if (types.size() != written.size()) {
    throw InputError(where + ": tokenizer.ggml.token_type has " + std::to_string(types.size()) +
                     " entries for " + std::to_string(written.size()) + " tokens");
  }
  for (std::size_t id = 0; id < written.size(); ++id) {
    if (types[id] != kControl && types[id] != kUserDefined) continue;
    AddedToken token;
    token.id = static_cast<std::int32_t>(id);
    token.content = std::string(written[id]);
    token.special = types[id] == kControl;
    description.tokens[id] = token.content;  // written as it stands, not byte by byte
    description.added.push_back(std::move(token));
  }

  const auto token_id = [&](std::string_view key) -> std::optional<std::int32_t> {
    if (!gguf.has(key)) return std::nullopt;
    const std::int64_t id = gguf.integer(key);
    if (id < 0 || id >= static_cast<std::int64_t>(written.size())) {
      throw InputError(where + ": " + std::string(key) + " is " + std::to_string(id) +
                       ", outside the vocabulary of " + std::to_string(written.size()) + " tokens");
    }
    return static_cast<std::int32_t>(id);
  };
  description.bos = token_id("tokenizer.ggml.bos_token_id");
  const std::optional<std::int32_t> eos = token_id("tokenizer.ggml.eos_token_id");

  // Like llama.cpp, take for an end of generation what the file names and what is known by its text.
  std::set<std::int32_t> ends;
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (const auto id = token_id(key)) ends.insert(*id);
  }
  constexpr std::array<std::string_view, 4> kEndNames = {"<|endoftext|>", "<|im_end|>", "<|eot_id|>",
                                                         "<|eom_id|>"};
  for (const AddedToken& token : description.added) {
    if (token.special && std::ranges::count(kEndNames, token.content) > 0) ends.insert(token.id);
  }
  description.eos.assign(ends.begin(), ends.end());

  if (description.bos && flag_or(gguf, "tokenizer.ggml.add_bos_token", pre_tokenizer.add_bos)) {
    description.prefix.push_back(*description.bos);
  }
  if (eos && flag_or(gguf, "tokenizer.ggml.add_eos_token", false)) description.suffix.push_back(*eos);
  return Tokenizer(std::move(description));
}

}  // namespace runtime
