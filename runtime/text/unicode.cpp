#include "runtime/text/unicode.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/text/unicode_tables.h"

namespace runtime {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

std::uint8_t byte_at(std::string_view text, std::size_t at) {
  return static_cast<std::uint8_t>(text[at]);
}

// How many bytes the sequence that this lead byte begins has; 0 for other bytes. C0, C1 and F5 to FF begin
// nothing valid.
std::size_t announced_length(std::uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

// Whether `byte` may follow `lead` directly: narrower than 80..BF where an overlong form, a surrogate or a
// value beyond U+10FFFF would begin (table 3-7 of the Unicode Standard).
bool may_follow(std::uint8_t lead, std::uint8_t byte) {
  switch (lead) {
    case 0xE0:
      return byte >= 0xA0 && byte <= 0xBF;
    case 0xED:
      return byte >= 0x80 && byte <= 0x9F;
    case 0xF0:
      return byte >= 0x90 && byte <= 0xBF;
    case 0xF4:
      return byte >= 0x80 && byte <= 0x8F;
    default:
      return byte >= 0x80 && byte <= 0xBF;
  }
}

bool is_continuation(std::uint8_t byte) {
  return (byte & 0xC0) == 0x80;
}

template <typename Range>
const Range* find_range(std::span<const Range> ranges, char32_t codepoint) {
  const auto after = std::ranges::upper_bound(ranges, codepoint, {}, &Range::first);
  if (after == ranges.begin() || codepoint > (after - 1)->last) return nullptr;
  return &*(after - 1);
}

}  // namespace

Codepoint decode_utf8(std::string_view text, std::size_t at) {
  const std::uint8_t lead = byte_at(text, at);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = announced_length(lead);
  if (length == 0 || text.size() - at < length || !may_follow(lead, byte_at(text, at + 1)))
    return {kReplacement, 1};
  char32_t value = lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    const std::uint8_t byte = byte_at(text, at + i);
    if (!is_continuation(byte)) return {kReplacement, 1};
    value = (value << 6) | (byte & 0x3Fu);
  }
  return {value, length};
}

void append_utf8(char32_t codepoint, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (codepoint < 0x80) {
    put(codepoint);
  } else if (codepoint < 0x800) {
    put(0xC0 | (codepoint >> 6));
    put(0x80 | (codepoint & 0x3F));
  } else if (codepoint < 0x10000) {
    put(0xE0 | (codepoint >> 12));
    put(0x80 | ((codepoint >> 6) & 0x3F));
    put(0x80 | (codepoint & 0x3F));
  } else {
    put(0xF0 | (codepoint >> 18));
    put(0x80 | ((codepoint >> 12) & 0x3F));
    put(0x80 | ((codepoint >> 6) & 0x3F));
    put(0x80 | (codepoint & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Codepoint codepoint = decode_utf8(text, at);
    if (codepoint.length == 1 && byte_at(text, at) >= 0x80) return false;
    at += codepoint.length;
  }
  return true;
}

std::size_t complete_utf8_prefix(std::string_view text) {
  // Only the last three bytes can be the beginning of an incomplete sequence.
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const std::size_t at = text.size() - back;
    const std::uint8_t lead = byte_at(text, at);
    if (is_continuation(lead)) continue;
    const bool could_follow = back == 1 || may_follow(lead, byte_at(text, at + 1));
    return announced_length(lead) > back && could_follow ? at : text.size();
  }
  return text.size();
}

CodepointClass classify(char32_t codepoint) {
  if (codepoint < 0x80) {
    if ((codepoint | 0x20) >= 'a' && (codepoint | 0x20) <= 'z') return CodepointClass::letter;
    if (codepoint >= '0' && codepoint <= '9') return CodepointClass::number;
    if (codepoint == ' ' || (codepoint >= '\t' && codepoint <= '\r')) return CodepointClass::whitespace;
    return CodepointClass::other;
  }
  const auto* range = find_range(unicode_tables::classes(), codepoint);
  return range == nullptr ? CodepointClass::other : range->value;
}

// --- Normalisation form C

namespace {

// Hangul syllables are composed by arithmetic (The Unicode Standard, section 3.12).
constexpr char32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;
constexpr char32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

// Below this no code point is changed by NFC, and none combines with what stands before it.
constexpr char32_t kFirstAffected = 0x300;

std::uint8_t combining_class(char32_t codepoint) {
  const auto* range = find_range(unicode_tables::combining_classes(), codepoint);
  return range == nullptr ? 0 : range->value;
}

// A code point with its combining class. An invalid byte is kept as it is: its value is above the last one.
struct Mark {
  char32_t value;
  std::uint8_t combining;
};
constexpr char32_t kInvalidByte = 0x110000;

void decompose(char32_t codepoint, std::vector<Mark>& out) {
  if (codepoint >= kSyllables && codepoint < kSyllables + kSyllableCount) {
    const char32_t index = codepoint - kSyllables;
    out.push_back({kLeads + index / (kVowelCount * kTailCount), 0});
    out.push_back({kVowels + index / kTailCount % kVowelCount, 0});
    if (index % kTailCount != 0) out.push_back({kTails + index % kTailCount, 0});
    return;
  }
  const auto table = unicode_tables::decompositions();
  const auto found =
      std::ranges::lower_bound(table, codepoint, {}, &unicode_tables::Decomposition::codepoint);
  if (found == table.end() || found->codepoint != codepoint) {
    out.push_back({codepoint, combining_class(codepoint)});
    return;
  }
  decompose(found->first, out);
  if (found->second != 0) decompose(found->second, out);
}

// The primary composite of two code points, or 0.
char32_t compose(char32_t first, char32_t second) {
  if (first - kLeads < kLeadCount && second - kVowels < kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  }
  if (first - kSyllables < kSyllableCount && (first - kSyllables) % kTailCount == 0 && second > kTails &&
      second < kTails + kTailCount) {
    return first + (second - kTails);
  }
  using Pair = std::pair<std::pair<char32_t, char32_t>, char32_t>;
  static const std::vector<Pair> pairs = [] {
    std::vector<Pair> result;
    for (const auto& entry : unicode_tables::decompositions()) {
      if (entry.composes) result.push_back({{entry.first, entry.second}, entry.codepoint});
    }
    std::ranges::sort(result);
    return result;
  }();
  const auto found = std::ranges::lower_bound(pairs, std::pair(first, second), {}, &Pair::first);
  return found != pairs.end() && found->first == std::pair(first, second) ? found->second : 0;
}

// Runs of marks (combining class above 0) in order of their class; equal classes keep their order.
void order_marks(std::vector<Mark>& marks) {
  for (auto at = marks.begin(); at != marks.end();) {
    const auto is_starter = [](const Mark& mark) { return mark.combining == 0; };
    const auto begin = std::find_if_not(at, marks.end(), is_starter);
    const auto end = std::find_if(begin, marks.end(), is_starter);
    std::stable_sort(begin, end, [](const Mark& a, const Mark& b) { return a.combining < b.combining; });
    at = end;
  }
}

// Joins each mark or starter with the last starter unless something between them blocks it. In place.
void compose_all(std::vector<Mark>& marks) {
  std::size_t kept = 0;
  std::size_t starter = marks.size();  // none yet
  std::uint8_t last_class = 0;         // of what was kept after the starter
  for (const Mark mark : marks) {
    const bool adjacent = starter + 1 == kept;
    if (starter < kept && (adjacent || (last_class != 0 && last_class < mark.combining))) {
      if (const char32_t composite = compose(marks[starter].value, mark.value)) {
        marks[starter].value = composite;
        continue;
      }
    }
    if (mark.combining == 0) starter = kept;
    last_class = mark.combining;
    marks[kept++] = mark;
  }
  marks.resize(kept);
}

}  // namespace

std::string to_nfc(std::string_view text) {
  std::vector<Mark> marks;
  bool affected = false;
  for (std::size_t at = 0; at < text.size() && !affected;) {
    const Codepoint codepoint = decode_utf8(text, at);
    affected = codepoint.value >= kFirstAffected;
    at += codepoint.length;
  }
  if (!affected) return std::string(text);

  for (std::size_t at = 0; at < text.size();) {
    const Codepoint codepoint = decode_utf8(text, at);
    if (codepoint.length == 1 && byte_at(text, at) >= 0x80) {
      marks.push_back({kInvalidByte + byte_at(text, at), 0});
    } else {
      decompose(codepoint.value, marks);
    }
    at += codepoint.length;
  }
  order_marks(marks);
  compose_all(marks);

  std::string result;
  result.reserve(text.size());
  for (const Mark& mark : marks) {
    if (mark.value >= kInvalidByte) {
      result.push_back(static_cast<char>(mark.value - kInvalidByte));
    } else {
      append_utf8(mark.value, result);
    }
  }
  return result;
}

}  // namespace runtime
