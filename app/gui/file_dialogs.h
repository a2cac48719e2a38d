// Files that the user names: by the system's dialogs, or in a page of a browser by its own.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace app::gui {

bool has_file_dialogs();
// Patterns as "*.json *.csv". Empty where the dialog was left; a page gives them later, as if they were
// dropped.
std::vector<std::string> ask_files_to_open(const std::string& title, const std::filesystem::path& folder,
                                           const std::string& what, const std::string& patterns);
// Empty where the dialog was left.
std::string ask_file_to_save(const std::string& title, const std::string& name);
// A file that the user asked for is written: a page hands it over.
void hand_over(const std::filesystem::path& file);

}  // namespace app::gui
