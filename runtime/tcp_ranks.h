// Ranks on several machines, each connected to each other by TCP. The first one listens at a place that all know
// (torchrun's MASTER_ADDR and MASTER_PORT) and tells the others where they find each other. Anybody on the network
// may connect, as with MPI and NCCL: it is for networks that are trusted.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/transport.h"

namespace runtime {

struct Meeting {
  std::vector<std::string> hosts;  // names or addresses of the first rank's machine, which are tried in turn
  std::string port = "0";          // of the first rank; it takes any for 0
  std::string job;                 // the same for all ranks of a run, and for those of no other
};

// All processes of a job call it, with their ranks. `announce` is called by the first with the port at which it
// listens. Throws DeviceError where not all have come in time, or one is of another run.
// A machine that does not answer for some seven seconds is lost: RankLost, of its rank.
std::unique_ptr<Transport> join_tcp_ranks(std::int32_t rank, std::int32_t size, const Meeting& meeting,
                                          std::chrono::seconds patience,
                                          const std::function<void(const std::string& port)>& announce = {});

// Addresses of this machine that others may reach it at, without those of the loopback interface.
std::vector<std::string> own_addresses();

}  // namespace runtime
