#include "runtime/meeting.h"

#include <cstdlib>
#include <sstream>
#include <thread>

#include "runtime/error.h"
#include "runtime/process_group.h"

namespace runtime {
namespace {

std::string in_environment(const char* variable) {
  const char* const text = std::getenv(variable);
  return text ? text : "";
}

int number_or(const std::string& text, int otherwise) {
  std::istringstream in(text);
  int number = 0;
  return in >> number ? number : otherwise;
}

// torchrun's processes find their store at MASTER_PORT; where torchrun itself keeps it there
// (torch/distributed/elastic/agent/server/api.py), ours is the port behind it.
std::string master_port() {
  constexpr int kOfPyTorch = 29500;  // torch.distributed.launch's default
  const bool is_taken = in_environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return std::to_string(number_or(in_environment("MASTER_PORT"), kOfPyTorch) + (is_taken ? 1 : 0));
}

// The first rank tells the others where it listens: a port, then its addresses.
std::unique_ptr<Transport> join_by_mpi(std::int32_t rank, std::int32_t size, std::chrono::seconds patience) {
  const std::unique_ptr<ProcessGroup> group = join_process_group();
  Meeting meeting;
  const auto tell = [&](const std::string& port) {
    std::string text = port;
    for (const std::string& address : own_addresses()) text += " " + address;
    for (int other = 1; other < size; ++other) group->send(other, text);
  };
  if (rank > 0) {
    std::optional<ProcessGroup::Message> told;
    while (!(told = group->receive())) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::istringstream in(told->text);
    in >> meeting.port;
    for (std::string address; in >> address;) meeting.hosts.push_back(address);
    // Not "localhost": a system without /etc/hosts does not know it.
    if (meeting.hosts.empty()) meeting.hosts.push_back("127.0.0.1");
  }
  std::unique_ptr<Transport> transport = join_tcp_ranks(rank, size, meeting, patience, tell);
  group->leave();
  return transport;
}

}  // namespace

std::string first_host(std::string_view node_list) {
  const std::size_t end = node_list.find_first_of("[,");
  std::string host(node_list.substr(0, end));
  if (end == std::string_view::npos || node_list[end] == ',') return host;
  const std::string_view numbers = node_list.substr(end + 1);
  host += numbers.substr(0, numbers.find_first_of("-,]"));
  const std::size_t closed = numbers.find(']');
  if (closed == std::string_view::npos) return host;
  const std::string_view behind = numbers.substr(closed + 1);
  return host += behind.substr(0, behind.find(','));
}

std::optional<Meeting> meeting_in_environment() {
  if (const std::string host = in_environment("MASTER_ADDR"); !host.empty())
    return Meeting{{host}, master_port(), in_environment("TORCHELASTIC_RUN_ID")};
  const std::string nodes = in_environment("SLURM_STEP_NODELIST"), step = in_environment("SLURM_STEP_ID");
  if (nodes.empty()) return std::nullopt;
  // Ports that no system hands out by itself; jobs that share a node differ.
  constexpr int kFirst = 20000, kPorts = 10000;
  const std::string job = in_environment("SLURM_JOB_ID");
  return Meeting{{first_host(nodes)},
                 std::to_string(kFirst + (number_or(job, 0) + number_or(step, 0)) % kPorts),
                 job + "." + step};
}

std::unique_ptr<Transport> join_machines(std::int32_t rank, std::int32_t size,
                                         std::chrono::seconds patience) {
  if (const std::optional<Meeting> meeting = meeting_in_environment())
    return join_tcp_ranks(rank, size, *meeting, patience);
  if (launched().size != size)
    throw NoDevice(std::to_string(size) +
                   " ranks were started on several machines; MASTER_ADDR and MASTER_PORT must say where rank "
                   "0 is, as torchrun sets them");
  return join_by_mpi(rank, size, patience);
}

}  // namespace runtime
