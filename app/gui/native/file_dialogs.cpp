#include "app/gui/file_dialogs.h"

#include <portable_file_dialogs.h>

namespace app::gui {

bool has_file_dialogs() {
  return pfd::settings::available();
}

std::vector<std::string> ask_files_to_open(const std::string& title, const std::filesystem::path& folder,
                                           const std::string& what, const std::string& patterns) {
  return pfd::open_file(title, folder.string(), {what, patterns, "All files", "*"}).result();
}

std::string ask_file_to_save(const std::string& title, const std::string& name) {
  return pfd::save_file(title, name).result();
}

void hand_over(const std::filesystem::path&) {}

}  // namespace app::gui
