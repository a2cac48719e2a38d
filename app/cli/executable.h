// This program's own file, for the processes that it starts.
#pragma once
#include <string>

namespace app::cli {

std::string executable_path();

}  // namespace app::cli
