#include "app/gui/png.h"

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb_image_write.h>
#pragma GCC diagnostic pop

#include <fstream>
#include <stdexcept>
#include <vector>

#include "runtime/error.h"

namespace app::gui {
namespace {

// PNG (third edition), 5.3 "chunk layout": length, type, data, check of type and data.
constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
constexpr std::size_t kAround = 12, kHeaderChunk = 13 + kAround;  // IHDR stands first
// 11.3.3.4: keyword, a zero, no compression, no language, no translation, then UTF-8.
constexpr std::string_view kInternationalText = "iTXt";
constexpr std::size_t kZeros = 5;

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}
std::uint32_t big_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (const char byte : bytes.substr(0, 4)) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

std::string chunk_of(const PngText& carried) {
  std::string chunk(kInternationalText);
  chunk.append(carried.keyword).append(kZeros, '\0').append(carried.text);
  const std::uint32_t check =
      stbiw__crc32(reinterpret_cast<unsigned char*>(chunk.data()), static_cast<int>(chunk.size()));
  return big_endian(static_cast<std::uint32_t>(chunk.size() - kInternationalText.size())) + chunk +
         big_endian(check);
}

}  // namespace

std::optional<std::string> text_in_png(std::string_view png, std::string_view keyword) {
  if (!png.starts_with(kSignature)) return std::nullopt;
  for (std::size_t at = kSignature.size(); at + kAround <= png.size();) {
    const std::size_t length = big_endian(png.substr(at));
    if (length > png.size() - at - kAround) return std::nullopt;
    const std::string_view type = png.substr(at + 4, 4), data = png.substr(at + 8, length);
    const std::size_t begin = keyword.size() + kZeros;
    if (type == kInternationalText && data.size() >= begin && data.starts_with(keyword) &&
        data[keyword.size()] == 0)
      return std::string(data.substr(begin));
    at += kAround + length;
  }
  return std::nullopt;
}

void write_png(const std::filesystem::path& file, int width, int height, std::span<const std::uint8_t> pixels,
               const PngText& carried) {
  constexpr int kChannels = 4;
  std::vector<std::uint8_t> encoded;
  const auto append = [](void* into, void* data, int size) {
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    auto& all = *static_cast<std::vector<std::uint8_t>*>(into);
    all.insert(all.end(), bytes, bytes + size);
  };
  if (!stbi_write_png_to_func(append, &encoded, width, height, kChannels, pixels.data(), width * kChannels))
    throw std::runtime_error("The picture could not be encoded.");
  if (!carried.keyword.empty()) {
    const std::string chunk = chunk_of(carried);
    encoded.insert(encoded.begin() + static_cast<std::ptrdiff_t>(kSignature.size() + kHeaderChunk),
                   chunk.begin(), chunk.end());
  }
  auto temporary = file;
  temporary += ".new";
  std::ofstream out(temporary, std::ios::binary);
  out.write(reinterpret_cast<const char*>(encoded.data()), static_cast<std::streamsize>(encoded.size()));
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(temporary, file, error);
  if (!out || error) throw runtime::DeviceError("The picture could not be written to " + file.string() + ".");
}

}  // namespace app::gui
