// Ranks that are processes of one machine, each connected to each other by a Unix socket: whoever dies is
// seen by all others at once, by the end of its connection.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/socket.h"
#include "runtime/transport.h"

namespace runtime {

// All processes of a job call it, with the job's name and their ranks. Throws DeviceError where not all have
// come in time.
std::unique_ptr<Transport> join_socket_ranks(std::int32_t rank, std::int32_t size, const std::string& job,
                                             std::chrono::seconds patience);

// Messages over connected sockets, one to each other rank, by rank; none at this one's place. Pulses are as
// many connections beside them, or none: nothing is sent there, so that the system may ask on them whether the
// other machine answers (SO_KEEPALIVE); where it does not, its rank is lost.
std::unique_ptr<Transport> transport_over(std::int32_t rank, std::vector<Socket> sockets,
                                          std::vector<Socket> pulses = {});

}  // namespace runtime
