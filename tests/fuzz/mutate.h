// Changes of an input that break readers: of its bits, its length, the numbers and words in it, its nesting.
#pragma once
#include <cstddef>
#include <random>
#include <span>
#include <string>

namespace fuzz {

// `input` with one to four changes; `others` are what parts may be taken from. At most `longest` bytes.
std::string mutated(std::string input, std::span<const std::string> others, std::size_t longest,
                    std::mt19937_64& random);

}  // namespace fuzz
