#include "app/cli/ranks.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "app/cli/interrupt.h"
#include "app/cli/progress.h"
#include "app/counted.h"
#include "runtime/cuda_backend.h"
#include "runtime/error.h"
#include "runtime/machine_files.h"
#include "runtime/meeting.h"
#include "runtime/process_group.h"
#include "runtime/shared_memory_ranks.h"
#include "runtime/socket_ranks.h"

namespace app::cli {
namespace {

constexpr const char* kRank = "RIDGEPOINT_RANK";
constexpr const char* kRanks = "RIDGEPOINT_RANKS";

// The first rank may measure this machine before it joins.
constexpr std::chrono::seconds kPatience{600};
// The time that the others have to end after one has ended badly.
constexpr std::chrono::seconds kGrace{5};

std::optional<int> number_in_environment(const char* variable) {
  const char* const text = std::getenv(variable);
  if (!text) return std::nullopt;
  const std::string_view view(text);
  int value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  return error == std::errc() && end == view.data() + view.size() ? std::optional(value) : std::nullopt;
}

// A rank's share of the cores: consecutive ones. With fewer cores than ranks, some ranks share a core.
std::vector<int> share_of(const std::vector<int>& cores, int place, int places) {
  const auto n = static_cast<int>(cores.size());
  if (n < places) return {cores[static_cast<std::size_t>(place % n)]};
  const auto at = [&](int i) { return cores.begin() + i * n / places; };
  return {at(place), at(place + 1)};
}

// Applies to all threads of the process, because the kernels' threads may exist already.
void keep_to(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  std::error_code ignored;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", ignored))
    sched_setaffinity(static_cast<pid_t>(std::atoi(thread.path().filename().c_str())), sizeof set, &set);
}

std::vector<std::string> own_command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(in, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

// How many processes this system has ended so far because its memory, or a control group's, was used up.
std::int64_t ended_for_memory() {
  std::ifstream in("/proc/vmstat");
  std::string name;
  for (std::int64_t value = 0; in >> name >> value;)
    if (name == "oom_kill") return value;
  return 0;
}

// Starts a rank in the given process group. The first rank makes a group of its own.
pid_t start_rank(int rank, int ranks, pid_t group, std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0)
    throw runtime::DeviceError(fmt::format("rank {} cannot be started: {}", rank, std::strerror(errno)));
  if (child > 0) {
    setpgid(child, group == 0 ? child : group);
    return child;
  }
  // The parent passes on a signal of the terminal, and does so once.
  setpgid(0, group);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(static_cast<int>(ExitCode::device_error));
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  setenv(kRank, std::to_string(rank).c_str(), 1);
  setenv(kRanks, std::to_string(ranks).c_str(), 1);
  execv("/proc/self/exe", argv.data());
  _exit(static_cast<int>(ExitCode::internal));
}

}  // namespace

RankOfJob rank_of_job() {
  const auto own_rank = number_in_environment(kRank), own_ranks = number_in_environment(kRanks);
  if (own_rank && own_ranks) return {*own_rank, *own_ranks, *own_ranks, *own_rank, true};
  const auto torch_rank = number_in_environment("RANK"), torch_size = number_in_environment("WORLD_SIZE");
  if (torch_rank && torch_size && *torch_size > 1)
    return {*torch_rank, *torch_size, number_in_environment("LOCAL_WORLD_SIZE").value_or(1),
            number_in_environment("LOCAL_RANK").value_or(0), false};
  const runtime::Launched launched = runtime::launched();
  return {launched.rank, launched.size, launched.on_this_machine, launched.place, false};
}

void settle_degrees(sim::Strategy& strategy, const RankOfJob& job) {
  if (job.size == 1 || strategy.devices() == job.size) return;
  if (strategy.devices() > 1)
    throw UsageError(fmt::format(
        "{} ranks were started, but --tp {} --pp {} --cp {} --dp {} are {}; start as many, or leave out what "
        "started them",
        job.size, strategy.tensor_parallel, strategy.pipeline_parallel, strategy.context_parallel,
        strategy.data_parallel, strategy.devices()));
  strategy.data_parallel = job.size;
}

ExitCode start_ranks(int ranks, const InterruptSignals& interrupt) {
  const std::vector<std::string> arguments = own_command_line();
  const std::int64_t ended_before = ended_for_memory();
  std::vector<pid_t> children;
  pid_t group = 0;
  const std::vector<int> cores = runtime::own_cpus();
  const auto n = static_cast<int>(cores.size());
  to_stderr(fmt::format("{} on {} of this machine: {}\n", counted(ranks, "rank"), counted(n, "core"),
                        n >= ranks ? fmt::format("{} to {} each", n / ranks, (n + ranks - 1) / ranks)
                                   : "several share one, which tells nothing about their speed"));
  for (int rank = 0; rank < ranks; ++rank) {
    children.push_back(start_rank(rank, ranks, group, arguments));
    group = children.front();
  }
  const std::stop_callback pass_on(interrupt.stop(), [group] { kill(-group, SIGTERM); });

  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> end;
  bool killed_by_us = false;
  std::optional<ExitCode> code;
  std::string killed;
  for (auto left = static_cast<int>(children.size()); left > 0;) {
    int status = 0;
    const pid_t ended = waitpid(-group, &status, WNOHANG);
    if (ended <= 0) {
      if (end && Clock::now() > *end && !killed_by_us) {
        kill(-group, SIGKILL);
        killed_by_us = true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    --left;
    const auto rank = std::find(children.begin(), children.end(), ended) - children.begin();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (WIFEXITED(status) && !code) code = static_cast<ExitCode>(WEXITSTATUS(status));
    if (interrupt.arrived() && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) {
      if (!code) code = ExitCode::interrupted;  // it had not yet begun to wait for signals
      continue;
    }
    if (WIFSIGNALED(status) && !killed_by_us && killed.empty())
      killed = fmt::format("rank {} was killed by signal {} ({}){}", rank, WTERMSIG(status),
                           strsignal(WTERMSIG(status)),
                           WTERMSIG(status) == SIGKILL && ended_for_memory() > ended_before
                               ? ", as the system does when memory is used up"
                               : "");
    if (!end) end = Clock::now() + kGrace;
  }
  if (!killed.empty()) throw runtime::DeviceError(killed + "; the other ranks have ended");
  return code.value_or(ExitCode::fine);
}

std::unique_ptr<runtime::Transport> join_ranks(const RankOfJob& job, runtime::DeviceChoice& device) {
  // Ranks started together on a machine have the same parent process.
  std::unique_ptr<runtime::Transport> transport =
      job.on_this_machine == job.size
          ? runtime::join_socket_ranks(job.rank, job.size, std::to_string(getppid()), kPatience)
          : runtime::join_machines(job.rank, job.size, kPatience);
  if (device.kind == runtime::DeviceChoice::Kind::cuda && device.any_gpu)
    if (const std::size_t gpus = runtime::cuda_status().gpus.size(); gpus > 0)
      device.ordinal = job.place % static_cast<int>(gpus);
  const std::vector<int> cores = share_of(runtime::own_cpus(), job.place, job.on_this_machine);
  keep_to(cores);
  if (device.threads == 0) device.threads = static_cast<int>(cores.size());
  return job.on_this_machine == job.size ? runtime::share_memory(std::move(transport)) : std::move(transport);
}

ExitCode among_ranks(const RankOfJob& job, runtime::DeviceChoice& device,
                     const std::function<ExitCode(runtime::Communicator&)>& does) {
  const std::unique_ptr<runtime::Transport> transport = join_ranks(job, device);
  runtime::Communicator communicator(*transport);
  try {
    return does(communicator);
  } catch (...) {
    const Failure failure = failure_of(std::current_exception());
    transport->give_up(failure.message);
    if (job.place == 0) throw;
    return failure.code;
  }
}

}  // namespace app::cli
