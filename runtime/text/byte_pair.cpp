#include "runtime/text/byte_pair.h"

#include <queue>
#include <tuple>

namespace runtime {
namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

constexpr std::ptrdiff_t kNone = -1;

// A token of the word so far, linked to its neighbours; merged away: token is kNoToken.
struct Symbol {
  std::int32_t token;
  std::ptrdiff_t previous, next;
};

// A merge that was possible when it was queued: of the symbols at `left` and after it, whose tokens at that
// time are kept here.
struct Candidate {
  std::int32_t rank;
  std::ptrdiff_t left;
  std::int32_t left_token, right_token, merged;
};
struct Later {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return std::tie(a.rank, a.left) > std::tie(b.rank, b.left);
  }
};

}  // namespace

BytePairMerger::BytePairMerger(const std::array<std::int32_t, 256>& byte_tokens,
                               const std::vector<TokenMerge>& merges)
    : byte_tokens_(byte_tokens) {
  merges_.reserve(merges.size());
  std::int32_t rank = 0;
  for (const TokenMerge& merge : merges) {
    merges_.insert_or_assign(pair_key(merge.left, merge.right), RankedMerge{rank++, merge.merged});
  }
}

const BytePairMerger::RankedMerge* BytePairMerger::find(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BytePairMerger::encode(std::string_view word, std::vector<std::int32_t>& out) const {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (const char c : word) {
    const std::int32_t token = byte_tokens_[static_cast<std::uint8_t>(c)];
    if (token == kNoToken) continue;
    const auto at = static_cast<std::ptrdiff_t>(symbols.size());
    symbols.push_back({token, at - 1, at + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = kNone;

  std::priority_queue<Candidate, std::vector<Candidate>, Later> candidates;
  const auto consider = [&](std::ptrdiff_t left) {
    if (left == kNone || symbols[left].next == kNone) return;
    const std::int32_t left_token = symbols[left].token;
    const std::int32_t right_token = symbols[symbols[left].next].token;
    if (const RankedMerge* merge = find(left_token, right_token)) {
      candidates.push({merge->rank, left, left_token, right_token, merge->merged});
    }
  };
  for (std::ptrdiff_t i = 0; i + 1 < static_cast<std::ptrdiff_t>(symbols.size()); ++i) consider(i);

  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[best.left];
    if (left.token != best.left_token || left.next == kNone) continue;  // merged since it was queued
    Symbol& right = symbols[left.next];
    if (right.token != best.right_token) continue;
    left.token = best.merged;
    left.next = right.next;
    right.token = kNoToken;
    if (left.next != kNone) symbols[left.next].previous = best.left;
    consider(left.previous);
    consider(best.left);
  }
  for (std::ptrdiff_t i = 0; i != kNone; i = symbols[i].next) out.push_back(symbols[i].token);
}

}  // namespace runtime
