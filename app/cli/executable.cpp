#include "app/cli/executable.h"

#include <filesystem>
#include <system_error>

namespace app::cli {

std::string executable_path() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::string("ridgepoint") : path.string();
}

}  // namespace app::cli
