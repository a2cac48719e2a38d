// What a byte-level tokenizer needs of Unicode: UTF-8, three character classes, and normalisation form C.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace runtime {

// \p{L}, \p{N} and \s of the pre-tokenizers' regular expressions; everything else is `other`.
enum class CodepointClass : std::uint8_t { other, letter, number, whitespace };

struct Codepoint {
  char32_t value;      // U+FFFD for a byte that begins no valid sequence
  std::size_t length;  // bytes it takes: 1 to 4; 1 for an invalid byte
};

// The code point that begins at text[at]; `at` < text.size(). Overlong forms, surrogates and values beyond
// U+10FFFF are invalid, and so each of their bytes stands alone.
Codepoint decode_utf8(std::string_view text, std::size_t at);
void append_utf8(char32_t codepoint, std::string& out);
bool is_valid_utf8(std::string_view text);

// The length of the longest prefix that does not end within a sequence which more bytes could complete.
std::size_t complete_utf8_prefix(std::string_view text);

CodepointClass classify(char32_t codepoint);

// Normalisation form C (Unicode Standard Annex 15). Invalid bytes are kept as they are and take part in
// nothing.
std::string to_nfc(std::string_view text);

}  // namespace runtime
