#include "app/counted.h"

#include <array>

#include "sim/format.h"

namespace app {

std::string counted(std::int64_t n, std::string_view one) {
  const std::string_view ending = n == 1 ? "" : one.ends_with("ch") ? "es" : "s";
  return sim::sentence(n, " ", one, ending);
}

std::string ordinal(std::int64_t n) {
  static constexpr std::array<std::string_view, 4> kEndings = {"th", "st", "nd", "rd"};
  const std::int64_t last = n % 10;
  const bool is_teen = n / 10 % 10 == 1;
  return sim::sentence(n, kEndings[!is_teen && last < 4 ? static_cast<std::size_t>(last) : 0]);
}

}  // namespace app
