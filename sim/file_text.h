// Small files that are read whole.
#pragma once
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

namespace sim {

// The file's bytes; nothing where it cannot be opened or is a folder, so that the caller says what it was
// wanted for. Throws std::system_error, with the file's name, where it opens and a read fails, and
// PresetError where more than `most` bytes come, as from a device that never ends.
std::optional<std::string> file_text(const std::filesystem::path& file,
                                     std::size_t most = std::size_t{1} << 30);

}  // namespace sim
