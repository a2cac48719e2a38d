// Processes of this program that mpirun or srun started together, and the messages that they pass. MPI is a
// shared object beside the program, loaded only where several were started: one build runs on machines
// without MPI, and a process that was started alone pays nothing for it.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace runtime {

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Messages of one sender arrive in the order in which they were sent.
  virtual void send(int to, const std::string& text) = 0;
  struct Message {
    int from = 0;
    std::string text;
  };
  // One that has arrived; does not wait.
  virtual std::optional<Message> receive() = 0;

  // The last call of each process, when all have ended well.
  virtual void leave() = 0;
};

// As the launcher says it in the environment (Open MPI, MPICH and Intel MPI, Slurm): this process among those
// that were started with it; rank 0 of 1 where it was started alone.
struct Launched {
  int rank = 0, size = 1;
  int on_this_machine = 1;  // of them
  int place = 0;            // among those
};
Launched launched();

// How many of a step's tasks a node has, as Slurm writes it: "2(x3),1" is two on each of three nodes, and one.
int tasks_of_node(std::string_view of_nodes, int node);

// Null where the process was started alone. Throws NoDevice where there are several and MPI is missing.
std::unique_ptr<ProcessGroup> join_process_group();

// What the shared object hands out, by `extern "C" const MpiBackend* ridgepoint_mpi_backend()`; both are of
// one build, which the version stands for.
struct MpiBackend {
  const char* version;
  std::unique_ptr<ProcessGroup> (*join)();
};

}  // namespace runtime
