// Where ranks of several machines meet, and whom they turn away.
#include "runtime/tcp_ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <future>
#include <string>
#include <thread>

#include "runtime/error.h"
#include "runtime/meeting.h"
#include "runtime/process_group.h"
#include "runtime/socket.h"
#include "tests/support/catch.h"

namespace {

constexpr std::chrono::seconds kPatience{60};

// Connected to the port of this machine, where the program says nothing that a rank would say.
runtime::Socket stranger(const std::string& port) {
  runtime::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
  REQUIRE(connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return socket;
}

// What the first of two ranks says when another one comes, or "" where they meet.
std::string first_says(std::int32_t other_rank, std::int32_t other_size, const std::string& other_job) {
  std::promise<std::string> told;
  std::thread other([&, port = told.get_future()]() mutable {
    try {
      runtime::join_tcp_ranks(other_rank, other_size, {{"127.0.0.1"}, port.get(), other_job}, kPatience);
    } catch (const runtime::DeviceError&) {
    }
  });
  std::string said;
  try {
    runtime::join_tcp_ranks(0, 2, {{}, "0", "run"}, kPatience, [&](const std::string& port) {
      const std::string garbage(200, 'x');
      const runtime::Socket socket = stranger(port);
      CHECK(send(socket.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL) > 0);
      told.set_value(port);
    });
  } catch (const runtime::DeviceError& error) {
    said = error.what();
  }
  other.join();
  return said;
}

}  // namespace

TEST_CASE("Ranks meet though somebody else calls first, and say what is wrong with one of another run") {
  CHECK(first_says(1, 2, "run") == "");
  CHECK_THAT(first_says(1, 2, "another"), contains("rank 1 that came is of another run"));
  CHECK_THAT(first_says(1, 3, "run"), contains("rank 1 was told of 3 ranks, rank 0 of 2"));
}

TEST_CASE("A first rank that is not there, and ranks that do not come, are named after the time to wait") {
  CHECK_THROWS_WITH(runtime::join_tcp_ranks(1, 2, {{"127.0.0.1"}, "1", "run"}, std::chrono::seconds(0)),
                    contains("rank 0 is not reached at 127.0.0.1, port 1: Connection refused"));
  CHECK_THROWS_WITH(runtime::join_tcp_ranks(0, 3, {{}, "0", "run"}, std::chrono::seconds(0)),
                    contains("rank 1, 2 is missing"));
}

TEST_CASE("The first host and a node's tasks are read from what Slurm says of a step") {
  CHECK(runtime::first_host("node7") == "node7");
  CHECK(runtime::first_host("login,node7") == "login");
  CHECK(runtime::first_host("node[03-05,09],other") == "node03");
  CHECK(runtime::first_host("rack2-node[8,9].cluster,other") == "rack2-node8.cluster");
  for (const int node : {0, 1, 2}) CHECK(runtime::tasks_of_node("2(x3),1", node) == 2);
  CHECK(runtime::tasks_of_node("2(x3),1", 3) == 1);
  CHECK(runtime::tasks_of_node("4", 0) == 4);
}
