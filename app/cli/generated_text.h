// Prints what a model generates on stdout, as it comes.
#pragma once
#include <string_view>

namespace app::cli {

// A model may write control sequences: a terminal gets them made visible (sim::visible), a file gets the text
// as it is.
void print_generated(std::string_view text);

}  // namespace app::cli
