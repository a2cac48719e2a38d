#include "runtime/text/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/text/unicode.h"

namespace runtime {
namespace {

using enum CodepointClass;

struct Classified {
  CodepointClass kind;
  std::size_t length;
};
Classified class_at(std::string_view text, std::size_t at) {
  const Codepoint codepoint = decode_utf8(text, at);
  return {classify(codepoint.value), codepoint.length};
}

bool is_newline(char c) {
  return c == '\r' || c == '\n';
}

// The end of the run of `kind` that begins at `at`, of at most `limit` code points.
std::size_t run_end(std::string_view text, std::size_t at, CodepointClass kind,
                    std::size_t limit = std::string_view::npos) {
  for (std::size_t count = 0; at < text.size() && count < limit; ++count) {
    const Classified next = class_at(text, at);
    if (next.kind != kind) break;
    at += next.length;
  }
  return at;
}

// 's|'t|'re|'ve|'m|'ll|'d at the beginning of `text`: its length, or 0.
std::size_t contraction(std::string_view text, bool ignore_case) {
  constexpr std::array<std::string_view, 7> kEndings = {"s", "t", "re", "ve", "m", "ll", "d"};
  if (text.empty() || text[0] != '\'') return 0;
  const std::string_view rest = text.substr(1);
  // The long s folds to s, as Unicode's case folding has it.
  if (ignore_case && rest.starts_with("\u017F")) return 1 + std::string_view("\u017F").size();
  const auto matches = [&](std::string_view ending) {
    return rest.size() >= ending.size() &&
           std::ranges::equal(rest.substr(0, ending.size()), ending, [&](char a, char b) {
             return a == b || (ignore_case && a >= 'A' && a <= 'Z' && a - 'A' + 'a' == b);
           });
  };
  const auto found = std::ranges::find_if(kEndings, matches);
  return found == kEndings.end() ? 0 : 1 + found->size();
}

// \s+(?!\S)|\s+ : the whole run at the end of the text, else all but its last code point, else that one.
std::size_t whitespace_piece(std::string_view text) {
  std::size_t last = 0;
  std::size_t end = 0;
  while (end < text.size()) {
    const Classified next = class_at(text, end);
    if (next.kind != whitespace) break;
    last = end;
    end += next.length;
  }
  return end == text.size() || last == 0 ? end : last;
}

std::size_t gpt2_piece(std::string_view text) {
  if (const std::size_t length = contraction(text, false)) return length;
  const std::size_t start = text[0] == ' ' ? 1 : 0;
  if (start < text.size()) {
    const CodepointClass kind = class_at(text, start).kind;
    if (kind != whitespace) return run_end(text, start, kind);
  }
  return whitespace_piece(text);
}

std::size_t llama3_piece(std::string_view text, std::size_t max_digits) {
  if (const std::size_t length = contraction(text, true)) return length;

  const Classified first = class_at(text, 0);
  if (first.kind == letter) return run_end(text, 0, letter);
  if (first.kind == number) return run_end(text, 0, number, max_digits);
  // One code point that is no newline may lead a word.
  if (!is_newline(text[0]) && first.length < text.size() && class_at(text, first.length).kind == letter) {
    return run_end(text, first.length, letter);
  }

  const std::size_t start = text[0] == ' ' ? 1 : 0;
  if (start < text.size() && class_at(text, start).kind == other) {
    std::size_t end = run_end(text, start, other);
    while (end < text.size() && is_newline(text[end])) ++end;
    return end;
  }

  // \s*[\r\n]+ is greedy: through the last newline of the run.
  const std::string_view run = text.substr(0, run_end(text, 0, whitespace));
  const std::size_t newline = run.find_last_of("\r\n");
  return newline == std::string_view::npos ? whitespace_piece(text) : newline + 1;
}

std::size_t number_piece(std::string_view text, std::size_t max_digits) {
  if (class_at(text, 0).kind == number) return run_end(text, 0, number, max_digits);
  std::size_t end = 0;
  while (end < text.size()) {
    const Classified next = class_at(text, end);
    if (next.kind == number) break;
    end += next.length;
  }
  return end;
}

// The length of the first piece of `text`, which is not empty. No expression looks behind, so the rest is cut
// alike.
std::size_t first_piece(PreTokenizerStep step, std::string_view text) {
  switch (step) {
    case PreTokenizerStep::gpt2:
      return gpt2_piece(text);
    case PreTokenizerStep::llama3:
      return llama3_piece(text, 3);
    case PreTokenizerStep::qwen2:
      return llama3_piece(text, 1);
    case PreTokenizerStep::each_number:
      return number_piece(text, 1);
    case PreTokenizerStep::number_runs:
      return number_piece(text, std::string_view::npos);
    case PreTokenizerStep::prefix_space:
      break;
  }
  return text.size();
}

}  // namespace

std::optional<PreTokenizerStep> step_of_regex(std::string_view regex) {
  constexpr std::array<std::pair<std::string_view, PreTokenizerStep>, 6> kKnown = {{
      {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
       PreTokenizerStep::gpt2},
      {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", PreTokenizerStep::gpt2},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       PreTokenizerStep::llama3},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       PreTokenizerStep::qwen2},
      {R"(\p{N})", PreTokenizerStep::each_number},
      {R"(\p{N}+)", PreTokenizerStep::number_runs},
  }};
  const auto found = std::ranges::find(kKnown, regex, &std::pair<std::string_view, PreTokenizerStep>::first);
  return found == kKnown.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string_view> pre_tokenize(std::string_view text, const std::vector<PreTokenizerStep>& steps,
                                           std::deque<std::string>& storage) {
  std::vector<std::string_view> pieces;
  if (!text.empty()) pieces.push_back(text);
  for (const PreTokenizerStep step : steps) {
    std::vector<std::string_view> cut;
    cut.reserve(pieces.size());
    for (std::string_view piece : pieces) {
      if (step == PreTokenizerStep::prefix_space) {
        cut.push_back(piece.starts_with(' ') ? piece : storage.emplace_back(1, ' ').append(piece));
        continue;
      }
      while (!piece.empty()) {
        const std::size_t length = first_piece(step, piece);
        cut.push_back(piece.substr(0, length));
        piece.remove_prefix(length);
      }
    }
    pieces = std::move(cut);
  }
  return pieces;
}

}  // namespace runtime
