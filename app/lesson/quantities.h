// The names in a lesson's expressions: each is a quantity of a scenario or of its report.
#pragma once
#include <span>
#include <string_view>

#include "app/lesson/situation.h"
#include "app/lesson/unit.h"

namespace app::lesson {

struct Quantity {
  std::string_view name;   // "peak_memory"
  std::string_view words;  // as a formula writes it: "peak memory"
  std::string_view help;
  Dimension dimension;
  Style style = Style::plain;
  double (*of)(const Situation&) = nullptr;  // in the dimension's base units
  bool only_measured = false;                // no prediction has it: it stands in :measure alone
};

std::span<const Quantity> quantities();
const Quantity* find_quantity(std::string_view name);  // null where there is none

}  // namespace app::lesson
