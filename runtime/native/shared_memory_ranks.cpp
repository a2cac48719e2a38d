#include "runtime/shared_memory_ranks.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace runtime {
namespace {

constexpr std::size_t kLine = 64;

// A rank waits for this to change: rung when something was written to it, or read of what it wrote.
struct Bell {
  alignas(kLine) std::atomic<std::uint32_t> rings;
  alignas(kLine) std::atomic<std::uint32_t> sleeps;
  alignas(kLine) std::uint64_t key;  // of the rank's memory

  void ring() {
    rings.fetch_add(1);
    if (sleeps.load() != 0) syscall(SYS_futex, &rings, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
};

// What one rank writes and another reads, as a stream of bytes; both counts only grow.
struct Counts {
  alignas(kLine) std::atomic<std::uint64_t> written;
  alignas(kLine) std::atomic<std::uint64_t> read;
};

class Ring {
 public:
  Ring(Counts& counts, std::byte* bytes, std::size_t size) : counts_(&counts), bytes_(bytes), size_(size) {}

  // How many bytes there was room for.
  std::size_t put(ConstBytes from) {
    const std::uint64_t at = counts_->written.load(std::memory_order_relaxed);
    const std::uint64_t room = size_ - (at - counts_->read.load(std::memory_order_acquire));
    const std::size_t n = at_once(at, std::min<std::uint64_t>(from.size(), room));
    if (n == 0) return 0;
    std::memcpy(bytes_ + at % size_, from.data(), n);
    counts_->written.store(at + n, std::memory_order_release);
    return n;
  }

  // How many bytes there were.
  std::size_t get(MutableBytes to) {
    const std::uint64_t at = counts_->read.load(std::memory_order_relaxed);
    const std::uint64_t there = counts_->written.load(std::memory_order_acquire) - at;
    const std::size_t n = at_once(at, std::min<std::uint64_t>(to.size(), there));
    if (n == 0) return 0;
    std::memcpy(to.data(), bytes_ + at % size_, n);
    counts_->read.store(at + n, std::memory_order_release);
    return n;
  }

 private:
  // Not beyond the end, and not more than what the other side may begin with meanwhile.
  std::size_t at_once(std::uint64_t at, std::uint64_t most) const {
    constexpr std::uint64_t kMost = 32 << 10;
    return static_cast<std::size_t>(std::min({most, size_ - at % size_, kMost}));
  }

  Counts* counts_;
  std::byte* bytes_;
  std::size_t size_;
};

// A rank's memory: its bell, then a ring from each rank.
class Inbox {
 public:
  // Enough for some pieces of a collective on their way (communicator.cpp), and not much for many ranks.
  static std::size_t ring_size(std::size_t ranks) {
    return std::bit_floor(std::clamp<std::size_t>((8 << 20) / ranks, 64 << 10, 1 << 20));
  }

  Inbox() = default;
  // Nothing where it cannot be mapped.
  Inbox(int file, std::size_t ranks) : ranks_(ranks) {
    struct stat known {};
    if (fstat(file, &known) != 0 || static_cast<std::size_t>(known.st_size) != size(ranks)) return;
    void* const at = mmap(nullptr, size(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at != MAP_FAILED) base_ = static_cast<std::byte*>(at);
  }
  Inbox(Inbox&& other) noexcept : base_(std::exchange(other.base_, nullptr)), ranks_(other.ranks_) {}
  Inbox& operator=(Inbox&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(ranks_, other.ranks_);
    return *this;
  }
  ~Inbox() {
    if (base_) munmap(base_, size(ranks_));
  }

  static std::size_t size(std::size_t ranks) {
    return sizeof(Bell) + ranks * (sizeof(Counts) + ring_size(ranks));
  }
  explicit operator bool() const { return base_ != nullptr; }
  Bell& bell() const { return *std::launder(reinterpret_cast<Bell*>(base_)); }
  Ring ring_from(std::size_t rank) const {
    auto* const counts = reinterpret_cast<Counts*>(base_ + sizeof(Bell));
    std::byte* const bytes = base_ + sizeof(Bell) + ranks_ * sizeof(Counts);
    return {counts[rank], bytes + rank * ring_size(ranks_), ring_size(ranks_)};
  }
  // Memory of a new file is zero, as atomics are that count from nothing.
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

 private:
  std::byte* base_ = nullptr;
  std::size_t ranks_ = 0;
};

struct Header {
  MessageTag tag = 0;
  std::uint64_t bytes = 0;
};

class SharedMemoryTransport final : public Transport {
 public:
  SharedMemoryTransport(std::unique_ptr<Transport> below, std::vector<Inbox> inboxes)
      : below_(std::move(below)), inboxes_(std::move(inboxes)), own_(inboxes_[self()].bell()) {
    for (std::size_t r = 0; r < inboxes_.size(); ++r)
      peers_.push_back(
          {inboxes_[self()].ring_from(r), inboxes_[r].ring_from(self()), &inboxes_[r].bell(), {}, {}});
  }

  std::int32_t rank() const override { return below_->rank(); }
  std::int32_t size() const override { return below_->size(); }

  void send(std::int32_t to, MessageTag tag, std::span<const ConstBytes> parts) override {
    Header header{tag, 0};
    for (const ConstBytes part : parts) header.bytes += part.size();
    Peer& p = peer(to);
    write(p, std::as_bytes(std::span(&header, 1)));
    for (const ConstBytes part : parts) write(p, part);
  }

  void receive(std::int32_t from, MessageTag tag, std::span<const MutableBytes> parts) override {
    Peer& p = peer(from);
    std::deque<Message>& box = p.box[tag];
    // What comes now may go where it is wanted, without a copy between.
    Awaited awaited{&p, tag, parts, false};
    awaited_ = box.empty() ? &awaited : nullptr;
    while (box.empty() && !awaited.arrived) {
      const std::uint32_t rings = own_.rings.load();
      if (!take_what_is_there() && box.empty() && !awaited.arrived) wait_beyond(rings);
    }
    awaited_ = nullptr;
    if (awaited.arrived) return;
    const Message message = std::move(box.front());
    box.pop_front();
    require_size(p, message.size(), parts);
    const std::byte* next = message.data();
    for (const MutableBytes part : parts) {
      if (!part.empty()) std::memcpy(part.data(), next, part.size());
      next += part.size();
    }
  }

  void check() override {
    take_what_is_there();
    below_->check();
  }

  void give_up(const std::string& reason) noexcept override {
    below_->give_up(reason);
    for (Peer& p : peers_) p.bell->ring();
  }

 private:
  using Message = std::vector<std::byte>;

  // A message that comes: first its header, then what it holds.
  struct Arriving {
    Header header;
    bool has_header = false;
    Message message;
    std::vector<MutableBytes> into;  // what is left to fill
    bool is_awaited = false;
  };
  struct Peer {
    Ring in, out;
    Bell* bell = nullptr;
    Arriving arriving;
    std::map<MessageTag, std::deque<Message>> box;
  };
  struct Awaited {
    Peer* from = nullptr;
    MessageTag tag = 0;
    std::span<const MutableBytes> parts;
    bool arrived = false;
  };

  std::size_t self() const { return static_cast<std::size_t>(below_->rank()); }
  Peer& peer(std::int32_t rank) { return peers_.at(static_cast<std::size_t>(rank)); }

  void require_size(const Peer& from, std::uint64_t sent, std::span<const MutableBytes> parts) const {
    std::size_t bytes = 0;
    for (const MutableBytes part : parts) bytes += part.size();
    if (sent != bytes)
      throw std::logic_error("rank " + std::to_string(rank()) + " waits for " + std::to_string(bytes) +
                             " bytes, rank " + std::to_string(&from - peers_.data()) + " sent " +
                             std::to_string(sent));
  }

  // While there is no room it takes what others send: so two that send to each other never wait for each
  // other.
  void write(Peer& to, ConstBytes bytes) {
    while (!bytes.empty()) {
      const std::uint32_t rings = own_.rings.load();
      if (const std::size_t n = to.out.put(bytes); n > 0) {
        bytes = bytes.subspan(n);
        to.bell->ring();
      } else if (!take_what_is_there()) {
        wait_beyond(rings);
      }
    }
  }

  // Until the bell has rung more often. Most often it does in a moment; who waits longer sleeps.
  void wait_beyond(std::uint32_t rings) {
    constexpr int kTurns = 2000;  // some 20 us
    for (int turn = 0; turn < kTurns; ++turn) {
      if (own_.rings.load(std::memory_order_relaxed) != rings) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    constexpr timespec kLookAgain{0, 20'000'000};  // whether all are still there
    own_.sleeps.store(1);
    const bool slept_through =
        own_.rings.load() == rings &&
        syscall(SYS_futex, &own_.rings, FUTEX_WAIT, rings, &kLookAgain, nullptr, 0) != 0 &&
        errno == ETIMEDOUT;
    own_.sleeps.store(0);
    if (slept_through) below_->check();
  }

  // Whether there was anything. Stops where what is waited for has arrived.
  bool take_what_is_there() {
    bool any = false;
    for (Peer& p : peers_)
      while (!(awaited_ && awaited_->arrived) && take_some(p)) any = true;
    return any;
  }

  bool take_some(Peer& p) {
    Arriving& a = p.arriving;
    if (!a.has_header && a.into.empty()) a.into = {std::as_writable_bytes(std::span(&a.header, 1))};
    while (!a.into.empty() && a.into.front().empty()) a.into.erase(a.into.begin());
    if (!a.into.empty()) {
      const std::size_t n = p.in.get(a.into.front());
      if (n == 0) return false;
      p.bell->ring();
      a.into.front() = a.into.front().subspan(n);
      while (!a.into.empty() && a.into.front().empty()) a.into.erase(a.into.begin());
    }
    if (!a.into.empty()) return true;
    if (!std::exchange(a.has_header, true)) {
      begin_message(p);
      if (a.header.bytes > 0) return true;
    }
    a.has_header = false;
    a.into.clear();
    if (std::exchange(a.is_awaited, false))
      awaited_->arrived = true;
    else
      p.box[a.header.tag].push_back(std::exchange(a.message, {}));
    return true;
  }

  void begin_message(Peer& p) {
    Arriving& a = p.arriving;
    a.is_awaited =
        awaited_ && awaited_->from == &p && awaited_->tag == a.header.tag && p.box[a.header.tag].empty();
    if (a.is_awaited) {
      require_size(p, a.header.bytes, awaited_->parts);
      a.into.assign(awaited_->parts.begin(), awaited_->parts.end());
    } else {
      a.message.resize(a.header.bytes);
      a.into = {MutableBytes(a.message)};
    }
  }

  std::unique_ptr<Transport> below_;
  std::vector<Inbox> inboxes_;  // by rank
  Bell& own_;
  std::vector<Peer> peers_;
  Awaited* awaited_ = nullptr;
};

// Tags of the messages below, before there is shared memory.
enum OwnTag : MessageTag { kPlace = ~MessageTag{0} - 16, kCanOpen };

template <class T>
std::vector<T> from_all(Transport& transport, MessageTag tag, const T& own) {
  const ConstBytes sent = std::as_bytes(std::span(&own, 1));
  std::vector<T> all(static_cast<std::size_t>(transport.size()));
  for (std::int32_t r = 0; r < transport.size(); ++r)
    if (r != transport.rank()) transport.send(r, tag, std::span(&sent, 1));
  for (std::int32_t r = 0; r < transport.size(); ++r) {
    T& one = all[static_cast<std::size_t>(r)];
    const MutableBytes into = std::as_writable_bytes(std::span(&one, 1));
    if (r == transport.rank())
      one = own;
    else
      transport.receive(r, tag, std::span(&into, 1));
  }
  return all;
}

// Where a rank's memory is open for whoever may look into its process. In another container another process
// may have its number: the key tells.
struct Place {
  std::int64_t process = 0;
  std::int32_t file = -1;
  std::uint64_t key = 0;
};

}  // namespace

std::unique_ptr<Transport> share_memory(std::unique_ptr<Transport> transport) {
  const auto ranks = static_cast<std::size_t>(transport->size());
  if (ranks < 2) return transport;
  const Place own{getpid(), memfd_create("ridgepoint ranks", MFD_CLOEXEC), std::random_device()()};
  bool fine = own.file >= 0 && ftruncate(own.file, static_cast<off_t>(Inbox::size(ranks))) == 0;
  if (fine) {
    const Inbox inbox(own.file, ranks);
    if (inbox) inbox.bell().key = own.key;
  }
  std::vector<Inbox> inboxes(ranks);
  const std::vector<Place> places = from_all(*transport, kPlace, own);
  for (std::size_t r = 0; r < ranks && fine; ++r) {
    const Place& place = places[r];
    const std::string path = "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.file);
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file >= 0) inboxes[r] = Inbox(file, ranks);
    if (file >= 0) close(file);
    fine = inboxes[r] && inboxes[r].bell().key == place.key;
  }
  const std::vector<std::int32_t> all_fine = from_all<std::int32_t>(*transport, kCanOpen, fine ? 1 : 0);
  if (own.file >= 0) close(own.file);
  if (std::ranges::count(all_fine, 0) > 0) return transport;
  return std::make_unique<SharedMemoryTransport>(std::move(transport), std::move(inboxes));
}

}  // namespace runtime
