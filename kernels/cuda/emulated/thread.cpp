// Fibers are entered once by makecontext() and then switched between by longjmp(), which makes no system call
// as swapcontext() does. The checked longjmp() of some systems refuses to leave a stack for another.
#undef _FORTIFY_SOURCE
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#include "kernels/cuda/thread_emulated.h"

namespace kernels::cuda {
namespace emulation {
namespace {

constexpr int kLanes = 32;
constexpr std::size_t kStackBytes = 128 << 10;

struct Copy {
  void* to;
  const void* from;
  bool valid;
};

// A thread's asynchronous work: groups that are committed, and the one that is still open.
template <class Work>
struct Groups {
  std::vector<std::vector<Work>> committed;
  std::vector<Work> open;

  void commit() {
    committed.push_back(std::move(open));
    open.clear();
  }
  // Does all but the last `pending` groups. A group is removed first: its work may let other threads run.
  template <class Do>
  void wait(int pending, const Do& do_work) {
    while (static_cast<std::ptrdiff_t>(committed.size()) > pending) {
      const std::vector<Work> group = std::move(committed.front());
      committed.erase(committed.begin());
      for (const Work& work : group) do_work(work);
    }
  }
};

// The state of a barrier in shared memory, in its 64 bits. `phase` has the parity of the phase's number.
struct PhaseBarrier {
  std::int32_t bytes;  // still to come
  std::uint16_t arrivals, phase_and_pending;

  static constexpr int kPendingBits = 12;
  int phase() const { return phase_and_pending >> kPendingBits; }
  int pending() const { return phase_and_pending & ((1 << kPendingBits) - 1); }
  void set(int phase, int pending) {
    phase_and_pending = static_cast<std::uint16_t>((phase & 1) << kPendingBits | pending);
  }
  void end_phase_if_complete() {
    if (pending() == 0 && bytes == 0) set(phase() + 1, arrivals);
  }
};
static_assert(sizeof(PhaseBarrier) == sizeof(std::uint64_t));

PhaseBarrier state_of(const std::uint64_t* barrier) {
  PhaseBarrier state;
  std::memcpy(&state, barrier, sizeof state);
  if (state.bytes == -1 && state.arrivals == 0xffff)
    throw std::logic_error("a barrier is used before it is initialised");
  return state;
}

struct BarrierCopy {
  std::uint64_t* barrier;
  int bytes;
  std::function<void()> copy;
};

struct NamedBarrier {
  int arrived = 0;
  std::int64_t rounds = 0;
};

#if defined(__SANITIZE_ADDRESS__)
using Place = void* [5];
#else
using Place = jmp_buf;
#endif

// What AddressSanitizer is told of a stack; without it, nothing.
class KnownStack {
 public:
  KnownStack() = default;
  KnownStack(const std::byte* bottom, std::size_t size) : bottom_(bottom), size_(size) {}
#if defined(__SANITIZE_ADDRESS__)
  // From `own` to this stack; for good, where all functions of `own` have returned.
  void switch_to(KnownStack& own, bool for_good) const {
    __sanitizer_start_switch_fiber(for_good ? nullptr : &own.frames_, bottom_, size_);
  }
  // Runs on this stack, after a switch to it.
  void arrive() {
    __sanitizer_finish_switch_fiber(frames_, nullptr, nullptr);
  }
  // Runs for the first time on another stack, after a switch from this one.
  void is_where_we_came_from() {
    __sanitizer_finish_switch_fiber(nullptr, &bottom_, &size_);
  }
#else
  void switch_to(KnownStack& /*own*/, bool /*for_good*/) const {}
  void arrive() {}
  void is_where_we_came_from() {}
#endif

 private:
  const void* bottom_ = nullptr;
  std::size_t size_ = 0;
  void* frames_ = nullptr;  // of functions that have not returned, where they are kept beside the stack
};

struct Fiber {
  ucontext_t entry{};
  Place resume{};
  bool started = false;
  std::unique_ptr<std::byte[]> stack;
  KnownStack stack_known;
  Thread thread{};
  Groups<Copy> copies;
  Groups<std::function<void()>> products;
  bool finished = false;
  std::int64_t barriers = 0, exchanges = 0;  // how many it has reached
  // What else it waits for: the end of a barrier's phase; a round of a numbered barrier.
  std::uint64_t* phase_barrier = nullptr;
  int parity = 0, number = 0;
  std::int64_t round = 0;
};

// One warp: what its lanes have handed out in the last exchange and in the one before, and how many lanes
// have arrived at each.
struct Warp {
  alignas(16) std::byte slots[2][kLanes][kExchangeBytes];
  std::int64_t arrived = 0;
};

class Block {
 public:
  void run(Index3 grid, Index3 index, int threads, std::size_t shared_bytes,
           const std::function<void()>& body, Order order);

  Fiber& running() { return *fibers_[static_cast<std::size_t>(running_)]; }
  void yield();
  bool barrier(bool own);
  const std::byte* exchange(const void* own, std::size_t bytes);
  void come_to(int number, int threads, bool waits);
  void wait_for_phase(std::uint64_t* barrier, int parity);
  void add(BarrierCopy copy) { copies_.push_back(std::move(copy)); }

 private:
  static void enter();
  void resume(Fiber& fiber);
  bool may_run(const Fiber& fiber);
  bool phase_has_ended(std::uint64_t* barrier, int parity);

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  std::vector<std::byte> shared_;
  std::vector<int> turns_;
  std::vector<BarrierCopy> copies_;
  std::array<NamedBarrier, 16> named_;
  Place scheduler_{};
  KnownStack scheduler_stack_;
  const std::function<void()>* body_ = nullptr;
  std::exception_ptr failure_;
  bool any_[2] = {};
  int running_ = 0, threads_ = 0;
  std::int64_t at_barrier_ = 0;
};

thread_local Block block;
thread_local Order turn_order = Order::ascending;

void Block::enter() {
  block.scheduler_stack_.is_where_we_came_from();
  try {
    (*block.body_)();
  } catch (...) {
    block.failure_ = std::current_exception();
  }
  block.running().finished = true;
  block.yield();
}

// AddressSanitizer takes a jump of the library for the end of all functions on the stack, which costs two
// system calls each time: under it, the compiler's own jumps are used.
#if defined(__SANITIZE_ADDRESS__)
#define EMULATION_SAVE(place) __builtin_setjmp(place)
#define EMULATION_JUMP(place) __builtin_longjmp(place, 1)
#define EMULATION_SWITCHES __attribute__((noinline, no_sanitize_address))
#else
#define EMULATION_SAVE(place) _setjmp(place)
#define EMULATION_JUMP(place) _longjmp(place, 1)
#define EMULATION_SWITCHES
#endif

EMULATION_SWITCHES void Block::yield() {
  Fiber& fiber = running();
  if (EMULATION_SAVE(fiber.resume) == 0) {
    scheduler_stack_.switch_to(fiber.stack_known, fiber.finished);
    EMULATION_JUMP(scheduler_);
  }
  running().stack_known.arrive();
}
EMULATION_SWITCHES void Block::resume(Fiber& fiber) {
  if (EMULATION_SAVE(scheduler_) != 0) {
    scheduler_stack_.arrive();
    return;
  }
  fiber.stack_known.switch_to(scheduler_stack_, false);
  if (fiber.started) EMULATION_JUMP(fiber.resume);
  fiber.started = true;
  setcontext(&fiber.entry);
}

// Whether all threads have reached the fiber's barrier, and all lanes of its warp the fiber's exchange.
bool Block::may_run(const Fiber& fiber) {
  if (fiber.finished) return false;
  if (fiber.phase_barrier != nullptr && !phase_has_ended(fiber.phase_barrier, fiber.parity)) return false;
  if (named_[static_cast<std::size_t>(fiber.number)].rounds < fiber.round) return false;
  const Warp& warp = warps_[static_cast<std::size_t>(fiber.thread.thread / kLanes)];
  return at_barrier_ >= fiber.barriers * threads_ && warp.arrived >= fiber.exchanges * kLanes;
}

void Block::run(Index3 grid, Index3 index, int threads, std::size_t shared_bytes,
                const std::function<void()>& body, Order order) {
  if (threads % kLanes != 0) throw std::logic_error("a block is of whole warps");
  body_ = &body;
  failure_ = nullptr;
  threads_ = threads;
  at_barrier_ = 0;
  shared_.assign(shared_bytes + 16, std::byte{0xff});  // NaN in every floating-point type
  std::byte* const aligned =
      shared_.data() + (16 - reinterpret_cast<std::uintptr_t>(shared_.data()) % 16) % 16;
  warps_.resize(static_cast<std::size_t>(threads / kLanes));
  for (Warp& warp : warps_) warp.arrived = 0;
  copies_.clear();
  named_ = {};

  while (fibers_.size() < static_cast<std::size_t>(threads)) {
    fibers_.push_back(std::make_unique<Fiber>());
    fibers_.back()->stack = std::make_unique<std::byte[]>(kStackBytes);
    fibers_.back()->stack_known = {fibers_.back()->stack.get(), kStackBytes};
  }
  turns_.resize(static_cast<std::size_t>(threads));
  for (int t = 0; t < threads; ++t) {
    Fiber& fiber = *fibers_[static_cast<std::size_t>(t)];
    fiber.thread = {t, threads, index, grid, aligned};
    fiber.copies = {};
    fiber.products = {};
    fiber.started = fiber.finished = false;
    fiber.phase_barrier = nullptr;
    fiber.round = 0;
    fiber.barriers = fiber.exchanges = 0;
    getcontext(&fiber.entry);
    fiber.entry.uc_stack.ss_sp = fiber.stack.get();
    fiber.entry.uc_stack.ss_size = kStackBytes;
    fiber.entry.uc_link = nullptr;
    makecontext(&fiber.entry, &Block::enter, 0);
    turns_[static_cast<std::size_t>(t)] = order == Order::descending ? threads - 1 - t : t;
  }
  std::mt19937 random(7);
  if (order == Order::shuffled) std::shuffle(turns_.begin(), turns_.end(), random);

  // In shuffled order, some of the warps run for as long as they can before the others have a turn: a GPU
  // promises nothing that rules this out.
  std::vector<char> favoured(warps_.size(), order == Order::shuffled ? 0 : 1);
  int unfinished = threads;
  const auto give_turns = [&](bool to_all) {
    bool progress = false;
    for (const int turn : turns_) {
      Fiber& fiber = *fibers_[static_cast<std::size_t>(turn)];
      if (!to_all && favoured[static_cast<std::size_t>(turn / kLanes)] == 0) continue;
      if (!may_run(fiber)) continue;
      progress = true;
      running_ = turn;
      resume(fiber);
      if (failure_) std::rethrow_exception(failure_);
      if (fiber.finished) --unfinished;
    }
    return progress;
  };
  while (unfinished > 0) {
    if (give_turns(false)) continue;
    if (!give_turns(true)) throw std::logic_error("threads of a block wait for each other for ever");
    if (order == Order::shuffled)
      for (char& warp : favoured) warp = static_cast<char>(random() & 1u);
  }
  if (!copies_.empty())
    throw std::logic_error("a block ends while copies to its shared memory are under way");
  for (const NamedBarrier& barrier : named_)
    if (barrier.arrived > 0) throw std::logic_error("a block ends while threads have arrived at a barrier");
}

void Block::come_to(int number, int threads, bool waits) {
  NamedBarrier& barrier = named_.at(static_cast<std::size_t>(number));
  Fiber& fiber = running();
  fiber.number = number;
  fiber.round = waits ? barrier.rounds + 1 : 0;
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    ++barrier.rounds;
  }
  if (waits) yield();
  fiber.round = 0;
}

// Copies that somebody waits for arrive here.
bool Block::phase_has_ended(std::uint64_t* barrier, int parity) {
  for (std::size_t i = 0; i < copies_.size() && state_of(barrier).phase() == parity;) {
    if (copies_[i].barrier != barrier) {
      ++i;
      continue;
    }
    const BarrierCopy copy = std::move(copies_[i]);
    copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(i));
    copy.copy();
    PhaseBarrier state = state_of(barrier);
    state.bytes -= copy.bytes;
    state.end_phase_if_complete();
    std::memcpy(barrier, &state, sizeof state);
  }
  return state_of(barrier).phase() != parity;
}

void Block::wait_for_phase(std::uint64_t* barrier, int parity) {
  Fiber& fiber = running();
  fiber.phase_barrier = barrier;
  fiber.parity = parity;
  yield();
  fiber.phase_barrier = nullptr;
}

bool Block::barrier(bool own) {
  // Two flags are used in turn: when a thread comes to the next barrier, all have read the older flag.
  bool& any = any_[running().barriers % 2];
  if (at_barrier_ % threads_ == 0) any = false;
  any = any || own;
  ++running().barriers;
  ++at_barrier_;
  yield();
  return any;
}

const std::byte* Block::exchange(const void* own, std::size_t bytes) {
  if (bytes > kExchangeBytes) throw std::logic_error("too much for one exchange");
  Fiber& fiber = running();
  Warp& warp = warps_[static_cast<std::size_t>(fiber.thread.thread / kLanes)];
  auto& slots = warp.slots[fiber.exchanges % 2];
  std::memcpy(slots[fiber.thread.thread % kLanes], own, bytes);
  ++fiber.exchanges;
  ++warp.arrived;
  yield();
  return slots[0];
}

}  // namespace

void set_order(Order order) {
  turn_order = order;
}

void run(Index3 grid, int threads, std::size_t shared_bytes, const std::function<void()>& body) {
  for (int z = 0; z < grid.z; ++z)
    for (int y = 0; y < grid.y; ++y)
      for (int x = 0; x < grid.x; ++x) block.run(grid, {x, y, z}, threads, shared_bytes, body, turn_order);
}

namespace {
thread_local bool capturing = false;
thread_local std::vector<std::function<void()>> captured;
thread_local std::int64_t submissions = 0;
}  // namespace

void submit(std::function<void()> work) {
  ++submissions;
  if (capturing)
    captured.push_back(std::move(work));
  else
    work();
}
std::int64_t submitted() {
  return submissions;
}

void begin_capture() {
  capturing = true;
  captured.clear();
}

bool is_capturing() {
  return capturing;
}

std::vector<std::function<void()>> end_capture() {
  capturing = false;
  return std::move(captured);
}

const Thread& current() {
  return block.running().thread;
}

bool block_barrier(bool own) {
  return block.barrier(own);
}

const std::byte* exchange(const void* own, std::size_t bytes) {
  return block.exchange(own, bytes);
}

void copy_async(void* to, const void* from, bool valid) {
  std::memset(to, 0xff, 16);  // from now on what stood there may be gone
  block.running().copies.open.push_back({to, from, valid});
}

void commit_copies() {
  block.running().copies.commit();
}

void wait_for_copies(int pending) {
  block.running().copies.wait(pending, [](const Copy& copy) {
    if (copy.valid)
      std::memcpy(copy.to, copy.from, 16);
    else
      std::memset(copy.to, 0, 16);
  });
}

void sync_threads(int number, int threads) {
  block.come_to(number, threads, true);
}

void arrive_threads(int number, int threads) {
  block.come_to(number, threads, false);
}

void init_barrier(std::uint64_t* barrier, int arrivals) {
  PhaseBarrier state{0, static_cast<std::uint16_t>(arrivals), 0};
  state.set(0, arrivals);
  std::memcpy(barrier, &state, sizeof state);
}

void arrive(std::uint64_t* barrier, int bytes_to_expect) {
  PhaseBarrier state = state_of(barrier);
  if (state.pending() == 0) throw std::logic_error("more threads arrive at a barrier than it expects");
  state.bytes += bytes_to_expect;
  state.set(state.phase(), state.pending() - 1);
  state.end_phase_if_complete();
  std::memcpy(barrier, &state, sizeof state);
  // A thread that waited for the barrier may go on first, but not before the announced copies have begun.
  if (bytes_to_expect == 0) block.yield();
}

void wait_for_phase(std::uint64_t* barrier, int parity) {
  block.wait_for_phase(barrier, parity);
}

void copy_with_barrier(std::uint64_t* barrier, std::byte* to, int bytes, std::function<void()> copy) {
  std::memset(to, 0xff, static_cast<std::size_t>(bytes));
  block.add({barrier, bytes, std::move(copy)});
}

void add_product(std::function<void()> product) {
  block.running().products.open.push_back(std::move(product));
}

void commit_products() {
  block.running().products.commit();
}

void wait_for_products(int pending) {
  block.running().products.wait(pending, [](const std::function<void()>& product) { product(); });
}

}  // namespace emulation

namespace {

std::uint16_t element(const std::byte* rows, int matrix, int row, int column) {
  const std::byte* lane = rows + static_cast<std::size_t>(matrix * 8 + row) * emulation::kExchangeBytes;
  const std::uint16_t* address = nullptr;
  std::memcpy(&address, lane, sizeof address);
  return address[column];
}

void load(std::uint32_t (&to)[4], const void* row, bool transposed) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) throw std::logic_error("a matrix row is not aligned");
  const std::byte* rows = emulation::exchange(&row, sizeof row);
  const int lane = emulation::current().thread % 32;
  const int r = lane / 4, c = 2 * (lane % 4);
  for (int m = 0; m < 4; ++m) {
    const std::uint16_t first = transposed ? element(rows, m, c, r) : element(rows, m, r, c);
    const std::uint16_t second = transposed ? element(rows, m, c + 1, r) : element(rows, m, r, c + 1);
    to[m] = first | static_cast<std::uint32_t>(second) << 16;
  }
}

template <class T>
float half_of(std::uint32_t packed, int which) {
  return to_float(T{static_cast<std::uint16_t>(which == 0 ? packed & 0xffffu : packed >> 16)});
}

}  // namespace

void load_matrices(std::uint32_t (&to)[4], const void* row) {
  load(to, row, false);
}

void load_matrices_transposed(std::uint32_t (&to)[4], const void* row) {
  load(to, row, true);
}

namespace {

// Exact in double, whose normal numbers include bf16's subnormal ones.
double exactly(bf16 x) {
  const int exponent = x.bits >> 7 & 0xff, significand = x.bits & 0x7f;
  const double magnitude =
      exponent == 0 ? std::ldexp(significand, -133) : std::ldexp(128 + significand, exponent - 134);
  return x.bits & 0x8000 ? -magnitude : magnitude;
}
double exactly(f16 x) {
  return to_float(x);
}

}  // namespace

template <class T>
std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b) {
  const auto factor = [](std::uint32_t pair, int shift) {
    return exactly(T{static_cast<std::uint16_t>(pair >> shift)});
  };
  const auto product = [&](int shift) { return static_cast<float>(factor(a, shift) * factor(b, shift)); };
  return pack_pair<T>(product(0), product(16));
}
template std::uint32_t multiply_pairs<bf16>(std::uint32_t, std::uint32_t);
template std::uint32_t multiply_pairs<f16>(std::uint32_t, std::uint32_t);

// Products are exact in fp32's range and are added up in double here; the GPU's own order of sums is not
// specified.
template <class T>
void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  struct Own {
    std::uint32_t a[4], b[2];
  };
  const Own own{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const std::byte* lanes = emulation::exchange(&own, sizeof own);
  const auto of_lane = [lanes](int lane) {
    Own other;
    std::memcpy(&other, lanes + static_cast<std::size_t>(lane) * emulation::kExchangeBytes, sizeof other);
    return other;
  };
  const int lane = emulation::current().thread % 32;
  double sums[4] = {d[0], d[1], d[2], d[3]};
  for (int pair = 0; pair < 4; ++pair) {  // the lanes that hold columns 2 pair, 2 pair + 1 of A, rows of B
    const Own rows = of_lane(lane / 4 * 4 + pair);
    for (int column = 0; column < 2; ++column) {
      const Own columns = of_lane((2 * (lane % 4) + column) * 4 + pair);
      for (int half = 0; half < 2; ++half)       // rows g and g + 8
        for (int upper = 0; upper < 2; ++upper)  // k below 8, and from 8
          for (int k = 0; k < 2; ++k)
            sums[2 * half + column] += static_cast<double>(half_of<T>(rows.a[half + 2 * upper], k)) *
                                       static_cast<double>(half_of<T>(columns.b[upper], k));
    }
  }
  for (int i = 0; i < 4; ++i) d[i] = static_cast<float>(sums[i]);
}
template void multiply_add<bf16>(float (&)[4], const std::uint32_t (&)[4], std::uint32_t, std::uint32_t);
template void multiply_add<f16>(float (&)[4], const std::uint32_t (&)[4], std::uint32_t, std::uint32_t);

}  // namespace kernels::cuda
