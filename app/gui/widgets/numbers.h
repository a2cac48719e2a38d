// One unit for all that a plot or a column of a table shows, and numbers written in it.
#pragma once
#include <string>

namespace app::gui {

struct ScaleUnit {
  double size = 1;   // of one, in the base unit
  const char* name;  // "MiB"

  // Three significant digits and thousands, without the unit: "0.38", "61.4", "6,175".
  std::string digits(double base) const;
  // With it: "61.4 MiB".
  std::string text(double base) const;
};

// "3.14", "0.5", "1.2e+09": at most so many significant digits.
std::string significant(double value, int digits = 3);

// The largest unit of which `greatest` is at least one; bytes, seconds, FLOP/s.
ScaleUnit byte_unit(double greatest);
ScaleUnit time_unit(double greatest);
ScaleUnit flop_rate_unit(double greatest);

// "100", "1,200", "2.5M", "0.5": as short as the step between ticks allows.
std::string tick_label(double value);

// A change: "+3.1 %", "−25.0 %", "0.0 %".
std::string signed_percent(double fraction);

// "15.6", "11,341": of tokens per second, without the unit.
std::string token_rate_digits(double tokens_per_second);
std::string token_rate(double tokens_per_second);

}  // namespace app::gui
