#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string_view>

#include "tests/fuzz/fuzz.h"

namespace fuzz {
namespace {

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t limit) {
  return limit == 0 ? 0 : random() % limit;
}

template <std::size_t N>
std::string_view one_of(const std::array<std::string_view, N>& list, Random& random) {
  return list[below(random, N)];
}

constexpr std::array<std::string_view, 28> kNumbers = {"0",
                                                       "-0",
                                                       "1",
                                                       "-1",
                                                       "2",
                                                       "3",
                                                       "7",
                                                       "255",
                                                       "65536",
                                                       "1000003",
                                                       "2147483647",
                                                       "2147483648",
                                                       "-2147483648",
                                                       "4294967295",
                                                       "4294967296",
                                                       "9007199254740993",
                                                       "4611686018427387904",
                                                       "9223372036854775807",
                                                       "9223372036854775808",
                                                       "-9223372036854775808",
                                                       "18446744073709551615",
                                                       "99999999999999999999999",
                                                       "0.5",
                                                       "1e18",
                                                       "1e-300",
                                                       "1e300",
                                                       "1e400",
                                                       "NaN"};
constexpr std::array<std::string_view, 14> kValues = {"null", "true",      "false", "{}",     "[]",
                                                      "\"\"", "\"waltz\"", "[[]]",  "[null]", "{\"a\":1}",
                                                      "-1",   "1.5",       "1e308", "[0,0]"};
// Not UTF-8, or what a terminal would obey.
constexpr std::array<std::string_view, 10> kBytes = {
    "\xff",     "\xc0\xaf",     "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x9b", "\xc2\x9b[2J",
    "\xe2\x82", "\xef\xbb\xbf", "\r\n",         "\x1b[31m"};
constexpr std::array<std::uint64_t, 16> kLengths = {0,
                                                    1,
                                                    2,
                                                    3,
                                                    0x7f,
                                                    0xff,
                                                    0xffff,
                                                    0x7fffffff,
                                                    0x80000000,
                                                    0xffffffff,
                                                    0x100000000,
                                                    0x2000000000000000,
                                                    0x4000000000000000,
                                                    0x7fffffffffffffff,
                                                    0x8000000000000000,
                                                    0xffffffffffffffff};

bool is_number(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '+';
}

// [begin, end) of a run of characters that `belongs`, from some place on; empty where there is none.
template <class Belongs>
std::pair<std::size_t, std::size_t> run_of(const std::string& text, Random& random, Belongs belongs) {
  if (text.empty()) return {0, 0};
  std::size_t begin = below(random, text.size());
  while (begin < text.size() && !belongs(text[begin])) ++begin;
  while (begin > 0 && begin < text.size() && belongs(text[begin - 1])) --begin;
  std::size_t end = begin;
  while (end < text.size() && belongs(text[end])) ++end;
  return {begin, end};
}

// [begin, end) of the JSON value that begins at `begin`, as far as brackets and quotes tell.
std::size_t end_of_value(const std::string& text, std::size_t begin) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth < 0) return i;
    if (depth == 0 && (c == ',' || c == '\n')) return i;
  }
  return text.size();
}

struct Member {
  std::size_t begin = 0, value = 0, end = 0;  // of "key": value
};

Member some_member(const std::string& text, Random& random) {
  const std::size_t colon = text.find(':', below(random, text.size() + 1));
  if (colon == std::string::npos || colon == 0) return {};
  const std::size_t close = text.rfind('"', colon);
  const std::size_t open = close == std::string::npos || close == 0 ? close : text.rfind('"', close - 1);
  if (open == std::string::npos) return {};
  return {open, colon + 1, end_of_value(text, colon + 1)};
}

void change_bytes(std::string& text, Random& random) {
  const std::size_t at = below(random, text.size());
  switch (random() % 5) {
    case 0:
      text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
      break;
    case 1:
      text[at] = static_cast<char>(random());
      break;
    case 2:
      text.erase(at, 1 + below(random, 16));
      break;
    case 3:
      text.insert(at, 1 + below(random, 4), static_cast<char>(random()));
      break;
    default:
      text.insert(at, one_of(kBytes, random));
  }
}

void change_length(std::string& text, std::span<const std::string> others, Random& random) {
  const std::size_t at = below(random, text.size());
  const std::size_t count = below(random, text.size() - at) + 1;
  switch (random() % 5) {
    case 0:
      text.resize(at);
      break;
    case 1:
      text.insert(below(random, text.size()), text.substr(at, std::min<std::size_t>(count, 4096)));
      break;
    case 2:
      text.erase(at, count);
      break;
    case 3:
      text.insert(at, 1 + below(random, 4096), random() % 2 ? '\0' : ' ');
      break;
    default:
      if (others.empty()) return;
      const std::string& other = others[below(random, others.size())];
      const std::size_t from = below(random, other.size());
      text.replace(at, random() % 2 ? count : 0, other.substr(from, 1 + below(random, other.size() - from)));
  }
}

void change_binary_number(std::string& text, Random& random) {
  const std::size_t width = std::size_t{1} << random() % 4;
  if (text.size() < width) return;
  // Headers stand at the front.
  const std::size_t reach = random() % 2 ? text.size() : std::min<std::size_t>(text.size(), 64);
  if (reach < width) return;
  const std::size_t at = below(random, reach - width + 1);
  std::uint64_t value = 0;
  std::memcpy(&value, text.data() + at, width);
  switch (random() % 4) {
    case 0:
      value = kLengths[below(random, kLengths.size())];
      break;
    case 1:
      value += random() % 2 ? 1 : -1;
      break;
    case 2:
      value = text.size() - below(random, std::min<std::size_t>(text.size(), 32));
      break;
    default:
      value = below(random, 64);
  }
  std::memcpy(text.data() + at, &value, width);
}

void change_member(std::string& text, Random& random) {
  const Member member = some_member(text, random);
  if (member.end <= member.begin) return;
  const std::string whole = text.substr(member.begin, member.end - member.begin);
  const std::string value = text.substr(member.value, member.end - member.value);
  switch (random() % 7) {
    case 6:  // twice, under another name
      text.insert(member.end, ",\"x" + whole.substr(1));
      break;
    case 0:
      text.replace(member.value, value.size(), one_of(kValues, random));
      break;
    case 1:
      text.replace(member.value, value.size(), one_of(kNumbers, random));
      break;
    case 2:  // twice
      text.insert(member.end, "," + whole);
      break;
    case 3: {  // lost
      const bool comma = member.end < text.size() && text[member.end] == ',';
      text.erase(member.begin, whole.size() + (comma ? 1 : 0));
      break;
    }
    case 4: {  // nested
      constexpr std::array<std::size_t, 5> kDepths = {1, 2, 60, 300, 50'000};
      const std::size_t depth = kDepths[below(random, kDepths.size())];
      const bool list = random() % 2;
      std::string open, close;
      for (std::size_t i = 0; i < depth; ++i) {
        open += list ? "[" : "{\"a\":";
        close += list ? "]" : "}";
      }
      text.replace(member.value, value.size(), open + value + close);
      break;
    }
    default:  // another's value
      const Member other = some_member(text, random);
      if (other.end > other.value)
        text.replace(member.value, value.size(), text.substr(other.value, other.end - other.value));
  }
}

// Counts, types and enums of binary formats stand where bytes are a small number with zeros after it.
void change_small_integer(std::string& text, Random& random) {
  constexpr std::size_t kWidth = 4;
  if (text.size() < kWidth) return;
  std::size_t at = below(random, text.size() - kWidth + 1);
  const auto is_small = [&] { return text[at] != 0 && text[at + 2] == 0 && text[at + 3] == 0; };
  while (at + kWidth < text.size() && !is_small()) ++at;
  if (!is_small()) return;
  std::uint32_t value = 0;
  std::memcpy(&value, text.data() + at, kWidth);
  const std::uint32_t changed[] = {0,         value - 1,  value + 1,
                                   value * 2, 0xffffffff, static_cast<std::uint32_t>(below(random, 64))};
  std::memcpy(text.data() + at, &changed[below(random, std::size(changed))], kWidth);
}

// The whole document becomes another value.
void change_document(std::string& text, Random& random) {
  const std::size_t begin = text.find_first_of("{[");
  if (begin != std::string::npos) text.replace(begin, text.size() - begin, one_of(kValues, random));
}

void change_number(std::string& text, Random& random) {
  const auto [begin, end] = run_of(text, random, is_number);
  if (begin < end) text.replace(begin, end - begin, one_of(kNumbers, random));
}

// Words of a line, cells of a record, lines of a file.
void change_parts(std::string& text, Random& random) {
  const bool lines = random() % 2;
  const auto belongs = [lines](char c) { return lines ? c != '\n' : c != '\n' && c != ',' && c != ' '; };
  const auto [a, a_end] = run_of(text, random, belongs);
  const auto [b, b_end] = run_of(text, random, belongs);
  if (a == a_end || b == b_end) return;
  const std::string separator = lines ? "\n" : b > 0 && text[b - 1] == ' ' ? " " : ",";
  const std::string part = text.substr(b, b_end - b);
  switch (random() % 4) {
    case 0:
      text.replace(a, a_end - a, part);
      break;
    case 1:
      text.insert(a, part + separator);
      break;
    case 2:
      text.erase(a, std::min(a_end + 1, text.size()) - a);
      break;
    default:
      text.replace(a, a_end - a, random() % 2 ? one_of(kNumbers, random) : one_of(kBytes, random));
  }
}

void change(std::string& text, std::span<const std::string> others, Random& random) {
  if (text.empty()) {
    text = one_of(kValues, random);
    return;
  }
  switch (random() % 8) {
    case 0:
      return change_bytes(text, random);
    case 1:
      return change_length(text, others, random);
    case 2:
      if (random() % 32 == 0) return change_document(text, random);
      return random() % 2 ? change_small_integer(text, random) : change_binary_number(text, random);
    case 3:
    case 4:
      return change_member(text, random);
    case 5:
    case 6:
      return change_number(text, random);
    default:
      return change_parts(text, random);
  }
}

}  // namespace

std::string mutated(std::string input, std::span<const std::string> others, std::size_t longest,
                    std::mt19937_64& random) {
  for (std::size_t n = 1 + random() % 4; n > 0; --n) change(input, others, random);
  if (mend != nullptr && random() % 4) mend(input);
  if (input.size() > longest) input.resize(longest);
  return input;
}

}  // namespace fuzz
