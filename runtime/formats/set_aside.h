// Files that this program wrote and cannot read any more.
#pragma once
#include <filesystem>
#include <string_view>

namespace runtime {

// Renames FILE to FILE.set-aside (or .set-aside-2, ... where that is taken), so that the next write loses
// nothing, and says so on stderr in one sentence with `reason` and with what is `instead`. Where it cannot be
// renamed the sentence says that it stays.
void set_aside(const std::filesystem::path& file, std::string_view reason, std::string_view instead);

}  // namespace runtime
