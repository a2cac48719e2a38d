#include "runtime/shared_memory_ranks.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <new>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "runtime/error.h"
#include "runtime/messages.h"
#include "runtime/segments.h"

namespace runtime {
namespace {

constexpr std::size_t kLine = 64, kPage = 4096;

// Messages are cut into slots, as large as a piece of a collective (communicator.cpp).
constexpr std::size_t kSlot = 128 << 10;  // bytes

// Messages of this size and more take longer to read than to announce.
constexpr std::size_t kLarge = 4 << 10;  // bytes

// Copies to memory, past this core's caches. A reader of what another core has just written waits for that
// core's cache, line by line; without a shared last cache that takes several times as long as memory.
void copy_past_caches(std::byte* to, ConstBytes from) {
#if defined(__SSE2__)
  constexpr std::size_t kWide = sizeof(__m128i);
  const auto before = (kWide - reinterpret_cast<std::uintptr_t>(to) % kWide) % kWide;
  const std::size_t unaligned = std::min(from.size(), before);
  std::memcpy(to, from.data(), unaligned);
  to += unaligned;
  from = from.subspan(unaligned);
  for (; from.size() >= kWide; from = from.subspan(kWide), to += kWide)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from.data())));
#endif
  std::memcpy(to, from.data(), from.size());
}
// Ends the copies above before others are told of them.
void end_copies() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// A rank waits for its bell: others ring it when they sent it something, or freed a slot that it had sent.
struct Bell {
  alignas(kLine) std::atomic<std::uint32_t> rings;
  alignas(kLine) std::atomic<std::uint32_t> sleeps;
  std::atomic<std::uint32_t> wants_room;  // all of the rank's slots are taken
  alignas(kLine) std::uint64_t key;       // of the rank's memory

  void ring() {
    rings.fetch_add(1);
    if (sleeps.load() != 0) syscall(SYS_futex, &rings, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
};

// How many slots a rank has sent to another one. They only grow in number.
struct Sent {
  alignas(kLine) std::atomic<std::uint64_t> slots;
};

// What a slot holds: a message, or its next part.
struct SlotHeader {
  MessageTag tag = 0;
  std::uint64_t of_message = 0, bytes = 0;
};

// A rank's memory: its bell, which others ring, and what it sends, which they read. A slot's place in the
// list of those sent to one rank stays valid until the slot is used again, so the list never overflows.
class Outbox {
 public:
  Outbox() = default;
  // Empty where the memory cannot be mapped.
  Outbox(int file, std::size_t ranks, std::size_t slots) : ranks_(ranks), slots_(slots) {
    struct stat known {};
    if (fstat(file, &known) != 0 || static_cast<std::size_t>(known.st_size) != size(ranks, slots)) return;
    void* const at = mmap(nullptr, size(ranks, slots), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at != MAP_FAILED) base_ = static_cast<std::byte*>(at);
  }
  Outbox(Outbox&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), ranks_(other.ranks_), slots_(other.slots_) {}
  Outbox& operator=(Outbox&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(ranks_, other.ranks_);
    std::swap(slots_, other.slots_);
    return *this;
  }
  ~Outbox() {
    if (base_) munmap(base_, size(ranks_, slots_));
  }

  static std::size_t size(std::size_t ranks, std::size_t slots) {
    return bytes_at(ranks, slots) + slots * kSlot;
  }
  explicit operator bool() const { return base_ != nullptr; }
  std::size_t slots() const { return slots_; }
  Bell& bell() const { return *at<Bell>(0); }
  std::atomic<std::uint64_t>& sent_to(std::size_t rank) const { return at<Sent>(sizeof(Bell))[rank].slots; }
  // The slot that was sent to the rank as number `i`.
  std::uint32_t& sent_slot(std::size_t rank, std::uint64_t i) const {
    return at<std::uint32_t>(orders_at(ranks_))[rank * slots_ + i % slots_];
  }
  // Not 0 from when its owner fills it until its reader is done with it.
  std::atomic<std::uint32_t>& is_taken(std::uint32_t slot) const {
    return at<std::atomic<std::uint32_t>>(taken_at(ranks_, slots_))[slot];
  }
  SlotHeader& header(std::uint32_t slot) const { return at<SlotHeader>(headers_at(ranks_, slots_))[slot]; }
  MutableBytes bytes(std::uint32_t slot) const {
    return {base_ + bytes_at(ranks_, slots_) + slot * kSlot, kSlot};
  }
  // A new file's memory is zero, and so are atomics that count from 0.
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

 private:
  static std::size_t orders_at(std::size_t ranks) { return sizeof(Bell) + ranks * sizeof(Sent); }
  static std::size_t taken_at(std::size_t ranks, std::size_t slots) {
    return orders_at(ranks) + ranks * slots * sizeof(std::uint32_t);
  }
  static std::size_t headers_at(std::size_t ranks, std::size_t slots) {
    const std::size_t end = taken_at(ranks, slots) + slots * sizeof(std::uint32_t);
    return (end + kLine - 1) / kLine * kLine;
  }
  static std::size_t bytes_at(std::size_t ranks, std::size_t slots) {
    return (headers_at(ranks, slots) + slots * sizeof(SlotHeader) + kPage - 1) / kPage * kPage;
  }
  template <class T>
  T* at(std::size_t offset) const {
    return std::launder(reinterpret_cast<T*>(base_ + offset));
  }

  std::byte* base_ = nullptr;
  std::size_t ranks_ = 0, slots_ = 0;
};

// The slots that this rank fills. Memory grows with what is under way at once, and is not given back.
class OwnSlots {
 public:
  explicit OwnSlots(const Outbox& outbox) : outbox_(outbox), has_pages_(outbox.slots(), 0) {}

  // The first free slot, with memory for so many bytes: the slots at the front were used last, or are still
  // to be read. Nothing where all are taken.
  std::optional<std::uint32_t> find(std::size_t bytes) {
    for (std::uint32_t slot = 0; slot < has_pages_.size(); ++slot)
      if (outbox_.is_taken(slot).load() == 0) {
        if (has_memory(slot, bytes)) return slot;
        has_pages_.resize(slot);
      }
    if (has_pages_.empty()) throw DeviceError("no memory is left for messages between ranks");
    return std::nullopt;
  }

 private:
  // Takes all pages of the slot at once. This is faster than one by one, and it reports here that memory is
  // used up; a process that writes to a page that it cannot get is killed.
  bool has_memory(std::uint32_t slot, std::size_t bytes) {
    if (bytes <= has_pages_[slot]) return true;
    const std::size_t pages = (bytes + kPage - 1) / kPage * kPage;
    if (madvise(outbox_.bytes(slot).data(), pages, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) return false;
    has_pages_[slot] = pages;  // a system that does not know the call gives pages one by one
    return true;
  }

  const Outbox& outbox_;
  std::vector<std::size_t> has_pages_;  // bytes, by slot
};

class SharedMemoryTransport final : public Transport {
 public:
  SharedMemoryTransport(std::unique_ptr<Transport> below, std::vector<Outbox> outboxes)
      : below_(std::move(below)),
        outboxes_(std::move(outboxes)),
        peers_(outboxes_.size()),
        own_(outboxes_[self()]),
        slots_(own_) {
    for (std::size_t r = 0; r < peers_.size(); ++r) peers_[r].outbox = &outboxes_[r];
  }

  std::int32_t rank() const override { return below_->rank(); }
  std::int32_t size() const override { return below_->size(); }

  // The receiver sees each slot as soon as it is full.
  void send(std::int32_t to, MessageTag tag, std::span<const ConstBytes> parts) override {
    const auto receiver = static_cast<std::size_t>(to);
    Bell& bell = peer(to).outbox->bell();
    std::atomic<std::uint64_t>& sent = own_.sent_to(receiver);
    SegmentCursor from(parts);
    const std::uint64_t all = total_bytes(parts);
    std::uint64_t rest = all;
    do {
      const std::size_t bytes = std::min<std::uint64_t>(rest, kSlot);
      const std::uint32_t slot = free_slot(to, bytes);
      own_.header(slot) = {tag, all, bytes};
      std::byte* next = own_.bytes(slot).data();
      from.take(bytes, [&](ConstBytes piece) {
        if (all < kLarge)
          std::memcpy(next, piece.data(), piece.size());
        else
          copy_past_caches(next, piece);
        next += piece.size();
      });
      end_copies();
      own_.is_taken(slot).store(1, std::memory_order_relaxed);
      const std::uint64_t i = sent.load(std::memory_order_relaxed);
      own_.sent_slot(receiver, i) = slot;
      sent.store(i + 1, std::memory_order_release);
      bell.ring();
      rest -= bytes;
    } while (rest > 0);
  }

  void receive(std::int32_t from, MessageTag tag, std::span<const MutableBytes> parts) override {
    Peer& p = peer(from);
    std::deque<Arrived>& box = p.box[tag];
    wait_for_one(from, box);
    std::uint64_t rest = box.front().of_message;
    require_size(rank(), total_bytes(parts), from, rest);
    SegmentCursor into(parts);
    do {
      wait_for_one(from, box);
      const Arrived arrived = std::move(box.front());
      box.pop_front();
      fill(into, bytes_of(p, arrived));
      release(p, arrived);
      rest -= arrived.bytes;
    } while (rest > 0);
  }

  ConstBytes view(std::int32_t from, MessageTag tag, std::size_t bytes) override {
    if (bytes > kSlot) return Transport::view(from, tag, bytes);
    Peer& p = peer(from);
    std::deque<Arrived>& box = p.box[tag];
    wait_for_one(from, box);
    require_size(rank(), bytes, from, box.front().of_message);
    release(p, std::exchange(p.in_view, std::move(box.front())));
    box.pop_front();
    return bytes_of(p, p.in_view);
  }

  bool has_come(std::int32_t from, MessageTag tag) override {
    std::deque<Arrived>& box = peer(from).box[tag];
    if (box.empty()) take_what_is_there();
    return !box.empty();
  }

  void check() override {
    take_what_is_there();
    keep_what_is_in_the_way();
    below_->check();
  }

  bool has_ended(std::int32_t rank) const override { return below_->has_ended(rank); }

  void give_up(const std::string& reason) noexcept override {
    below_->give_up(reason);
    for (const Peer& p : peers_) p.outbox->bell().ring();
  }

 private:
  // A slot that another rank sent, or what was in it.
  struct Arrived {
    std::optional<std::uint32_t> slot;
    std::uint64_t of_message = 0, bytes = 0;
    std::vector<std::byte> kept;
  };
  struct Peer {
    const Outbox* outbox = nullptr;
    std::uint64_t taken = 0;  // slots
    std::map<MessageTag, std::deque<Arrived>> box;
    Arrived in_view;
  };

  std::size_t self() const { return static_cast<std::size_t>(below_->rank()); }
  Peer& peer(std::int32_t rank) { return peers_.at(static_cast<std::size_t>(rank)); }

  static ConstBytes bytes_of(const Peer& p, const Arrived& arrived) {
    return arrived.slot ? p.outbox->bytes(*arrived.slot).first(arrived.bytes) : ConstBytes(arrived.kept);
  }

  static void release(const Peer& p, const Arrived& arrived) {
    if (!arrived.slot) return;
    p.outbox->is_taken(*arrived.slot).store(0);
    if (p.outbox->bell().wants_room.load() != 0) p.outbox->bell().ring();
  }

  // Waits where all slots are taken. It tells the others, so that a rank that waits as well copies elsewhere
  // what it has not yet received: so two ranks that send to each other never wait for each other.
  std::uint32_t free_slot(std::int32_t to, std::size_t bytes) {
    if (const std::optional<std::uint32_t> slot = slots_.find(bytes)) return *slot;
    Bell& bell = own_.bell();
    bell.wants_room.store(1);
    for (const Peer& p : peers_) p.outbox->bell().ring();
    for (;;) {
      const std::uint32_t rings = bell.rings.load();
      if (const std::optional<std::uint32_t> slot = slots_.find(bytes)) {
        bell.wants_room.store(0);
        return *slot;
      }
      if (has_ended(to)) throw RankLost(to, kEndedBefore);
      wait_for_any(rings);
    }
  }

  void wait_for_one(std::int32_t from, const std::deque<Arrived>& box) {
    while (box.empty()) {
      const bool ended = has_ended(from);  // asked first: what it sent before is here by then
      const std::uint32_t rings = own_.bell().rings.load();
      take_what_is_there();
      if (!box.empty()) return;
      if (ended) throw RankLost(from, kEndedBefore);
      wait_for_any(rings);
    }
  }

  void wait_for_any(std::uint32_t rings) {
    take_what_is_there();
    keep_what_is_in_the_way();
    wait_beyond(rings);
  }

  // Waits until the bell has rung more often: mostly a moment. A rank that waits longer sleeps.
  void wait_beyond(std::uint32_t rings) {
    Bell& bell = own_.bell();
    constexpr int kTurns = 2000;  // some 20 us
    for (int turn = 0; turn < kTurns; ++turn) {
      if (bell.rings.load(std::memory_order_relaxed) != rings) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    constexpr timespec kLookAgain{0, 20'000'000};  // then looks whether all ranks are still there
    bell.sleeps.store(1);
    const bool slept_through =
        bell.rings.load() == rings &&
        syscall(SYS_futex, &bell.rings, FUTEX_WAIT, rings, &kLookAgain, nullptr, 0) != 0 &&
        errno == ETIMEDOUT;
    bell.sleeps.store(0);
    if (slept_through) below_->check();
  }

  void take_what_is_there() {
    for (Peer& p : peers_) {
      const std::uint64_t sent = p.outbox->sent_to(self()).load(std::memory_order_acquire);
      for (; p.taken < sent; ++p.taken) {
        const std::uint32_t slot = p.outbox->sent_slot(self(), p.taken);
        const SlotHeader& header = p.outbox->header(slot);
        p.box[header.tag].push_back({slot, header.of_message, header.bytes, {}});
      }
    }
  }

  // Copies what came from ranks that have no free slot, and so frees the slots that held it.
  void keep_what_is_in_the_way() {
    for (Peer& p : peers_) {
      if (p.outbox->bell().wants_room.load() == 0) continue;
      for (auto& [tag, box] : p.box)
        for (Arrived& arrived : box) {
          if (!arrived.slot) continue;
          const ConstBytes bytes = bytes_of(p, arrived);
          arrived.kept.assign(bytes.begin(), bytes.end());
          release(p, arrived);
          arrived.slot.reset();
        }
    }
  }

  std::unique_ptr<Transport> below_;
  std::vector<Outbox> outboxes_;  // by rank
  std::vector<Peer> peers_;       // by rank
  const Outbox& own_;
  OwnSlots slots_;
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

// Where a rank's memory can be opened by whoever may look into its process. In another container, another
// process may have the same number: the key tells them apart.
struct Place {
  std::int64_t process = 0;
  std::int32_t file = -1;
  std::uint64_t key = 0;
};

// All ranks together take no more than an eighth of the machine's memory.
std::size_t slots_within(std::size_t bytes, std::size_t ranks) {
  const auto memory =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return std::min(bytes, memory / 8 / ranks) / kSlot;
}

}  // namespace

std::unique_ptr<Transport> share_memory(std::unique_ptr<Transport> transport, std::size_t most_on_the_way) {
  const auto ranks = static_cast<std::size_t>(transport->size());
  if (ranks < 2) return transport;
  const std::size_t slots = std::max(2 * ranks, slots_within(most_on_the_way, ranks));
  const Place own{getpid(), memfd_create("ridgepoint ranks", MFD_CLOEXEC), std::random_device()()};
  bool fine = own.file >= 0 && ftruncate(own.file, static_cast<off_t>(Outbox::size(ranks, slots))) == 0;
  if (fine) {
    const Outbox outbox(own.file, ranks, slots);
    if (outbox) outbox.bell().key = own.key;
  }
  std::vector<Outbox> outboxes(ranks);
  const std::vector<Place> places = from_all(*transport, kPlace, own);
  for (std::size_t r = 0; r < ranks && fine; ++r) {
    const Place& place = places[r];
    const std::string path = "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.file);
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file >= 0) outboxes[r] = Outbox(file, ranks, slots);
    if (file >= 0) close(file);
    fine = outboxes[r] && outboxes[r].bell().key == place.key;
  }
  const std::vector<std::int32_t> all_fine = from_all<std::int32_t>(*transport, kCanOpen, fine ? 1 : 0);
  if (own.file >= 0) close(own.file);
  if (std::ranges::count(all_fine, 0) > 0) return transport;
  return std::make_unique<SharedMemoryTransport>(std::move(transport), std::move(outboxes));
}

}  // namespace runtime
