// Numbers of things in words, "1 rank", "8 ranks", "1,024 micro-batches", and ordinals.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace app {

// `one` is the noun in the singular. Its plural ends in s, or in es after ch.
std::string counted(std::int64_t n, std::string_view one);
// "1st", "2nd", "11th".
std::string ordinal(std::int64_t n);

}  // namespace app
