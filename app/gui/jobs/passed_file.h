// A file for another process, gone at the end of the scope.
#pragma once
#include <filesystem>
#include <string>

namespace app::gui {

class PassedFile {
 public:
  // In a new folder that only this user can enter: nobody else can have put a link under its name, and two of
  // one name are two files. Throws std::runtime_error, a sentence, where it cannot be written.
  PassedFile(const std::string& name, const std::string& text);
  ~PassedFile();
  PassedFile(const PassedFile&) = delete;
  PassedFile& operator=(const PassedFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  void remove() const;

  std::filesystem::path path_;
};

}  // namespace app::gui
