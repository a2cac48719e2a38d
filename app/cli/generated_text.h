// What a model writes, on stdout as it comes.
#pragma once
#include <string_view>

namespace app::cli {

// A model may write control sequences too: a terminal is shown them (sim::visible), files get the text as it
// is.
void print_generated(std::string_view text);

}  // namespace app::cli
