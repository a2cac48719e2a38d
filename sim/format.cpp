#include "sim/format.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>

#include "sim/byte_units.h"

namespace sim {

std::string fixed(double x, int decimals) {
  std::array<char, 400> text{};  // the largest double has 309 digits
  std::snprintf(text.data(), text.size(), "%.*f", decimals, x);
  return text.data();
}

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string listed(std::span<const std::string_view> words, std::string_view last) {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0 && i + 1 == words.size())
      list.append(" ").append(last).append(" ");
    else if (i > 0)
      list.append(", ");
    list.append(words[i]);
  }
  return list;
}

namespace {

std::string grouped(std::string digits) {
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

// x >= 0 with three significant digits and no exponent: 0.0512, 9.42, 61.4, 312, 1,234,567.
std::string three_digits(double x) {
  if (x == 0) return "0";
  if (x >= 999.5) return grouped(fixed(x, 0));
  int decimals = 2 - static_cast<int>(std::floor(std::log10(x)));
  // 9.996 has two decimals by its logarithm and would print as 10.00.
  if (decimals > 0 && x + 0.5 * std::pow(10.0, -decimals) >= std::pow(10.0, 3 - decimals)) --decimals;
  return fixed(x, decimals < 0 ? 0 : decimals);
}

struct Unit {
  double size;
  std::string_view name;
};

// The largest unit of which x prints as at least 1; `whole` says that the first unit has no fractions.
template <class Units>
std::string in_units(double x, const Units& units, double least = 1) {
  if (std::isnan(x)) return "n/a";
  const std::string sign = x < 0 ? "-" : "";
  const double magnitude = std::fabs(x);
  if (std::isinf(magnitude)) return sign + "inf " + std::string(units[0].name);
  std::size_t i = 0;
  // 999.9 of a unit print as 1,000: such a number belongs to the next unit where that is 1000 of this one.
  while (i + 1 < units.size() && magnitude >= units[i + 1].size * least * (1 - 0.0005)) ++i;
  return sign + three_digits(magnitude / units[i].size) + " " + std::string(units[i].name);
}

}  // namespace

std::string format(Bytes b) {
  return in_units(static_cast<double>(b.value), byte_scale());
}

std::string format(Seconds t) {
  static constexpr std::array<Unit, 4> kShort{{{1e-9, "ns"}, {1e-6, kMicroseconds}, {1e-3, "ms"}, {1, "s"}}};
  // Minutes, hours and days from twice the unit on: 90 s and 36 h read better than 1.50 min and 1.50 days.
  static constexpr std::array<Unit, 4> kLong{{{1, "s"}, {60, "min"}, {3600, "h"}, {86400, "days"}}};
  return std::fabs(t.value) < 60 ? in_units(t.value, kShort) : in_units(t.value, kLong, 2);
}

std::string format(Flops f) {
  static constexpr std::array<Unit, 8> kUnits{{{1, "FLOP"},
                                               {1e3, "kFLOP"},
                                               {1e6, "MFLOP"},
                                               {1e9, "GFLOP"},
                                               {1e12, "TFLOP"},
                                               {1e15, "PFLOP"},
                                               {1e18, "EFLOP"},
                                               {1e21, "ZFLOP"}}};
  return in_units(f.value, kUnits);
}

std::string format(FlopsPerSecond r) {
  return format(Flops{r.value}) + "/s";
}

std::string format(BytesPerSecond r) {
  static constexpr std::array<Unit, 5> kUnits{
      {{1, "B/s"}, {1e3, "kB/s"}, {1e6, "MB/s"}, {1e9, "GB/s"}, {1e12, "TB/s"}}};
  // Datasheets write 3,350 GB/s as often as 3.35 TB/s; below 10 TB/s the former compares better.
  if (r.value >= 1e12 && r.value < 1e13) return three_digits(r.value / 1e9) + " GB/s";
  return in_units(r.value, kUnits);
}

std::string format_count(std::int64_t n) {
  const std::string digits = std::to_string(n);
  return n < 0 ? std::string("-").append(grouped(digits.substr(1))) : grouped(digits);
}

std::string format_short(double n) {
  static constexpr std::array<Unit, 5> kUnits{{{1, ""}, {1e3, "K"}, {1e6, "M"}, {1e9, "B"}, {1e12, "T"}}};
  if (std::fabs(n) < 1000 && n == std::floor(n)) return fixed(n, 0);
  std::string text = in_units(n, kUnits);
  if (const auto space = text.find(' '); space != std::string::npos) text.erase(space, 1);
  return text;
}

std::string format_percent(double fraction) {
  if (!std::isfinite(fraction)) return "n/a";
  const double percent = fraction * 100;
  return fixed(percent, std::fabs(percent) < 99.95 ? 1 : 0) + " %";
}

bool parse_count(const std::string& text, std::int64_t& out, bool binary_k) {
  std::size_t i = 0;
  while (i < text.size() && std::isspace(static_cast<unsigned char>(text[i]))) ++i;
  std::size_t end = text.size();
  while (end > i && std::isspace(static_cast<unsigned char>(text[end - 1]))) --end;

  // The digits as an integer and a number of decimals, so that no rounding can make 8,030,261,248 another.
  std::int64_t digits = 0;
  int decimals = 0;
  bool any = false, point = false;
  for (; i < end; ++i) {
    const char c = text[i];
    if (c == '.' && !point) {
      point = true;
    } else if (c == ',' && any && !point) {
      continue;
    } else if (c >= '0' && c <= '9') {
      if (__builtin_mul_overflow(digits, 10, &digits)) return false;
      if (__builtin_add_overflow(digits, c - '0', &digits)) return false;
      any = true;
      if (point) ++decimals;
    } else {
      break;
    }
  }
  if (!any) return false;

  struct Suffix {
    std::string_view name;
    std::int64_t factor;
  };
  static constexpr std::array<Suffix, 16> kSuffixes{{{"", 1},
                                                     {"k", 1000},
                                                     {"K", 1000},
                                                     {"M", 1'000'000},
                                                     {"B", 1'000'000'000},
                                                     {"G", 1'000'000'000},
                                                     {"T", 1'000'000'000'000},
                                                     {"KiB", std::int64_t{1} << 10},
                                                     {"MiB", std::int64_t{1} << 20},
                                                     {"GiB", std::int64_t{1} << 30},
                                                     {"TiB", std::int64_t{1} << 40},
                                                     {"kB", 1000},
                                                     {"KB", 1000},
                                                     {"MB", 1'000'000},
                                                     {"GB", 1'000'000'000},
                                                     {"TB", 1'000'000'000'000}}};
  while (i < end && text[i] == ' ') ++i;
  const std::string_view rest = std::string_view(text).substr(i, end - i);
  for (const Suffix& suffix : kSuffixes) {
    if (rest != suffix.name) continue;
    std::int64_t factor = suffix.factor;
    if (binary_k && (rest == "k" || rest == "K")) factor = 1024;
    // digits * factor / 10^decimals, which must be whole.
    std::int64_t divisor = 1;
    for (; decimals > 0; --decimals) {
      if (digits % 10 == 0) {
        digits /= 10;
      } else if (divisor > std::numeric_limits<std::int64_t>::max() / 10) {
        return false;
      } else {
        divisor *= 10;
      }
    }
    std::int64_t product = 0;
    if (__builtin_mul_overflow(digits, factor, &product)) return false;
    if (product % divisor != 0) return false;
    out = product / divisor;
    return true;
  }
  return false;
}

}  // namespace sim
