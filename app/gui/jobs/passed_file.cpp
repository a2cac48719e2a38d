#include "app/gui/jobs/passed_file.h"

#include <unistd.h>

#include <fstream>
#include <stdexcept>
#include <system_error>

namespace app::gui {

PassedFile::PassedFile(const std::string& name, const std::string& text)
    : path_(std::filesystem::temp_directory_path() /
            ("ridgepoint_" + std::to_string(::getpid()) + "_" + name)) {
  std::ofstream out(path_);
  out << text;
  out.close();
  if (!out) throw std::runtime_error("The scenario could not be written to " + path_.string() + ".");
}

PassedFile::~PassedFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace app::gui
