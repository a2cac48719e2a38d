// Quantities of lessons: numbers with a dimension, so that a lesson cannot add seconds to bytes.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace app::lesson {

// Powers of the base dimensions.
struct Dimension {
  enum Base { bytes, seconds, flops, tokens, dollars, joules };
  std::array<std::int8_t, 6> power{};

  static Dimension of(Base base) {
    Dimension d;
    d.power[base] = 1;
    return d;
  }
  Dimension operator*(const Dimension& other) const { return combined(other, 1); }
  Dimension operator/(const Dimension& other) const { return combined(other, -1); }
  bool operator==(const Dimension&) const = default;
  bool is_none() const { return *this == Dimension{}; }
  // True of no dimension and of dimension_names(), but not of tokens times seconds: lessons show its values.
  bool is_written() const;
  // "bytes", "FLOP/s", "a number".
  std::string name() const;

 private:
  Dimension combined(const Dimension& other, int sign) const {
    Dimension d;
    for (std::size_t i = 0; i < power.size(); ++i)
      d.power[i] = static_cast<std::int8_t>(power[i] + sign * other.power[i]);
    return d;
  }
};

struct Value {
  double number = 0;
  Dimension dimension;
};

// How a value without a dimension is written.
enum class Style { plain, percent, times, count };
std::optional<Style> style_from_name(std::string_view name);

// A value with its unit: "61.4 GiB", "738 TFLOP", "3.2 times". Three significant digits; counts in full.
std::string text(const Value& value, Style style = Style::plain);

// "GiB" is 2^30 bytes, "ms" a thousandth of a second, "k" a thousand; nullopt for other words.
std::optional<Value> unit_from_name(std::string_view name);
std::vector<std::string_view> unit_names();  // those that unit_from_name() knows
std::vector<std::string> dimension_names();  // of values with a unit

}  // namespace app::lesson
