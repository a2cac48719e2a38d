// Byte-pair encoding of one word: start from its bytes, merge the adjacent pair of the lowest rank, leftmost
// first, until no pair merges (Sennrich et al. 2016, over bytes as GPT-2 does).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace runtime {

constexpr std::int32_t kNoToken = -1;

// `left` followed by `right` becomes `merged`; a merge's rank is its place in the list.
struct TokenMerge {
  std::int32_t left, right, merged;
};

class BytePairMerger {
 public:
  BytePairMerger() { byte_tokens_.fill(kNoToken); }
  // byte_tokens[b] is the token of the single byte b, or kNoToken: such a byte is dropped, as Hugging Face's
  // tokenizers do when the vocabulary has no unknown token. The last of equal pairs counts, as there.
  BytePairMerger(const std::array<std::int32_t, 256>& byte_tokens, const std::vector<TokenMerge>& merges);

  // Appends the tokens of `word`. O(n log n) in its bytes.
  void encode(std::string_view word, std::vector<std::int32_t>& out) const;

 private:
  struct RankedMerge {
    std::int32_t rank, merged;
  };
  const RankedMerge* find(std::int32_t left, std::int32_t right) const;

  std::array<std::int32_t, 256> byte_tokens_;
  std::unordered_map<std::uint64_t, RankedMerge> merges_;  // key: left in the upper half, right in the lower
};

}  // namespace runtime
