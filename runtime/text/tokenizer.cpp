#include "runtime/text/tokenizer.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "runtime/error.h"
#include "runtime/text/unicode.h"

namespace runtime {
namespace {

// Words recur: each distinct one is merged once a call. Long ones are rare and not worth keeping.
constexpr std::size_t kMaxCachedWordBytes = 48;
constexpr std::size_t kMaxCachedWords = std::size_t{1} << 18;

bool is_whitespace_before(std::string_view text, std::size_t at, std::size_t& begin) {
  for (std::size_t length = 1; length <= std::min<std::size_t>(4, at); ++length) {
    const Codepoint codepoint = decode_utf8(text, at - length);
    if (codepoint.length != length) continue;
    begin = at - length;
    return classify(codepoint.value) == CodepointClass::whitespace;
  }
  return false;
}

}  // namespace

// Encodes one text: cuts out the added tokens, and sends what lies between them through normalisation,
// pre-tokenizer and merger.
class Tokenizer::Call {
 public:
  Call(const Tokenizer& tokenizer, std::vector<std::int32_t>& out) : tokenizer_(tokenizer), out_(out) {}

  void encode(std::string_view text) {
    cut(text, tokenizer_.before_normalization_, [&](std::string_view between) {
      if (tokenizer_.description_.nfc) between = storage_.emplace_back(to_nfc(between));
      cut(between, tokenizer_.after_normalization_, [&](std::string_view plain) { encode_plain(plain); });
    });
  }

 private:
  // Emits the added tokens of `matcher` in `text` (leftmost, of those the longest) and calls `plain` between
  // them.
  template <typename Plain>
  void cut(std::string_view text, const Matcher& matcher, const Plain& plain) {
    std::size_t done = 0;
    for (std::size_t at = 0; at < text.size();) {
      const AddedToken* token = match(text.substr(at), matcher);
      if (token == nullptr) {
        ++at;
        continue;
      }
      std::size_t begin = at;
      std::size_t end = at + token->content.size();
      if (token->lstrip) {
        std::size_t before = 0;
        while (begin > done && is_whitespace_before(text, begin, before)) begin = before;
      }
      if (token->rstrip) {
        while (end < text.size()) {
          const Codepoint next = decode_utf8(text, end);
          if (classify(next.value) != CodepointClass::whitespace) break;
          end += next.length;
        }
      }
      if (begin > done) plain(text.substr(done, begin - done));
      out_.push_back(token->id);
      at = done = end;
    }
    if (done < text.size()) plain(text.substr(done));
  }

  const AddedToken* match(std::string_view text, const Matcher& matcher) const {
    for (const std::uint32_t index : matcher[static_cast<std::uint8_t>(text[0])]) {
      const AddedToken& token = tokenizer_.description_.added[index];
      if (text.starts_with(token.content)) return &token;
    }
    return nullptr;
  }

  void encode_plain(std::string_view text) {
    for (const std::string_view word : pre_tokenize(text, tokenizer_.description_.steps, storage_))
      encode_word(word);
  }

  void encode_word(std::string_view word) {
    if (const auto known = words_.find(word); known != words_.end()) {
      const auto [begin, count] = known->second;
      out_.insert(out_.end(), word_tokens_.begin() + begin, word_tokens_.begin() + begin + count);
      return;
    }
    const std::size_t begin = out_.size();
    const auto whole = tokenizer_.description_.ignore_merges ? tokenizer_.whole_words_.find(std::string(word))
                                                             : tokenizer_.whole_words_.end();
    if (whole != tokenizer_.whole_words_.end()) {
      out_.push_back(whole->second);
    } else {
      tokenizer_.merger_.encode(word, out_);
    }
    if (word.size() <= kMaxCachedWordBytes && words_.size() < kMaxCachedWords) {
      words_.emplace(word, std::pair(static_cast<std::ptrdiff_t>(word_tokens_.size()),
                                     static_cast<std::ptrdiff_t>(out_.size() - begin)));
      word_tokens_.insert(word_tokens_.end(), out_.begin() + static_cast<std::ptrdiff_t>(begin), out_.end());
    }
  }

  const Tokenizer& tokenizer_;
  std::vector<std::int32_t>& out_;
  std::deque<std::string> storage_;  // texts that a step wrote, viewed by words_
  std::unordered_map<std::string_view, std::pair<std::ptrdiff_t, std::ptrdiff_t>> words_;  // begin, count
  std::vector<std::int32_t> word_tokens_;
};

Tokenizer::Tokenizer(TokenizerDescription description)
    : description_(std::move(description)), merger_(description_.byte_tokens, description_.merges) {
  description_.merges = {};  // the merger has them
  if (description_.ignore_merges) {
    for (std::size_t id = 0; id < description_.tokens.size(); ++id) {
      if (!description_.tokens[id].empty()) {
        whole_words_.emplace(description_.tokens[id], static_cast<std::int32_t>(id));
      }
    }
  }
  for (std::uint32_t i = 0; i < description_.added.size(); ++i) {
    AddedToken& token = description_.added[i];
    if (token.content.empty()) continue;
    const bool after = token.normalized && description_.nfc;
    if (after) token.content = to_nfc(token.content);
    Matcher& matcher = token.normalized ? after_normalization_ : before_normalization_;
    matcher[static_cast<std::uint8_t>(token.content[0])].push_back(i);
  }
  const auto longer = [&](std::uint32_t a, std::uint32_t b) {
    return description_.added[a].content.size() > description_.added[b].content.size();
  };
  for (auto& tokens : before_normalization_) std::ranges::stable_sort(tokens, longer);
  for (auto& tokens : after_normalization_) std::ranges::stable_sort(tokens, longer);
}

Tokenizer Tokenizer::bytes() {
  TokenizerDescription description;
  std::iota(description.byte_tokens.begin(), description.byte_tokens.end(), 0);
  for (int byte = 0; byte < 256; ++byte) description.tokens.emplace_back(1, static_cast<char>(byte));
  return Tokenizer(std::move(description));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  std::vector<std::int32_t> ids;
  if (add_special) ids = description_.prefix;
  Call(*this, ids).encode(text);
  if (add_special) ids.insert(ids.end(), description_.suffix.begin(), description_.suffix.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) text += token_bytes(id);
  return text;
}

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) {
    throw InputError("token " + std::to_string(id) + " lies outside the vocabulary of " +
                     std::to_string(vocab_size()) + " tokens");
  }
  return description_.tokens[static_cast<std::size_t>(id)];
}

bool Tokenizer::is_eos(std::int32_t id) const {
  return std::ranges::count(description_.eos, id) > 0;
}

bool Tokenizer::is_special(std::int32_t id) const {
  return std::ranges::any_of(description_.added,
                             [&](const AddedToken& t) { return t.id == id && t.special; });
}

std::string StreamDecoder::push(std::int32_t id) {
  held_ += tokenizer_->token_bytes(id);
  const std::size_t complete = complete_utf8_prefix(held_);
  std::string ready = held_.substr(0, complete);
  held_.erase(0, complete);
  return ready;
}

std::string StreamDecoder::finish() {
  return std::exchange(held_, {});
}

}  // namespace runtime
