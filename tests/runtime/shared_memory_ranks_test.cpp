// Messages and collectives through shared memory, against those of threads.
#include "runtime/shared_memory_ranks.h"

#include <array>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/thread_ranks.h"
#include "tests/runtime/transports.h"
#include "tests/support/catch.h"

namespace {

using runtime::Communicator;
using runtime::ConstBytes;
using runtime::MutableBytes;
using tests::bytes_of;
using tests::read_bytes_of;
using tests::run_cramped_ranks;
using tests::run_ranks_with;
using tests::run_shared_memory_ranks;
using tests::values_of;
using Floats = std::vector<float>;

// What each rank has after one of each collective, in two buffers where they take several.
std::vector<std::vector<Floats>> after_collectives(
    const std::function<void(std::int32_t, const std::function<void(runtime::Transport&)>&)>& run_ranks,
    std::int32_t ranks, std::size_t count) {
  std::vector<std::vector<Floats>> results(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](runtime::Transport& transport) {
    Communicator communicator(transport);
    const runtime::Members members = communicator.everyone();
    const auto n = static_cast<std::size_t>(ranks), self = members.self;
    const std::size_t part = (count + n - 1) / n, cut = count / 3 * sizeof(float);
    const Floats values = values_of(transport.rank(), count);
    Floats sum = values, gathered(count), shard(part, 1.0f), passed(count), swapped(n * part);
    communicator.all_reduce(members,
                            std::vector<MutableBytes>{bytes_of(sum).first(cut), bytes_of(sum).subspan(cut)},
                            sim::DType::fp32);
    communicator.reduce_scatter(members, std::vector<MutableBytes>{bytes_of(shard)},
                                std::vector<ConstBytes>{read_bytes_of(values)}, sim::DType::fp32, true);
    communicator.all_gather(members, std::vector<MutableBytes>{bytes_of(gathered)},
                            std::vector<ConstBytes>{read_bytes_of(shard)}, sim::DType::fp32);
    communicator.exchange(members, std::vector<MutableBytes>{bytes_of(passed)},
                          std::vector<ConstBytes>{read_bytes_of(values)});
    const Floats all = values_of(transport.rank() + ranks, n * part);
    communicator.all_to_all(members, bytes_of(swapped), read_bytes_of(all));
    // From rank r to rank s go r + s and one elements more than a share, in two segments of other lengths
    // here and there.
    runtime::Collectives::ConstParts sent(n);
    runtime::Collectives::MutableParts received(n);
    Floats uneven(n * (part + 2 * n));
    for (std::size_t m = 0; m < n; ++m) {
      const std::size_t bytes = (std::min(part, count / n) + self + m) * sizeof(float);
      const ConstBytes from = read_bytes_of(all).first(std::min(bytes, read_bytes_of(all).size()));
      sent[m] = {from.first(from.size() / 8 * 4), from.subspan(from.size() / 8 * 4)};
      const MutableBytes to = bytes_of(uneven).subspan(m * (part + 2 * n) * sizeof(float), from.size());
      received[m] = {to.first(std::min<std::size_t>(4, to.size())),
                     to.subspan(std::min<std::size_t>(4, to.size()))};
    }
    communicator.exchange_parts(members, received, sent);
    results[self] = {sum, shard, gathered, passed, swapped, uneven};
  });
  return results;
}

}  // namespace

TEST_CASE("Collectives through shared memory have the bits of those between threads, of any size") {
  const std::int32_t ranks = GENERATE(2, 3, 5);
  const std::size_t count = GENERATE(1, 1000, 32768, 200003);
  CAPTURE(ranks, count);
  const auto threads = after_collectives(runtime::run_thread_ranks, ranks, count);
  CHECK(after_collectives(run_shared_memory_ranks, ranks, count) == threads);
  CHECK(after_collectives(run_cramped_ranks, ranks, count) == threads);
}

TEST_CASE("Through shared memory a rank sends what a pipeline queues before its receiver does anything") {
  constexpr std::size_t kMessages = 100, kEach = 250'001;  // elements
  std::promise<void> all_sent;
  std::size_t equal = 0;
  run_shared_memory_ranks(2, [&](runtime::Transport& transport) {
    Communicator communicator(transport);
    const auto seed = [](std::size_t i) { return static_cast<std::int32_t>(i); };
    if (transport.rank() == 0) {
      for (std::size_t i = 0; i < kMessages; ++i)
        communicator.send(1, i % 7, read_bytes_of(values_of(seed(i), kEach)));
      return all_sent.set_value();
    }
    all_sent.get_future().wait();
    // Those of one tag in their order, tags in another.
    for (std::size_t tag = 7; tag-- > 0;)
      for (std::size_t i = tag; i < kMessages; i += 7) {
        Floats received(kEach);
        communicator.receive(0, tag, bytes_of(received));
        equal += received == values_of(seed(i), kEach);
      }
  });
  CHECK(equal == kMessages);
}

TEST_CASE("Through shared memory two ranks may send more than it holds before either receives") {
  constexpr std::size_t kLarge = 4'000'000;
  std::array<bool, 2> fine{};
  run_cramped_ranks(2, [&](runtime::Transport& transport) {
    Communicator communicator(transport);
    const std::int32_t self = transport.rank(), other = 1 - self;
    const Floats first = values_of(self, kLarge), second = values_of(self + 2, 3);
    communicator.send(other, 1, read_bytes_of(first));
    communicator.send(other, 2, read_bytes_of(second));
    communicator.send(other, 3, {});
    Floats of_second(3), of_first(kLarge);
    communicator.receive(other, 3, {});
    communicator.receive(other, 2, bytes_of(of_second));
    communicator.receive(other, 1, bytes_of(of_first));
    fine[static_cast<std::size_t>(self)] =
        of_first == values_of(other, kLarge) && of_second == values_of(other + 2, 3);
  });
  CHECK(fine == std::array{true, true});
}

// A ring of three, in which each waits for one that waits for room.
TEST_CASE(
    "Through shared memory three ranks may each send the next one more than it holds before any receives") {
  constexpr std::size_t kLarge = 1'000'000;
  std::array<bool, 3> fine{};
  run_cramped_ranks(3, [&](runtime::Transport& transport) {
    Communicator communicator(transport);
    const std::int32_t self = transport.rank(), next = (self + 1) % 3, before = (self + 2) % 3;
    Floats of_next(3), of_before(kLarge);
    communicator.send(next, 1, read_bytes_of(values_of(self, kLarge)));
    communicator.send(before, 2, read_bytes_of(values_of(self, 3)));
    communicator.receive(next, 2, bytes_of(of_next));
    communicator.receive(before, 1, bytes_of(of_before));
    fine[static_cast<std::size_t>(self)] =
        of_before == values_of(before, kLarge) && of_next == values_of(next, 3);
  });
  CHECK(fine == std::array{true, true, true});
}

TEST_CASE("A rank that gives up wakes those that wait for it in shared memory, and is named") {
  std::array<std::int32_t, 3> lost{-1, -1, -1};
  run_cramped_ranks(3, [&](runtime::Transport& transport) {
    try {
      if (transport.rank() == 2) return transport.give_up("its loss is no number");
      Communicator communicator(transport);
      // One waits for a message, the other for room: nobody reads.
      if (transport.rank() == 0) communicator.barrier();
      const Floats much(4'000'000);
      for (;;) communicator.send(2, 1, read_bytes_of(much));
    } catch (const runtime::RankLost& error) {
      lost[static_cast<std::size_t>(transport.rank())] = error.rank;
    }
  });
  CHECK(lost == std::array<std::int32_t, 3>{2, 2, -1});
}
