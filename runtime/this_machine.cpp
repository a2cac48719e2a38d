#include "runtime/this_machine.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "kernels/blas.h"
#include "kernels/matmul_bf16.h"
#include "kernels/matmul_packed.h"
#include "kernels/threads.h"
#include "runtime/begun_calibration.h"
#include "runtime/calibrate.h"
#include "runtime/collectives_bench.h"
#include "runtime/error.h"
#include "runtime/formats/atomic_file.h"
#include "runtime/formats/set_aside.h"
#include "runtime/machine_files.h"
#include "sim/file_text.h"
#include "sim/scenario/preset.h"

namespace runtime {
namespace {

namespace fs = std::filesystem;

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

// The least possible time for files that disappeared meanwhile, and for folders that are not there.
fs::file_time_type changed(const fs::path& path) {
  std::error_code none;
  const fs::file_time_type written = fs::last_write_time(path, none);
  return none ? fs::file_time_type::min() : written;
}

}  // namespace

std::optional<fs::path> cache_directory() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache) return fs::path(cache) / "ridgepoint";
  const char* const home = std::getenv("HOME");
  if (home && *home) return fs::path(home) / ".cache" / "ridgepoint";
  return std::nullopt;
}

fs::path writable_cache_directory() {
  const std::optional<fs::path> directory = cache_directory();
  if (!directory) throw InputError("neither XDG_CACHE_HOME nor HOME says where caches lie: set one of them");
  std::error_code error;
  fs::create_directories(*directory, error);
  if (error) throw InputError("cannot make the folder " + directory->string() + ": " + error.message());
  return *directory;
}

fs::file_time_type calibrations_folder_changed() {
  const std::optional<fs::path> directory = cache_directory();
  return directory ? changed(*directory) : fs::file_time_type::min();
}

fs::file_time_type calibrations_changed() {
  const std::optional<fs::path> directory = cache_directory();
  fs::file_time_type newest = calibrations_folder_changed();
  if (!directory) return newest;
  std::error_code none;
  for (fs::directory_iterator file(*directory, none); file != fs::directory_iterator(); file.increment(none))
    if (file->path().extension() == ".json") newest = std::max(newest, changed(file->path()));
  return newest;
}

namespace {

fs::path this_machine_name() {
  const int threads = kernels::cpu::threads();
  const bool all = threads == omp_get_num_procs();
  return all ? "this-machine.json" : "this-machine-" + std::to_string(threads) + "-threads.json";
}

fs::path machine_of_ranks_name(int ranks, int threads) {
  return "this-machine-" + std::to_string(ranks) + "-ranks-" + std::to_string(threads) + "-threads.json";
}

// If a cache file cannot be written, the only result is a sentence.
bool keep_if_possible(std::string_view json, const fs::path& name) {
  try {
    write_file(writable_cache_directory() / name, json);
    return true;
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "ridgepoint: what was measured is not kept for the next run: %s\n", error.what());
    return false;
  }
}

// Reads a file in the cache folder; nothing where there is none, or where it has to be set aside.
template <class T>
std::optional<T> read_cached(const fs::path& name, T (*from_json)(std::string_view, const std::string&)) {
  const std::optional<fs::path> directory = cache_directory();
  if (!directory) return std::nullopt;
  const fs::path file = *directory / name;
  // A failing disk is the caller's to handle: measuring again takes minutes, and the next read may succeed.
  try {
    const std::optional<std::string> text = sim::file_text(file);
    if (!text) return std::nullopt;
    return from_json(*text, file.string());
  } catch (const sim::PresetError& error) {
    set_aside(file, error.what(), "what it held is measured again when it is needed");
  }
  return std::nullopt;
}

bool is_valid(const sim::Calibration& calibration, const std::string& cpu, const std::string& software) {
  return calibration.device == cpu && calibration.software == software;
}

fs::path begun_name() {
  return this_machine_name().stem().string() + "-begun.json";
}

// What an interrupted calibration of this machine and software had timed; nothing where there is none.
std::optional<BegunCalibration> begun_before() {
  std::optional<BegunCalibration> begun = read_cached(begun_name(), begun_calibration_from_json);
  if (begun && !is_valid(begun->calibration, cpu_name(), kernels_version())) return std::nullopt;
  return begun;
}

// Measures with as many threads as kernels use now. `keep` is called with the result, unless measuring was
// stopped; then what was timed is kept for the next call.
sim::Calibration measure_this_machine(const EventSink& sink, const std::stop_token& stop, auto keep) {
  const fs::path unfinished = begun_name();
  BegunCalibration begun = begun_before().value_or(BegunCalibration{});
  if (!begun.calibration.date.empty())
    std::fprintf(stderr, "ridgepoint: goes on with what an interrupted measurement of %s had timed\n",
                 begun.calibration.date.c_str());
  sim::Calibration calibration = calibrate_cpu(sink, stop, kernels::cpu::threads(), 1, &begun);
  if (!stop.stop_requested()) {
    keep(calibration);
    std::error_code none;
    if (const std::optional<fs::path> directory = cache_directory())
      fs::remove(*directory / unfinished, none);
  } else if (!begun.pieces.all().empty() && keep_if_possible(to_json(begun), unfinished)) {
    std::fprintf(stderr, "ridgepoint: what was timed is kept, and the next measurement goes on from there\n");
  }
  return calibration;
}

// Nothing if the calibration is of another machine, or of other software.
std::optional<sim::Calibration> cached_if_valid(const fs::path& name, const std::string& cpu,
                                                const std::string& software) {
  std::optional<sim::Calibration> calibration = cached_calibration(name);
  if (calibration && !is_valid(*calibration, cpu, software)) return std::nullopt;
  return calibration;
}

// Also sets how the ranks are linked: the bus bandwidth of the largest all-reduce.
void add_collectives(sim::Calibration& calibration, Communicator& communicator, const EventSink& sink) {
  constexpr std::int64_t kLargest = 64 << 20;
  constexpr double kSecondsEach = 0.05;
  calibration.software = ranks_version();
  calibration.hardware.devices_per_node = communicator.size();
  const auto report = [&sink](std::int64_t done, std::int64_t of) {
    if (sink) sink(sim::ProgressEvent{"timing exchanges between ranks", done, of, {}});
  };
  for (const CollectiveRow& row : time_collectives(communicator, kLargest, kSecondsEach, report)) {
    calibration.collectives.push_back({row.kind, communicator.size(), {row.bytes}, {row.seconds}});
    if (row.kind == sim::OpKind::all_reduce) calibration.hardware.node_link = {row.bus_bandwidth};
  }
}

}  // namespace

std::optional<sim::Calibration> cached_calibration(const fs::path& name) {
  return read_cached(name, sim::calibration_from_json);
}

fs::path this_machine_file() {
  return writable_cache_directory() / this_machine_name();
}

std::string blas_name() {
  try {
    return kernels::cpu::blas().get_config();
  } catch (const std::runtime_error& error) {
    throw NoDevice(error.what());
  }
}

std::string fp32_products_name() {
  return kernels::cpu::name(kernels::cpu::fastest_fp32_products());
}

std::string bf16_products_name() {
  return kernels::cpu::name(kernels::cpu::fastest_bf16_products());
}

std::string cpu_name() {
  return cpu_name(kernels::cpu::threads());
}

std::string cpu_name(int threads) {
  std::string model = "CPU";
  // A failed read must not look like another machine, whose calibration would be measured and replaced.
  std::istringstream in(sim::file_text("/proc/cpuinfo").value_or(""));
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t text = line.find_first_not_of(" \t", line.find(':') + 1);
    if (text != std::string::npos) model = line.substr(text);
    break;
  }
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
  return cached_if_valid(this_machine_name(), cpu_name(), kernels_version());
}

bool this_machine_is_begun() {
  return begun_before().has_value();
}

std::optional<sim::Calibration> cached_machine_of_ranks(int ranks) {
  const int threads = std::max(1, static_cast<int>(own_cpus().size()) / ranks);
  return cached_if_valid(machine_of_ranks_name(ranks, threads), cpu_name(threads), ranks_version());
}

sim::Calibration machine_of_ranks(Communicator& communicator, int threads, bool afresh, const EventSink& sink,
                                  const std::stop_token& stop) {
  const int ranks = communicator.size();
  const bool is_first = communicator.rank() == 0;
  const int threads_of_first = static_cast<int>(communicator.of_first(threads));
  const fs::path name = machine_of_ranks_name(ranks, threads_of_first);
  std::optional<sim::Calibration> known;
  if (!afresh) known = cached_if_valid(name, cpu_name(threads_of_first), ranks_version());
  // A calibration that came while the others looked is not there for all ranks.
  if (communicator.of_first(known.has_value() ? 1 : 0) > 0) return known.value_or(sim::Calibration{});
  sim::Calibration calibration = calibrate_cpu(is_first ? sink : EventSink(), stop, threads, ranks);
  if (communicator.any(stop.stop_requested())) return calibration;
  add_collectives(calibration, communicator, is_first ? sink : EventSink());
  if (is_first) keep_if_possible(sim::to_json(calibration), name);
  return calibration;
}

sim::Calibration calibrate_this_machine(const EventSink& sink, std::stop_token stop, int threads) {
  kernels::cpu::set_threads(threads);
  const fs::path file = this_machine_file();  // which may not be possible: before minutes are spent
  return measure_this_machine(
      sink, stop, [&](const sim::Calibration& calibration) { write_file(file, sim::to_json(calibration)); });
}

sim::Calibration this_machine(const EventSink& sink, std::stop_token stop) {
  if (std::optional<sim::Calibration> cached = cached_this_machine()) return *std::move(cached);
  return measure_this_machine(sink, stop, [](const sim::Calibration& calibration) {
    keep_if_possible(sim::to_json(calibration), this_machine_name());
  });
}

}  // namespace runtime
