#include "runtime/spread_work.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <deque>
#include <exception>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

namespace runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{1};
constexpr std::chrono::milliseconds kLookForLost{50};
// mpirun kills a second after it has asked to end (odls_base_sigkill_timeout). Until then rank 0 may ask for
// nothing, but it must find this process alive.
constexpr std::chrono::milliseconds kLinger{800};

constexpr int kFirst = 0;  // the rank that hands out

// What processes say to each other: a word, and what belongs to it.
//   hello HOST PID     of each worker, and back
//   finished N\nTEXT   of a worker: it did piece N, and wants another
//   stopped N\nTEXT    of a worker that was asked to stop inside piece N
//   failed\nSENTENCE   of a worker
//   do N, end          to a worker
struct Said {
  std::string word, argument, text;
};

Said parse(const std::string& message) {
  const std::size_t line = message.find('\n');
  const std::string head = message.substr(0, line);
  const std::size_t space = head.find(' ');
  return {head.substr(0, space), space == std::string::npos ? "" : head.substr(space + 1),
          line == std::string::npos ? "" : message.substr(line + 1)};
}

std::int64_t number_of(const Said& said) {
  std::int64_t n = -1;
  std::from_chars(said.argument.data(), said.argument.data() + said.argument.size(), n);
  return n;
}

// A process that can be looked for, where it is on this machine.
struct ProcessName {
  std::string host;
  pid_t pid = 0;

  static ProcessName own() {
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    return {host.data(), getpid()};
  }
  static ProcessName from(const std::string& text) {
    std::istringstream words(text);
    ProcessName name;
    words >> name.host >> name.pid;
    return name;
  }
  std::string text() const { return host + ' ' + std::to_string(pid); }

  bool runs() const {
    if (kill(pid, 0) != 0 && errno == ESRCH) return false;
    // A process that has ended, but that nobody has waited for: "PID (NAME) Z ...".
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string stat;
    std::getline(file, stat);
    const std::size_t name_end = stat.rfind(')');
    return name_end == std::string::npos || name_end + 2 >= stat.size() || stat[name_end + 2] != 'Z';
  }
};

// Processes of this machine that were seen alive.
class Watched {
 public:
  void add(int rank, const ProcessName& name) {
    if (name.host == ProcessName::own().host && name.runs()) names_[rank] = name;
  }
  void remove(int rank) { names_.erase(rank); }
  // A sentence about one that is no more.
  std::optional<std::string> lost() const {
    for (const auto& [rank, name] : names_)
      if (!name.runs())
        return "the process of rank " + std::to_string(rank) + " (" + std::to_string(name.pid) + " on " +
               name.host + ") was killed or ended by itself";
    return std::nullopt;
  }

 private:
  std::map<int, ProcessName> names_;
};

class FirstProcess {
 public:
  FirstProcess(std::vector<std::optional<std::string>> known, const DoPiece& work,
               const SpreadOptions& options)
      : work_(work), options_(options), group_(options.group) {
    result_.finished = std::move(known);
    for (std::size_t i = 0; i < result_.finished.size(); ++i)
      if (!result_.finished[i]) waiting_.push_back(static_cast<std::int64_t>(i));
    missing_ = waiting_.size();
  }

  SpreadResult run() {
    if (group_ == nullptr) {
      while (!options_.stop.stop_requested() && do_own()) take_own();
    } else {
      std::jthread own([this] {
        while (!options_.stop.stop_requested() && do_own()) {
        }
      });
      const EndsOwnWork ending(*this);
      talk();
    }
    take_own();
    if (failure_) std::rethrow_exception(failure_);
    if (result_.end == SpreadEnd::done && missing_ > 0) result_.end = SpreadEnd::interrupted;
    return std::move(result_);
  }

 private:
  std::optional<std::int64_t> next() {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty() || ending_) return std::nullopt;
    const std::int64_t piece = waiting_.front();
    waiting_.pop_front();
    return piece;
  }

  // However the exchange ends, this process begins no further piece and leaves the one that it works on.
  class EndsOwnWork {
   public:
    explicit EndsOwnWork(FirstProcess& process) : process_(process) {}
    ~EndsOwnWork() {
      const std::lock_guard lock(process_.mutex_);
      process_.ending_ = true;
      process_.own_stop_.request_stop();
    }
    EndsOwnWork(const EndsOwnWork&) = delete;
    EndsOwnWork& operator=(const EndsOwnWork&) = delete;

   private:
    FirstProcess& process_;
  };

  // This process does one piece; false where none is left.
  bool do_own() {
    const std::optional<std::int64_t> piece = next();
    if (!piece) return false;
    try {
      PieceResult done = work_(*piece, own_stop_.get_token());
      const std::lock_guard lock(mutex_);
      own_done_.emplace_back(*piece, std::move(done));
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      return false;
    }
    return true;
  }

  void take_own() {
    std::deque<std::pair<std::int64_t, PieceResult>> done;
    {
      const std::lock_guard lock(mutex_);
      done.swap(own_done_);
    }
    for (auto& [piece, result] : done)
      if (result.finished)
        finish(piece, std::move(result.text));
      else
        result_.unfinished.emplace_back(piece, std::move(result.text));
  }

  void finish(std::int64_t piece, std::string text) {
    if (options_.on_finished) options_.on_finished(piece, text);
    result_.finished[static_cast<std::size_t>(piece)] = std::move(text);
    --missing_;
  }

  bool failed() {
    const std::lock_guard lock(mutex_);
    return failure_ != nullptr;
  }

  void talk() {
    Clock::time_point looked = Clock::now();
    while ((missing_ > 0 || greeted_ + 1 < group_->size()) && !failed()) {
      bool anything = false;
      while (const auto message = group_->receive()) {
        anything = true;
        answer(message->from, parse(message->text));
      }
      take_own();
      const bool stopping = options_.stop.stop_requested();
      if (stopping || Clock::now() - looked > kLookForLost) {
        looked = Clock::now();
        if (const auto lost = watched_.lost()) {
          result_.end = SpreadEnd::process_lost;
          if (options_.warn) options_.warn(*lost);
          break;
        }
      }
      if (stopping) break;
      if (!anything) std::this_thread::sleep_for(kPoll);
    }
    // Lost processes are not told; the launcher ends the rest.
    if (result_.end == SpreadEnd::process_lost) return;
    for (int rank = 1; rank < group_->size(); ++rank) group_->send(rank, "end");
  }

  void answer(int rank, const Said& said) {
    if (said.word == "hello") {
      ++greeted_;
      watched_.add(rank, ProcessName::from(said.argument));
      group_->send(rank, "hello " + ProcessName::own().text());
    } else if (said.word == "finished") {
      finish(number_of(said), said.text);
    } else if (said.word == "stopped") {
      result_.unfinished.emplace_back(number_of(said), said.text);
      watched_.remove(rank);
      return;
    } else if (said.word == "failed") {
      const std::lock_guard lock(mutex_);
      failure_ =
          std::make_exception_ptr(std::runtime_error("rank " + std::to_string(rank) + ": " + said.text));
      return;
    }
    if (const std::optional<std::int64_t> piece = next()) group_->send(rank, "do " + std::to_string(*piece));
  }

  const DoPiece& work_;
  const SpreadOptions& options_;
  ProcessGroup* group_;
  SpreadResult result_;
  std::size_t missing_ = 0;
  int greeted_ = 0;  // processes that have said hello: what is sent must be received before MPI is left
  Watched watched_;
  std::stop_source own_stop_;
  std::stop_callback<std::function<void()>> stop_too_{options_.stop, [this] { own_stop_.request_stop(); }};

  std::mutex mutex_;  // of what follows
  std::deque<std::int64_t> waiting_;
  std::deque<std::pair<std::int64_t, PieceResult>> own_done_;
  std::exception_ptr failure_;
  bool ending_ = false;
};

SpreadResult run_other_process(const DoPiece& work, const SpreadOptions& options) {
  ProcessGroup& group = *options.group;
  group.send(kFirst, "hello " + ProcessName::own().text());
  Watched first;
  std::optional<Clock::time_point> asked_to_stop;
  for (;;) {
    const auto message = group.receive();
    if (!message) {
      if (options.stop.stop_requested()) {
        if (!asked_to_stop) asked_to_stop = Clock::now();
        if (const auto lost = first.lost()) {
          if (options.warn && group.rank() == 1) options.warn(*lost);
          return {SpreadEnd::process_lost, {}, {}};
        }
        if (Clock::now() - *asked_to_stop > kLinger) return {SpreadEnd::interrupted, {}, {}};
      }
      std::this_thread::sleep_for(kPoll);
      continue;
    }
    const Said said = parse(message->text);
    if (said.word == "hello") first.add(kFirst, ProcessName::from(said.argument));
    if (said.word == "end")
      return {options.stop.stop_requested() ? SpreadEnd::interrupted : SpreadEnd::done, {}, {}};
    if (said.word != "do") continue;
    try {
      const PieceResult result = work(number_of(said), options.stop);
      if (result.finished)
        group.send(kFirst, "finished " + said.argument + '\n' + result.text);
      else
        group.send(kFirst, "stopped " + said.argument + '\n' + result.text);
    } catch (const std::exception& error) {
      group.send(kFirst, std::string("failed\n") + error.what());
    }
  }
}

}  // namespace

SpreadResult spread_work(std::vector<std::optional<std::string>> known, const DoPiece& work,
                         const SpreadOptions& options) {
  if (options.group != nullptr && options.group->rank() != kFirst) return run_other_process(work, options);
  return FirstProcess(std::move(known), work, options).run();
}

}  // namespace runtime
