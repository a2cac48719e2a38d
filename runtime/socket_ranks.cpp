#include "runtime/socket_ranks.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/error.h"
#include "runtime/messages.h"
#include "runtime/segments.h"

namespace runtime {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& what) {
  throw DeviceError("ranks on this machine cannot reach each other: " + what + ": " + std::strerror(errno));
}

// An address in Linux's abstract name space, so that no file is left behind.
std::pair<sockaddr_un, socklen_t> address_of(const std::string& job, std::int32_t rank) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "ridgepoint/" + std::to_string(getuid()) + "/" + job + "/" + std::to_string(rank);
  const std::size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)};
}

// Whether the other end is of the same user: anybody on the machine may connect to an abstract name.
bool is_own_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == getuid();
}

// Calls may still block here; they take no longer than a few bytes do.
bool transfer(int socket, std::int32_t& rank, bool sends) {
  return (sends ? ::send(socket, &rank, sizeof rank, MSG_NOSIGNAL)
                : ::recv(socket, &rank, sizeof rank, MSG_WAITALL)) == sizeof rank;
}

struct Header {
  MessageTag tag = 0;
  std::uint64_t bytes = 0;
};

// Tags that replace a message: the rank has all it wants, or it gives up; then rank and reason follow.
constexpr MessageTag kGoodbye = ~MessageTag{0}, kGivenUp = kGoodbye - 1;

class SocketTransport final : public Transport {
 public:
  SocketTransport(std::int32_t rank, std::vector<Socket> sockets, std::vector<Socket> pulses)
      : rank_(rank), peers_(sockets.size()) {
    for (std::size_t i = 0; i < sockets.size(); ++i) peers_[i].socket = std::move(sockets[i]);
    for (std::size_t i = 0; i < pulses.size(); ++i) peers_[i].pulse = std::move(pulses[i]);
  }

  ~SocketTransport() override {
    if (!ended_) tell_all(kGoodbye, {});
  }

  std::int32_t rank() const override { return rank_; }
  std::int32_t size() const override { return static_cast<std::int32_t>(peers_.size()); }

  void send(std::int32_t to, MessageTag tag, std::span<const ConstBytes> parts) override {
    Header header{tag, total_bytes(parts)};
    std::vector<iovec> rest{{&header, sizeof header}};
    for (const ConstBytes part : parts)
      if (!part.empty()) rest.push_back({const_cast<std::byte*>(part.data()), part.size()});
    std::size_t first = 0;
    while (first < rest.size()) {
      constexpr std::size_t kMostAtOnce = 256;  // below IOV_MAX
      msghdr message{};
      message.msg_iov = rest.data() + first;
      message.msg_iovlen = std::min(rest.size() - first, kMostAtOnce);
      const ssize_t sent = sendmsg(peer(to).socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        const int error = errno;
        take_what_is_there(peer(to));  // it may have said why
        lose(to, reason_of(error));
      }
      if (sent < 0) {
        if (has_ended(to)) lose(to, kEndedBefore);
        wait_for(to);
        continue;
      }
      auto done = static_cast<std::size_t>(sent);
      while (first < rest.size() && done >= rest[first].iov_len) done -= rest[first++].iov_len;
      if (done > 0) {
        rest[first].iov_base = static_cast<std::byte*>(rest[first].iov_base) + done;
        rest[first].iov_len -= done;
      }
    }
  }

  void receive(std::int32_t from, MessageTag tag, std::span<const MutableBytes> parts) override {
    Peer& p = peer(from);
    std::deque<Message>& box = p.box[tag];
    // Data that comes from now on may go where it is wanted, without a copy between.
    arrived_ = false;
    if (box.empty() && parts.size() == 1) awaited_ = {&p, tag, parts.front()};
    while (box.empty() && !arrived_) {
      if (p.ended) lose(from, kEndedBefore);
      wait_for(kNobody);
    }
    awaited_ = {};
    if (std::exchange(arrived_, false)) return;  // a send takes what comes while it waits
    const Message message = std::move(box.front());
    box.pop_front();
    store(rank_, parts, from, message);
  }

  void check() override {
    arrived_ = false;
    for (Peer& p : peers_) {
      if (p.is_there()) take_what_is_there(p);
      if (p.is_there() && p.pulse.is_open()) feel_pulse(p);
    }
  }

  bool has_ended(std::int32_t rank) const override { return peers_.at(static_cast<std::size_t>(rank)).ended; }

  void give_up(const std::string& reason) noexcept override { say_lost(rank_, reason); }

 private:
  using Message = std::vector<std::byte>;

  struct Peer {
    Socket socket, pulse;  // the pulse may be none
    bool ended = false;    // said so
    Header header;
    std::size_t got = 0;  // bytes of the header, then those of the message
    bool in_message = false;
    Message message;
    std::byte* into = nullptr;  // where the message goes
    std::map<MessageTag, std::deque<Message>> box;
    bool is_there() const { return socket.is_open() && !ended; }
  };
  struct Awaited {
    Peer* from = nullptr;
    MessageTag tag = 0;
    MutableBytes into{};
  };
  static constexpr std::int32_t kNobody = -1;

  Peer& peer(std::int32_t rank) { return peers_.at(static_cast<std::size_t>(rank)); }
  std::int32_t rank_of(const Peer& p) const { return static_cast<std::int32_t>(&p - peers_.data()); }

  // Waits until something arrives, or `to` can take more; takes what has arrived.
  void wait_for(std::int32_t to) {
    std::vector<pollfd> polled;
    std::vector<Peer*> of;
    for (Peer& p : peers_) {
      if (!p.is_there()) continue;
      const short events = rank_of(p) == to ? POLLIN | POLLOUT : POLLIN;
      polled.push_back({p.socket.get(), events, 0});
      of.push_back(&p);
      if (!p.pulse.is_open()) continue;
      polled.push_back({p.pulse.get(), POLLIN, 0});
      of.push_back(&p);
    }
    if (polled.empty()) throw std::logic_error("a rank waits for ranks that have all ended");
    if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "poll");
    for (std::size_t i = 0; i < polled.size(); ++i)
      if ((polled[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
        if (polled[i].fd == of[i]->pulse.get())
          feel_pulse(*of[i]);
        else
          take_what_is_there(*of[i]);
      }
  }

  // Two things can come on the pulse: its end, of which the messages' connection says more, and the system's
  // report that the other machine does not answer.
  void feel_pulse(Peer& p) {
    char nothing = 0;
    const ssize_t n = recv(p.pulse.get(), &nothing, sizeof nothing, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0 && is_of_network(errno)) lose(rank_of(p), reason_of(errno));
    p.pulse = Socket();
  }

  static bool is_of_network(int error) {
    return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN;
  }
  static std::string reason_of(int error) {
    return (is_of_network(error) ? "the network to it is lost (" : "its connection broke (") +
           std::string(std::strerror(error)) + ")";
  }

  void take_what_is_there(Peer& p) {
    while (!p.ended && !arrived_) {
      std::byte* const to = p.in_message ? p.into : reinterpret_cast<std::byte*>(&p.header);
      const std::size_t all = p.in_message ? p.header.bytes : sizeof p.header;
      if (p.got < all) {
        const ssize_t n = recv(p.socket.get(), to + p.got, all - p.got, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n < 0 && is_of_network(errno)) lose(rank_of(p), reason_of(errno));
        if (n <= 0) lose(rank_of(p), "its process is no more");
        p.got += static_cast<std::size_t>(n);
        if (p.got < all) continue;
      }
      p.got = 0;
      if (p.in_message) {
        p.in_message = false;
        end_message(p);
      } else {
        begin_message(p);
      }
    }
  }

  void begin_message(Peer& p) {
    if (p.header.tag == kGoodbye) {
      p.ended = true;
      return;
    }
    p.in_message = true;
    const bool awaited = awaited_.from == &p && awaited_.tag == p.header.tag &&
                         awaited_.into.size() == p.header.bytes && p.box[p.header.tag].empty();
    if (awaited) {
      p.into = awaited_.into.data();
      return;
    }
    p.message.resize(p.header.bytes);
    p.into = p.message.data();
  }

  void end_message(Peer& p) {
    if (awaited_.from == &p && p.into == awaited_.into.data() && p.into != p.message.data()) {
      arrived_ = true;
      return;
    }
    if (p.header.tag != kGivenUp) {
      p.box[p.header.tag].push_back(std::exchange(p.message, {}));
      return;
    }
    std::int32_t lost = 0;
    std::memcpy(&lost, p.message.data(), sizeof lost);
    lose(lost, std::string(reinterpret_cast<const char*>(p.message.data()) + sizeof lost,
                           p.message.size() - sizeof lost));
  }

  // The first rank that is lost is the one that all others hear of.
  [[noreturn]] void lose(std::int32_t lost, const std::string& reason) {
    say_lost(lost, reason);
    throw RankLost(lost, reason);
  }
  void say_lost(std::int32_t lost, const std::string& reason) noexcept {
    if (std::exchange(ended_, true)) return;
    std::string text(sizeof lost, '\0');
    std::memcpy(text.data(), &lost, sizeof lost);
    tell_all(kGivenUp, text + reason);
  }
  // Tells every rank that can take the message at once.
  void tell_all(MessageTag tag, const std::string& text) noexcept {
    const Header header{tag, text.size()};
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    bytes += text;
    for (const Peer& p : peers_)
      if (p.is_there()) ::send(p.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  std::int32_t rank_;
  std::vector<Peer> peers_;  // by rank
  Awaited awaited_;
  bool arrived_ = false, ended_ = false;
};

Socket listen_as(std::int32_t rank, std::int32_t size, const std::string& job) {
  Socket listening(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto [address, length] = address_of(job, rank);
  if (listening.get() < 0 ||
      bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(listening.get(), size) != 0)
    fail("rank " + std::to_string(rank) + " cannot listen");
  return listening;
}

Socket connect_to(std::int32_t rank, const std::string& job, Clock::time_point end) {
  const auto [address, length] = address_of(job, rank);
  for (;;) {
    Socket file(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (file.get() < 0) fail("no socket");
    if (connect(file.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0) return file;
    if (errno != ECONNREFUSED && errno != ENOENT && errno != EAGAIN)
      fail("rank " + std::to_string(rank) + " does not answer");
    if (Clock::now() > end) throw DeviceError("rank " + std::to_string(rank) + " has not come");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::pair<std::int32_t, Socket> accept_one(const Socket& listening, Clock::time_point end) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd polled{listening.get(), POLLIN, 0};
    if (poll(&polled, 1, static_cast<int>(std::max<std::int64_t>(left, 0))) <= 0)
      throw DeviceError("not all ranks of the run have come");
    Socket file(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::int32_t rank = 0;
    if (file.get() >= 0 && is_own_user(file.get()) && transfer(file.get(), rank, false))
      return {rank, std::move(file)};
  }
}

}  // namespace

std::unique_ptr<Transport> join_socket_ranks(std::int32_t rank, std::int32_t size, const std::string& job,
                                             std::chrono::seconds patience) {
  const Clock::time_point end = Clock::now() + patience;
  const Socket listening = listen_as(rank, size, job);
  std::vector<Socket> sockets(static_cast<std::size_t>(size));
  for (std::int32_t lower = 0; lower < rank; ++lower) {
    Socket& file = sockets[static_cast<std::size_t>(lower)];
    file = connect_to(lower, job, end);
    std::int32_t own = rank;
    if (!transfer(file.get(), own, true)) fail("rank " + std::to_string(lower) + " does not listen");
  }
  for (std::int32_t more = rank + 1; more < size; ++more) {
    auto [higher, file] = accept_one(listening, end);
    if (higher <= rank || higher >= size || sockets[static_cast<std::size_t>(higher)].get() >= 0)
      throw DeviceError("two processes are rank " + std::to_string(higher) + " of the same run");
    sockets[static_cast<std::size_t>(higher)] = std::move(file);
  }
  constexpr int kBuffer = 4 << 20;  // what the system allows of it
  for (const Socket& file : sockets)
    if (file.get() >= 0) setsockopt(file.get(), SOL_SOCKET, SO_SNDBUF, &kBuffer, sizeof kBuffer);
  return transport_over(rank, std::move(sockets));
}

std::unique_ptr<Transport> transport_over(std::int32_t rank, std::vector<Socket> sockets,
                                          std::vector<Socket> pulses) {
  return std::make_unique<SocketTransport>(rank, std::move(sockets), std::move(pulses));
}

}  // namespace runtime
