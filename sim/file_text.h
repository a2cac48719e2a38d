// Small files that are read whole.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace sim {

// The file's bytes; nothing where it cannot be opened or is a folder, so that the caller says what it was
// wanted for. Throws std::system_error, with the file's name, where it opens and a read fails.
std::optional<std::string> file_text(const std::filesystem::path& file);

}  // namespace sim
