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

void write_png(const std::filesystem::path& file, int width, int height,
               std::span<const std::uint8_t> pixels) {
  constexpr int kChannels = 4;
  std::vector<std::uint8_t> encoded;
  const auto append = [](void* into, void* data, int size) {
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    auto& all = *static_cast<std::vector<std::uint8_t>*>(into);
    all.insert(all.end(), bytes, bytes + size);
  };
  if (!stbi_write_png_to_func(append, &encoded, width, height, kChannels, pixels.data(), width * kChannels))
    throw std::runtime_error("The picture could not be encoded.");
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
