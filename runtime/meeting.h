// Where ranks of several machines meet, as what started them says in the environment.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/tcp_ranks.h"
#include "runtime/transport.h"

namespace runtime {

// MASTER_ADDR and MASTER_PORT, as torchrun and users of mpirun set them; of srun the step's first node and a port
// that follows from the job's number. Nothing where there is neither.
std::optional<Meeting> meeting_in_environment();

// The first host of what Slurm writes: "node[03-05,09],other" is node03.
std::string first_host(std::string_view node_list);

// By the meeting in the environment, else by MPI, over which the first rank says where it is. Throws NoDevice
// where there is neither, and as join_tcp_ranks() does.
std::unique_ptr<Transport> join_machines(std::int32_t rank, std::int32_t size, std::chrono::seconds patience);

}  // namespace runtime
