#include "app/gui/jobs/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <stdexcept>
#include <thread>
#include <utility>

namespace app::gui {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kGraceToKeep = std::chrono::seconds(3);
constexpr int kPollMilliseconds = 50;

struct Pipe {
  int read_end = -1, write_end = -1;
};

bool open_pipe(Pipe& pipe) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
  pipe = {ends[0], ends[1]};
  return true;
}

void close_if_open(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

// Between fork and exec only async-signal-safe calls are allowed: the arguments are made before.
[[noreturn]] void become(char* const* arguments, const Pipe& out, const Pipe& err) {
  ::setpgid(0, 0);  // its own group, so that what it starts in turn ends with it
#ifdef __linux__
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  ::dup2(out.write_end, STDOUT_FILENO);
  ::dup2(err.write_end, STDERR_FILENO);
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  ::execvp(arguments[0], arguments);
  ::_exit(127);
}

// Hands out whole lines; keeps what is not one yet.
class LineReader {
 public:
  // False at the end of the stream.
  bool read(int descriptor, const ChildProcess::OnLine& on_line) {
    std::array<char, 65536> chunk{};
    const ssize_t n = ::read(descriptor, chunk.data(), chunk.size());
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n == 0) {
      if (!rest_.empty()) on_line(rest_);
      rest_.clear();
      return false;
    }
    rest_.append(chunk.data(), static_cast<std::size_t>(n));
    std::size_t begin = 0;
    for (std::size_t end; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1)
      on_line(std::string_view(rest_).substr(begin, end - begin));
    rest_.erase(0, begin);
    return true;
  }

 private:
  std::string rest_;
};

ChildEnd describe(int status, bool cancelled, const std::string& last_words) {
  ChildEnd end;
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    end.exit_code = 128 + signal;
    if (cancelled) return end;
    end.message = std::string("The run was ended by a signal (") + ::strsignal(signal) + ").";
    if (signal == SIGKILL) end.message += " The system may have been out of memory.";
  } else {
    end.exit_code = WEXITSTATUS(status);
    constexpr int kInterrupted = 130;
    if (end.exit_code == 0 || (cancelled && end.exit_code == kInterrupted)) return end;
    constexpr int kNotFound = 127;
    if (end.exit_code == kNotFound && last_words.empty()) {
      end.message = "The run could not be started: the program was not found or is not executable.";
      return end;
    }
    end.message = last_words.empty()
                      ? "The run ended with exit code " + std::to_string(end.exit_code) + " and no message."
                      : last_words;
  }
  return end;
}

}  // namespace

struct ChildProcess::State {
  std::vector<std::string> command;
  OnLine on_line;
  OnPause on_pause;
  OnEnd on_end;
  std::atomic<bool> ended = false, kill_now = false;
  std::atomic<std::chrono::milliseconds> grace = kGrace;
  std::jthread thread;

  void read_until_end(const std::stop_token& stop);
};

ChildProcess::ChildProcess(std::vector<std::string> command, OnLine on_line, OnPause on_pause, OnEnd on_end)
    : state_(std::make_unique<State>()) {
  state_->command = std::move(command);
  state_->on_line = std::move(on_line);
  state_->on_pause = std::move(on_pause);
  state_->on_end = std::move(on_end);
  state_->thread =
      std::jthread([state = state_.get()](const std::stop_token& stop) { state->read_until_end(stop); });
}

ChildProcess::~ChildProcess() {
  state_->kill_now = true;
}

void ChildProcess::cancel(std::chrono::milliseconds grace) {
  state_->grace = grace;
  state_->thread.request_stop();
}

bool ChildProcess::ended() const {
  return state_->ended;
}

void ChildProcess::State::read_until_end(const std::stop_token& stop) {
  const auto finish = [this](const ChildEnd& end) {
    ended = true;
    on_end(end);
  };
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);

  Pipe out, err;
  const auto close_all = [&] {
    close_if_open(out.read_end);
    close_if_open(out.write_end);
    close_if_open(err.read_end);
    close_if_open(err.write_end);
  };
  // Forked here, on the thread that lives as long as the child: the death signal follows the forking thread.
  pid_t child = -1;
  if (open_pipe(out) && open_pipe(err)) child = ::fork();
  if (child == 0) become(arguments.data(), out, err);
  if (child < 0) {
    close_all();
    finish({1, std::string("The run could not be started: ") + std::strerror(errno) + "."});
    return;
  }
  ::setpgid(child, child);  // also here, so that a signal sent at once finds the group
  close_if_open(out.write_end);
  close_if_open(err.write_end);

  LineReader out_lines, err_lines;
  std::string last_words;
  const OnLine keep_last_words = [&last_words](std::string_view line) {
    if (!line.empty()) last_words = line;
  };
  bool cancelled = false, killed = false;
  Clock::time_point cancelled_at;
  const auto signal_if_asked = [&] {
    if (stop.stop_requested() && !cancelled) {
      cancelled = true;
      cancelled_at = Clock::now();
      ::kill(-child, SIGTERM);
    }
    if (cancelled && !killed && (kill_now || Clock::now() - cancelled_at > grace.load())) {
      killed = true;
      ::kill(-child, SIGKILL);
    }
  };
  while (out.read_end >= 0 || err.read_end >= 0) {
    signal_if_asked();
    std::array<pollfd, 2> watched = {pollfd{out.read_end, POLLIN, 0}, pollfd{err.read_end, POLLIN, 0}};
    if (::poll(watched.data(), watched.size(), kPollMilliseconds) <= 0) {
      on_pause();
      continue;
    }
    if (watched[0].revents && !out_lines.read(out.read_end, on_line)) close_if_open(out.read_end);
    if (watched[1].revents && !err_lines.read(err.read_end, keep_last_words)) close_if_open(err.read_end);
  }
  // A program may close its output long before it ends.
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    signal_if_asked();
    ::poll(nullptr, 0, kPollMilliseconds);
  }
  close_all();
  finish(describe(status, cancelled, last_words));
}

void run_to_end(std::vector<std::string> command, ChildProcess::OnLine on_line,
                const std::function<bool()>& stopped) {
  std::promise<std::string> ended;
  std::future<std::string> message = ended.get_future();
  ChildProcess child(
      std::move(command), std::move(on_line), [] {},
      [&](const ChildEnd& end) { ended.set_value(end.message); });
  while (message.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready)
    if (stopped()) {
      child.cancel(kGraceToKeep);
      message.wait();
      return;
    }
  if (const std::string words = message.get(); !words.empty()) throw std::runtime_error(words);
}

}  // namespace app::gui
