// All functions that write quantities as text, always with their unit: "61.4 GiB", "9.42 s", "312 TFLOP/s",
// "8,030,261,248".
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "sim/units.h"

namespace sim {

std::string format(Bytes b);    // B, KiB, MiB, GiB, TiB, three significant digits
std::string format(Seconds t);  // ns, µs, ms, s, min, h, days
std::string format(Flops f);    // FLOP, MFLOP ... ZFLOP
std::string format(FlopsPerSecond r);
std::string format(BytesPerSecond r);      // decimal: GB/s, as datasheets write it
std::string format_count(std::int64_t n);  // 8,030,261,248
std::string format_short(double n);        // 8.03B, 124M, 50.3K
std::string format_percent(double fraction);
std::string fixed(double x, int decimals);
// The number of columns that UTF-8 text takes on a terminal: its bytes that do not continue a character.
std::size_t columns_of(std::string_view text);
// "a, b or c".
std::string listed(std::span<const std::string_view> words, std::string_view last = "or");
inline constexpr std::string_view kMicroseconds = "\u00b5s";

// Joins the parts of a sentence. Whole numbers are written as format_count() writes them.
template <class... Parts>
std::string sentence(const Parts&... parts) {
  std::string text;
  const auto add = [&]<class Part>(const Part& part) {
    if constexpr (std::is_integral_v<Part> && !std::is_same_v<Part, char>)
      text += format_count(part);
    else
      text += part;
  };
  (add(parts), ...);
  return text;
}

// Reads "70B", "8k", "1.5T" or "80GiB" as people type them; false where the text is not a number. k, M, B, T
// are powers of 1000; "8k" means 8,192, as for a token count, only where the caller sets binary_k.
bool parse_count(const std::string& text, std::int64_t& out, bool binary_k = false);

}  // namespace sim
