#include "sim/file_text.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "sim/preset_error.h"

namespace sim {

std::optional<std::string> file_text(const std::filesystem::path& file, std::size_t most) {
  struct Descriptor {
    int number;
    ~Descriptor() {
      if (number >= 0) ::close(number);
    }
  };
  const Descriptor in{::open(file.c_str(), O_RDONLY | O_CLOEXEC)};
  if (in.number < 0) return std::nullopt;
  constexpr std::size_t kAtOnce = std::size_t{1} << 16;
  std::string text;
  while (true) {
    const std::size_t known = text.size();
    text.resize(known + kAtOnce);
    const ssize_t got = ::read(in.number, text.data() + known, kAtOnce);
    const int error = errno;
    text.resize(known + static_cast<std::size_t>(got > 0 ? got : 0));
    if (text.size() > most)
      throw PresetError(file.string() + ": goes on after byte " + std::to_string(most) +
                        ", the last that is read of such a file");
    if (got == 0) return text;
    if (got > 0 || error == EINTR) continue;
    if (error == EISDIR) return std::nullopt;
    throw std::system_error(error, std::generic_category(), file.string() + " cannot be read");
  }
}

}  // namespace sim
