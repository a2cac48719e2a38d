#include "tests/app/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

#include "programs.h"

namespace program {

namespace fs = std::filesystem;

namespace {

fs::path unique_path(const char* what) {
  std::string name =
      (fs::temp_directory_path() / ("ridgepoint-test-" + std::string(what) + "-XXXXXX")).string();
  if (mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), name);
  return name;
}

}  // namespace

Running::Running(const std::vector<std::string>& arguments, const std::vector<std::string>& launcher)
    : err_file_(unique_path("err") / "stderr") {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  std::vector<std::string> words = launcher;
  words.push_back(RIDGEPOINT_PROGRAM);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err_file_.c_str(), O_WRONLY | O_CREAT, 0600);
  // Whoever runs the tests may ignore it, as under nohup, and what is started would, too.
  sigset_t hangup;
  sigemptyset(&hangup);
  sigaddset(&hangup, SIGHUP);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &hangup);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const int error = posix_spawnp(&child_, pointers[0], &actions, &attributes, pointers.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  out_ = ends[0];
  if (error != 0) throw std::system_error(error, std::generic_category(), words[0]);
}

Running::~Running() {
  if (child_ > 0) {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  close(out_);
  std::error_code ignored;
  fs::remove_all(err_file_.parent_path(), ignored);
}

bool Running::read_more() {
  std::array<char, 65536> chunk{};
  const ssize_t n = read(out_, chunk.data(), chunk.size());
  if (n > 0) result_.out.append(chunk.data(), static_cast<std::size_t>(n));
  return n > 0;
}

bool Running::wait_for(const std::string& text) {
  while (result_.out.find(text) == std::string::npos)
    if (!read_more()) return false;
  return true;
}

void Running::signal(int number) const {
  kill(child_, number);
}

Result Running::finish() {
  while (read_more()) {
  }
  int status = 0;
  waitpid(child_, &status, 0);
  child_ = -1;
  result_.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  std::ifstream err(err_file_, std::ios::binary);
  result_.err.assign(std::istreambuf_iterator<char>(err), {});
  return result_;
}

Result run(const std::vector<std::string>& arguments, const std::vector<std::string>& launcher) {
  return Running(arguments, launcher).finish();
}

Folder::Folder() : path_(unique_path("folder")) {}

Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string Folder::write(const std::string& name, const std::string& content) const {
  const fs::path file = path_ / name;
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << content;
  return file.string();
}

}  // namespace program
