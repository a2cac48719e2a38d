#include "runtime/process_group.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "runtime/error.h"

namespace runtime {
namespace {

namespace fs = std::filesystem;

std::optional<int> number_in_environment(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const std::string_view view(text);
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size()) return std::nullopt;
  return value;
}

std::string several(int size) {
  return std::to_string(size) + " processes were started together, ";
}

}  // namespace

Launched launched() {
  struct Variables {
    const char *rank, *size, *on_this_machine, *place;
  };
  constexpr Variables kLaunchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                       "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
                                      {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"}};
  const auto at_least = [](int least, const char* variable) {
    return std::max(least, number_in_environment(variable).value_or(least));
  };
  for (const Variables& v : kLaunchers) {
    const std::optional<int> rank = number_in_environment(v.rank), size = number_in_environment(v.size);
    if (rank && size && *size >= 1 && *rank >= 0 && *rank < *size)
      return {*rank, *size, at_least(1, v.on_this_machine), at_least(0, v.place)};
  }
  // srun alone: a batch script, too, has SLURM_NTASKS, but it is no step of several tasks.
  const std::optional<int> task = number_in_environment("SLURM_PROCID"),
                           tasks = number_in_environment("SLURM_STEP_NUM_TASKS");
  if (!task || !tasks || *tasks < 2 || *task < 0 || *task >= *tasks) return {};
  const char* const of_nodes = std::getenv("SLURM_STEP_TASKS_PER_NODE");
  const int here = number_in_environment("SLURM_STEP_NUM_NODES") == 1
                       ? *tasks
                       : tasks_of_node(of_nodes ? of_nodes : "", at_least(0, "SLURM_NODEID"));
  return {*task, *tasks, here, at_least(0, "SLURM_LOCALID")};
}

int tasks_of_node(std::string_view of_nodes, int node) {
  while (!of_nodes.empty()) {
    const std::string_view run = of_nodes.substr(0, of_nodes.find(','));
    const std::size_t times = run.find("(x");
    int tasks = 1, nodes = 1;
    std::from_chars(run.data(), run.data() + run.size(), tasks);
    if (times != std::string_view::npos)
      std::from_chars(run.data() + times + 2, run.data() + run.size(), nodes);
    if (node < nodes) return std::max(1, tasks);
    node -= nodes;
    of_nodes.remove_prefix(std::min(of_nodes.size(), run.size() + 1));
  }
  return 1;
}

std::unique_ptr<ProcessGroup> join_process_group() {
  const int size = launched().size;
  if (size == 1) return nullptr;
  std::error_code error;
  const fs::path file = fs::read_symlink("/proc/self/exe", error).parent_path() / "libridgepoint_mpi.so";
  if (!fs::exists(file, error))
    throw NoDevice(several(size) +
                   "but this program was built without MPI, through which they would divide the work: "
                   "install libopenmpi-dev and build again, or start one");
  // Never unloaded. Open MPI's components look for its symbols in the whole process.
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw NoDevice(several(size) + "but MPI does not load: " + dlerror());
  using Backend = const MpiBackend* (*)();
  const auto entry = reinterpret_cast<Backend>(dlsym(library, "ridgepoint_mpi_backend"));
  if (entry == nullptr || std::string_view(entry()->version) != RIDGEPOINT_VERSION)
    throw NoDevice(file.string() + " is of another version of this program");
  return entry()->join();
}

}  // namespace runtime
