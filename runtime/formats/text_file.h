// Small files that are read whole.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace runtime {

// The file's bytes; empty where it cannot be opened, so that the caller says what it was wanted for.
std::optional<std::string> read_whole_file(const std::filesystem::path& file);

}  // namespace runtime
