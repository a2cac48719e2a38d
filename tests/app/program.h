// The built program as its users meet it: arguments in; exit code, stdout and stderr out.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace program {

struct Result {
  int exit_code = 0;  // 128 + signal where one ended it
  std::string out, err;
};

// A run in progress.
class Running {
 public:
  // `launcher` starts it, as mpirun does: its words stand before the program's.
  explicit Running(const std::vector<std::string>& arguments, const std::vector<std::string>& launcher = {});
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  // Waits until stdout holds `text`; false if the program ended before.
  bool wait_for(const std::string& text);
  void signal(int number) const;
  Result finish();

 private:
  bool read_more();

  pid_t child_ = -1;
  int out_ = -1;
  std::filesystem::path err_file_;
  Result result_;
};

Result run(const std::vector<std::string>& arguments, const std::vector<std::string>& launcher = {});

// A folder of its own, gone with the test.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& content) const;  // its path

 private:
  std::filesystem::path path_;
};

}  // namespace program
