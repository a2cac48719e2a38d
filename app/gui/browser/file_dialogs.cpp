#include "app/gui/file_dialogs.h"

#include "app/gui/browser/page.h"

namespace app::gui {

bool has_file_dialogs() {
  return true;
}

std::vector<std::string> ask_files_to_open(const std::string&, const std::filesystem::path&,
                                           const std::string&, const std::string&) {
  page_choose_files();
  return {};
}

std::string ask_file_to_save(const std::string&, const std::string& name) {
  return (std::filesystem::temp_directory_path() / std::filesystem::path(name).filename()).string();
}

void hand_over(const std::filesystem::path& file) {
  page_save_file(file.c_str());
}

}  // namespace app::gui
