// Pictures as PNG files.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

namespace app::gui {

// Pixels are rows from the top, 4 bytes each, red first. Written beside and renamed over. Throws
// runtime::DeviceError where the file cannot be written.
void write_png(const std::filesystem::path& file, int width, int height,
               std::span<const std::uint8_t> pixels);

}  // namespace app::gui
