#include "runtime/tcp_ranks.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "runtime/error.h"
#include "runtime/socket.h"
#include "runtime/socket_ranks.h"

namespace runtime {
namespace {

using Clock = std::chrono::steady_clock;

// How long to wait for a caller that says nothing, and for a machine that does not answer a call.
constexpr std::chrono::seconds kOneCall{3};
// The system asks whether the other machine answers: after so long a silence, so often, so many times.
constexpr int kSilenceS = 2, kAskEveryS = 1, kAskTimes = 5;

// The first data on each connection.
struct Hello {
  std::array<char, 16> program = kProgram;
  std::uint64_t job = 0;
  std::int32_t rank = 0, size = 0, port = 0;  // the port is the rank's own
  std::int32_t is_pulse = 0;
  static constexpr std::array<char, 16> kProgram{'r', 'i', 'd', 'g', 'e', 'p', 'o', 'i', 'n', 't', ' ', '1'};
};

// Where the other ranks find a rank.
struct Place {
  std::array<char, NI_MAXHOST> address{};  // empty: where they found the first one
  std::int32_t port = 0;
};

std::uint64_t hash_of(std::string_view job) {
  constexpr std::uint64_t kOffset = 0xcbf29ce484222325u, kPrime = 0x100000001b3u;  // FNV-1a
  std::uint64_t hash = kOffset;
  for (const char letter : job) hash = (hash ^ static_cast<std::uint8_t>(letter)) * kPrime;
  return hash;
}

struct Addresses {
  addrinfo* first = nullptr;
  ~Addresses() {
    if (first) freeaddrinfo(first);
  }
};

// A null host means all of this machine's addresses. Returns an error of getaddrinfo, or 0.
int find(const char* host, const std::string& port, int family, Addresses& found) {
  addrinfo wanted{};
  wanted.ai_family = family;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = host ? 0 : AI_PASSIVE;
  return getaddrinfo(host, port.c_str(), &wanted, &found.first);
}

std::string reason() {
  return std::strerror(errno);
}

void set(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof value);
}

// Listens on the port at all addresses of this machine, by IPv6 and IPv4 where it has both.
Socket listen_at(const std::string& port, std::int32_t size) {
  std::string why = "no such port";
  for (const int family : {AF_INET6, AF_INET}) {
    Addresses own;
    if (find(nullptr, port, family, own) != 0) continue;
    Socket door(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!door.is_open()) continue;
    set(door.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (family == AF_INET6) set(door.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (bind(door.get(), own.first->ai_addr, own.first->ai_addrlen) == 0 && listen(door.get(), 2 * size) == 0)
      return door;
    why = reason();
  }
  throw DeviceError("the first rank cannot listen at port " + port + ": " + why +
                    "; MASTER_PORT must be a free port of its machine");
}

std::int32_t port_of(const Socket& door) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(door.get(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

std::string text_of(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  constexpr std::string_view kMapped = "::ffff:";  // IPv4 as IPv6 has it
  const std::string_view all(text.data());
  return std::string(all.starts_with(kMapped) ? all.substr(kMapped.size()) : all);
}

// The address of the other end.
std::string address_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  const auto any = reinterpret_cast<sockaddr*>(&address);
  return getpeername(socket.get(), any, &length) == 0 ? text_of(any, length) : std::string();
}
bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000'000));
}

// Transfers a few bytes completely and in time.
bool transfer(const Socket& socket, void* data, std::size_t bytes, bool sends, Clock::time_point end) {
  for (auto at = static_cast<std::byte*>(data); bytes > 0;) {
    pollfd polled{socket.get(), static_cast<short>(sends ? POLLOUT : POLLIN), 0};
    if (poll(&polled, 1, milliseconds_until(end)) <= 0) return false;
    const ssize_t n = sends ? ::send(socket.get(), at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                            : ::recv(socket.get(), at, bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

// Null where nobody answers at that address now; `why` says so.
Socket call(const std::string& host, const std::string& port, std::string& why) {
  Addresses found;
  if (const int error = find(host.c_str(), port, AF_UNSPEC, found); error != 0) {
    why = gai_strerror(error);
    return Socket();
  }
  for (const addrinfo* address = found.first; address; address = address->ai_next) {
    Socket called(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!called.is_open()) continue;
    if (connect(called.get(), address->ai_addr, address->ai_addrlen) != 0 && errno != EINPROGRESS) {
      why = reason();
      continue;
    }
    pollfd polled{called.get(), POLLOUT, 0};
    const int answered = poll(&polled, 1, static_cast<int>(std::chrono::milliseconds(kOneCall).count()));
    int error = answered > 0 ? 0 : ETIMEDOUT;
    socklen_t length = sizeof error;
    if (answered > 0) getsockopt(called.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error == 0) return called;
    why = std::strerror(error);
  }
  return Socket();
}

// This rank and its connections to the others.
class Ranks {
 public:
  Ranks(std::int32_t rank, std::int32_t size, const Meeting& meeting, Clock::time_point end)
      : meeting_(meeting),
        end_(end),
        door_(listen_at(rank == 0 ? meeting.port : "0", size)),
        messages_(static_cast<std::size_t>(size)),
        pulses_(static_cast<std::size_t>(size)),
        ports_(static_cast<std::size_t>(size)) {
    own_.job = hash_of(meeting.job);
    own_.rank = rank;
    own_.size = size;
    own_.port = port_of(door_);
  }

  std::string port() const { return std::to_string(own_.port); }

  // Connects all ranks: the first rank's part, and the part of the others.
  void bring_together() {
    accept_from(1);
    std::vector<Place> places(messages_.size());
    for (std::size_t r = 1; r < places.size(); ++r) {
      const std::string address = address_of(messages_[r]);
      if (!is_loopback(address) && address.size() < places[r].address.size())
        std::copy(address.begin(), address.end(), places[r].address.begin());
      places[r].port = ports_[r];
    }
    for (std::size_t r = 1; r < places.size(); ++r)
      if (!transfer(messages_[r], places.data(), places.size() * sizeof(Place), true, end_))
        throw DeviceError("rank " + std::to_string(r) + " of the run has gone before it began");
  }
  void come() {
    connect_to(0, meeting_.hosts, meeting_.port);
    std::vector<Place> places(messages_.size());
    if (!transfer(messages_[0], places.data(), places.size() * sizeof(Place), false, end_))
      throw DeviceError("not all ranks of the run have come to rank 0");
    const std::string of_first = address_of(messages_[0]);
    for (std::int32_t lower = 1; lower < own_.rank; ++lower) {
      Place& place = places[static_cast<std::size_t>(lower)];
      place.address.back() = '\0';
      const std::string address = place.address.data();
      connect_to(lower, {address.empty() ? of_first : address}, std::to_string(place.port));
    }
    accept_from(own_.rank + 1);
  }

  std::unique_ptr<Transport> transport() {
    for (const Socket& socket : messages_)
      if (socket.is_open()) set(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
    for (const Socket& socket : pulses_) {
      if (!socket.is_open()) continue;
      set(socket.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
      set(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, kSilenceS);
      set(socket.get(), IPPROTO_TCP, TCP_KEEPINTVL, kAskEveryS);
      set(socket.get(), IPPROTO_TCP, TCP_KEEPCNT, kAskTimes);
    }
    return transport_over(own_.rank, std::move(messages_), std::move(pulses_));
  }

 private:
  Socket& place_of(const Hello& hello) {
    return (hello.is_pulse != 0 ? pulses_ : messages_)[static_cast<std::size_t>(hello.rank)];
  }

  // Makes both connections to a rank.
  void connect_to(std::int32_t rank, const std::vector<std::string>& hosts, const std::string& port) {
    Hello hello = own_;
    for (const bool is_pulse : {false, true}) {
      hello.is_pulse = is_pulse ? 1 : 0;
      Socket socket = reach(rank, hosts, port);
      if (!transfer(socket, &hello, sizeof hello, true, Clock::now() + kOneCall))
        throw DeviceError("rank " + std::to_string(rank) + " does not listen at port " + port);
      (is_pulse ? pulses_ : messages_)[static_cast<std::size_t>(rank)] = std::move(socket);
    }
  }
  Socket reach(std::int32_t rank, const std::vector<std::string>& hosts, const std::string& port) const {
    std::string why;
    for (;;) {
      for (const std::string& host : hosts)
        if (Socket socket = call(host, port, why); socket.is_open()) return socket;
      if (Clock::now() > end_)
        throw DeviceError("rank " + std::to_string(rank) + " is not reached at " + hosts.front() + ", port " +
                          port + ": " + why);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  // Accepts both connections of all ranks from `first` on.
  void accept_from(std::int32_t first) {
    for (std::int64_t left = 2 * std::int64_t{own_.size - first}; left > 0;) {
      pollfd polled{door_.get(), POLLIN, 0};
      if (poll(&polled, 1, milliseconds_until(end_)) <= 0)
        throw DeviceError("not all ranks of the run have come: " + missing_from(first));
      Socket socket(accept4(door_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      Hello hello;
      if (!socket.is_open() || !transfer(socket, &hello, sizeof hello, false, Clock::now() + kOneCall) ||
          hello.program != Hello::kProgram)
        continue;  // somebody else's
      require_ours(hello, first);
      place_of(hello) = std::move(socket);
      ports_[static_cast<std::size_t>(hello.rank)] = hello.port;
      --left;
    }
  }

  void require_ours(const Hello& hello, std::int32_t first) {
    const std::string rank = "rank " + std::to_string(hello.rank);
    if (hello.job != own_.job) throw DeviceError(rank + " that came is of another run");
    if (hello.size != own_.size)
      throw DeviceError(rank + " was told of " + std::to_string(hello.size) + " ranks, rank " +
                        std::to_string(own_.rank) + " of " + std::to_string(own_.size) +
                        "; WORLD_SIZE must be the same for all");
    if (hello.rank < first || hello.rank >= own_.size || place_of(hello).is_open())
      throw DeviceError("two processes are " + rank + " of the same run; RANK must differ");
  }

  std::string missing_from(std::int32_t first) const {
    std::string missing;
    for (std::int32_t r = first; r < own_.size; ++r)
      if (!pulses_[static_cast<std::size_t>(r)].is_open())
        missing += (missing.empty() ? "rank " : ", ") + std::to_string(r);
    return missing + " is missing";
  }

  const Meeting& meeting_;
  Clock::time_point end_;
  Socket door_;
  Hello own_;
  std::vector<Socket> messages_, pulses_;  // by rank
  std::vector<std::int32_t> ports_;
};

}  // namespace

std::unique_ptr<Transport> join_tcp_ranks(std::int32_t rank, std::int32_t size, const Meeting& meeting,
                                          std::chrono::seconds patience,
                                          const std::function<void(const std::string& port)>& announce) {
  Ranks ranks(rank, size, meeting, Clock::now() + patience);
  if (rank > 0) {
    ranks.come();
  } else {
    if (announce) announce(ranks.port());
    ranks.bring_together();
  }
  return ranks.transport();
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return addresses;
  for (const ifaddrs* i = first; i; i = i->ifa_next) {
    if (!i->ifa_addr) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const std::string text =
        text_of(i->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (!text.empty() && !is_loopback(text)) addresses.push_back(text);
  }
  freeifaddrs(first);
  return addresses;
}

}  // namespace runtime
