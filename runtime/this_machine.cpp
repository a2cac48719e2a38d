#include "runtime/this_machine.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <system_error>

#include "kernels/blas.h"
#include "kernels/threads.h"
#include "runtime/calibrate.h"
#include "runtime/error.h"
#include "runtime/formats/atomic_file.h"
#include "runtime/formats/text_file.h"
#include "sim/scenario/preset.h"

namespace runtime {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// A control group's limit in bytes; "max" (version 2) and files that are not there mean none.
std::int64_t limit_in(const fs::path& file) {
  std::istringstream in(first_line(file));
  std::int64_t limit = 0;
  return in >> limit && limit > 0 ? limit : std::numeric_limits<std::int64_t>::max();
}

// Limits of the control groups that hold this process, from its own up to the root: each binds.
std::int64_t control_group_limit() {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // "0::/path" (version 2) or "4:memory:/path" (version 1)
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version_2 = controllers.empty();
    if (!version_2 && controllers.find("memory") == std::string::npos) continue;
    const fs::path root = version_2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const char* const file = version_2 ? "memory.max" : "memory.limit_in_bytes";
    for (fs::path group = line.substr(second + 1);; group = group.parent_path()) {
      least = std::min(least, limit_in(root / group.relative_path() / file));
      if (!group.has_relative_path()) break;
    }
  }
  return least;
}

}  // namespace

fs::path cache_directory() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  fs::path directory;
  if (cache && *cache)
    directory = cache;
  else if (home && *home)
    directory = fs::path(home) / ".cache";
  else
    throw InputError("neither XDG_CACHE_HOME nor HOME says where caches lie: set one of them");
  directory /= "ridgepoint";
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw InputError("cannot make the folder " + directory.string() + ": " + error.message());
  return directory;
}

fs::path this_machine_file() {
  const int threads = kernels::cpu::threads();
  const bool all = threads == omp_get_num_procs();
  return cache_directory() /
         (all ? "this-machine.json" : "this-machine-" + std::to_string(threads) + "-threads.json");
}

std::string blas_name() {
  try {
    return kernels::cpu::blas().get_config();
  } catch (const std::runtime_error& error) {
    throw NoDevice(error.what());
  }
}

std::string cpu_name() {
  std::string model = "CPU";
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t text = line.find_first_not_of(" \t", line.find(':') + 1);
    if (text != std::string::npos) model = line.substr(text);
    break;
  }
  const int threads = kernels::cpu::threads();
  return model + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
}

sim::Bytes physical_memory() {
  const std::int64_t machine = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return {std::min(machine, control_group_limit())};
}

sim::Bytes resident_memory() {
  std::ifstream in("/proc/self/statm");  // pages: size, resident, ...
  std::int64_t size = 0, resident = 0;
  in >> size >> resident;
  return {resident * sysconf(_SC_PAGESIZE)};
}

std::optional<sim::Calibration> cached_this_machine() {
  const fs::path file = this_machine_file();
  const std::optional<std::string> text = read_whole_file(file);
  if (!text) return std::nullopt;
  try {
    sim::Calibration calibration = sim::calibration_from_json(*text, file.string());
    if (calibration.device != cpu_name() || calibration.software != kernels_version()) return std::nullopt;
    return calibration;
  } catch (const sim::PresetError&) {
    return std::nullopt;  // of another version, or damaged: a cache is measured again, not mourned
  }
}

sim::Calibration calibrate_this_machine(const EventSink& sink, std::stop_token stop, int threads) {
  sim::Calibration calibration = calibrate_cpu(sink, stop, threads);
  if (stop.stop_requested()) return calibration;  // partial: not worth keeping
  const std::string json = sim::to_json(calibration);
  AtomicFile file(this_machine_file());
  file.write(std::as_bytes(std::span(json)));
  file.commit();
  return calibration;
}

sim::Calibration this_machine(const EventSink& sink, std::stop_token stop) {
  if (std::optional<sim::Calibration> cached = cached_this_machine()) return *std::move(cached);
  return calibrate_this_machine(sink, stop, kernels::cpu::threads());
}

}  // namespace runtime
