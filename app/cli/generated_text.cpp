#include "app/cli/generated_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "sim/foreign_text.h"

namespace app::cli {

void print_generated(std::string_view text) {
  static const bool to_terminal = isatty(STDOUT_FILENO) == 1;
  if (to_terminal)
    fmt::print("{}", sim::visible(text));
  else
    fmt::print("{}", text);
  std::fflush(stdout);
}

}  // namespace app::cli
