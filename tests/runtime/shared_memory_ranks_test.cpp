// Messages and collectives through shared memory, against those of threads.
#include "runtime/shared_memory_ranks.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/socket_ranks.h"
#include "runtime/thread_ranks.h"
#include "tests/support/catch.h"

namespace {

using runtime::Communicator;
using runtime::ConstBytes;
using runtime::MutableBytes;
using Floats = std::vector<float>;

// In threads of this process, each of which opens the others' memory as another process would.
void run_shared_memory_ranks(std::int32_t ranks, const std::function<void(runtime::Transport&)>& work) {
  static int job = 0;
  const std::string name = "shared-" + std::to_string(getpid()) + "-" + std::to_string(job++);
  std::vector<std::thread> threads;
  for (std::int32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto transport =
          runtime::share_memory(runtime::join_socket_ranks(rank, ranks, name, std::chrono::seconds(60)));
      work(*transport);
    });
  for (std::thread& thread : threads) thread.join();
}

Floats values_of(std::int32_t seed, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(seed) + 1);
  std::normal_distribution<float> normal;
  Floats values(count);
  for (float& value : values) value = normal(random);
  return values;
}

MutableBytes bytes_of(Floats& values) {
  return std::as_writable_bytes(std::span(values));
}
ConstBytes read_bytes_of(const Floats& values) {
  return std::as_bytes(std::span(values));
}

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
  const auto shared = after_collectives(run_shared_memory_ranks, ranks, count);
  const auto threads = after_collectives(runtime::run_thread_ranks, ranks, count);
  CHECK(shared == threads);
}

TEST_CASE("Through shared memory two ranks may send more than it holds before either receives") {
  constexpr std::size_t kLarge = 4'000'000;
  std::array<bool, 2> fine{};
  run_shared_memory_ranks(2, [&](runtime::Transport& transport) {
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

TEST_CASE("A rank that gives up wakes those that wait for it in shared memory, and is named") {
  std::array<std::int32_t, 3> lost{-1, -1, -1};
  run_shared_memory_ranks(3, [&](runtime::Transport& transport) {
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
