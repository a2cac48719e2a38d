// Text that comes from outside: what has to be known of it before it is parsed or shown.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace sim {

// Where JSON is nested deeper than any file of ours or of others that we read (100 levels): a parser or a
// destructor that calls itself level by level would run out of stack. The byte, counted from 1 as parsers do.
std::optional<std::size_t> nested_too_deep(std::string_view json);

// The byte, counted from 1, at which JSON has a number beyond what a double holds; 1 where there is none. For
// the message of a parser that has refused it without a place.
std::size_t number_beyond_double(std::string_view json);

// With control characters written as \x1b or \u009b, and bytes that are no UTF-8 as \xff, so that a terminal
// shows them instead of obeying them. Line ends and tabs stay.
std::string visible(std::string_view text);

// Made fit for a message: one line, printable, of at most 200 bytes.
std::string excerpt(std::string_view text);

}  // namespace sim
