#include "app/gui/jobs/passed_file.h"

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace app::gui {

PassedFile::PassedFile(const std::string& name, const std::string& text) {
  std::string folder = (std::filesystem::temp_directory_path() / "ridgepoint-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr)
    throw std::runtime_error("No folder could be made for the scenario: " + folder + ".");
  path_ = std::filesystem::path(folder) / name;
  std::ofstream out(path_);
  out << text;
  out.close();
  if (out) return;
  remove();
  throw std::runtime_error("The scenario could not be written to " + path_.string() + ".");
}

PassedFile::~PassedFile() {
  remove();
}

void PassedFile::remove() const {
  std::error_code ignored;
  std::filesystem::remove_all(path_.parent_path(), ignored);
}

}  // namespace app::gui
