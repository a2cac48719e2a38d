// Small files that are read whole.
#pragma once
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

namespace sim {

// The file's bytes. Nothing where it cannot be opened or is a folder: the caller then says what the file was
// for. Throws std::system_error with the file's name if a read fails after opening, and PresetError if the
// file has more than `most` bytes (a device may never end).
std::optional<std::string> file_text(const std::filesystem::path& file,
                                     std::size_t most = std::size_t{1} << 30);

}  // namespace sim
