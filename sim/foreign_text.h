// Text that comes from outside: checks before it is parsed, and forms in which it is safe to show.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace sim {

// The byte, counted from 1 as parsers do, at which JSON is nested deeper than 100 levels; nothing where it is
// not. No file that we read is so deep, and a recursive parser or destructor would run out of stack.
std::optional<std::size_t> nested_too_deep(std::string_view json);

// The byte, counted from 1, at which JSON has a number beyond what a double holds; 1 where there is none. It
// serves messages for a parser that refused such a number without saying where.
std::size_t number_beyond_double(std::string_view json);

// The text with control characters written as \x1b or \u009b, and bytes that are not UTF-8 as \xff. A
// terminal then shows them instead of obeying them. Line ends and tabs stay.
std::string visible(std::string_view text);

// The text for a message: on one line, ASCII control characters as "?", and "..." after 200 bytes.
std::string excerpt(std::string_view text);

}  // namespace sim
