// Pictures as PNG files.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace app::gui {

// UTF-8 that a picture carries under a keyword: an iTXt chunk.
struct PngText {
  std::string_view keyword, text;
};

// Pixels are rows from the top, 4 bytes each, red first. Written beside and renamed over. Throws
// runtime::DeviceError where the file cannot be written.
void write_png(const std::filesystem::path& file, int width, int height, std::span<const std::uint8_t> pixels,
               const PngText& carried = {});
// What the bytes of a picture carry under the keyword; nothing where they are no PNG, or carry none.
std::optional<std::string> text_in_png(std::string_view png, std::string_view keyword);

}  // namespace app::gui
