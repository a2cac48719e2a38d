// The written form of a byte-level vocabulary, shared by the files that hold one. GPT-2 writes each byte of a
// token as a printable character: those of Latin-1 that are printable stand for themselves, the others follow
// from U+0100 on (a space is written U+0120, a newline U+010A).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/text/tokenizer.h"

namespace runtime {

// More than any vocabulary in use (the largest have 262,144); bounds what a malformed file can ask for.
constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 22;

// The character that stands for a byte, and the bytes that a written token stands for. Characters that stand
// for no byte (in added tokens) stay as they are.
std::string written_byte(std::uint8_t byte);
std::string bytes_of_written(std::string_view written);

// Fills tokens, byte_tokens and merges of `description`. written[id] is a token, empty where there is none; a
// merge names its two halves. InputError, beginning with `where`, when a merge names a token that the
// vocabulary lacks.
void set_vocabulary(const std::string& where, std::span<const std::string_view> written,
                    std::span<const std::pair<std::string_view, std::string_view>> merges,
                    TokenizerDescription& description);

// "left right" as merges are written; InputError when there is no such pair.
std::pair<std::string_view, std::string_view> split_merge(const std::string& where, std::string_view merge);

}  // namespace runtime
