// Collectives against sums in a loop, over threads and over processes' sockets.
#include "runtime/communicator.h"

#include <array>

#include "runtime/collectives_bench.h"
#include "runtime/thread_ranks.h"
#include "tests/runtime/transports.h"
#include "tests/support/catch.h"

namespace {

using runtime::Communicator;
using runtime::ConstBytes;
using runtime::Members;
using runtime::MutableBytes;
using tests::bytes_of;
using tests::read_bytes_of;
using tests::run_cramped_ranks;
using tests::run_shared_memory_ranks;
using tests::run_socket_ranks;
using tests::run_tcp_ranks;
using tests::values_of;

Members all_of(std::int32_t ranks, std::int32_t self) {
  Members members{{}, static_cast<std::size_t>(self)};
  for (std::int32_t rank = 0; rank < ranks; ++rank) members.ranks.push_back(rank);
  return members;
}

// In the order of ranks.
std::vector<float> sum_of_all(std::int32_t ranks, std::size_t count) {
  std::vector<float> sum = values_of(0, count);
  for (std::int32_t rank = 1; rank < ranks; ++rank) {
    const std::vector<float> more = values_of(rank, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += more[i];
  }
  return sum;
}

}  // namespace

TEST_CASE("Collectives give the sums and orders of a loop over ranks, bit by bit, whatever carries them") {
  const auto run_ranks = GENERATE(&run_socket_ranks, &run_tcp_ranks, &runtime::run_thread_ranks);
  const std::int32_t ranks = GENERATE(2, 3, 5);
  const std::size_t count = GENERATE(1, 7, 1000, 100003);
  CAPTURE(ranks, count);
  const std::vector<float> sum = sum_of_all(ranks, count);
  const std::size_t part = (count + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks);
  struct Results {
    std::vector<float> reduced, two, scattered, gathered;
  };
  std::vector<Results> results(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](runtime::Transport& transport) {
    Communicator communicator(transport);
    const Members members = all_of(ranks, transport.rank());
    Results& own = results[static_cast<std::size_t>(transport.rank())];
    const std::vector<float> values = values_of(transport.rank(), count);
    own.reduced = values;
    own.two = values;
    communicator.all_reduce(members, std::vector<MutableBytes>{bytes_of(own.reduced)}, sim::DType::fp32);
    // Two buffers as one message.
    const MutableBytes both = bytes_of(own.two);
    const std::size_t cut = count / 3 * sizeof(float);
    communicator.all_reduce(members, std::vector<MutableBytes>{both.first(cut), both.subspan(cut)},
                            sim::DType::fp32);
    // Shards are padded, and keep what they hold where they are added to.
    own.scattered.assign(part, 1.0f);
    communicator.reduce_scatter(members, std::vector<MutableBytes>{bytes_of(own.scattered)},
                                std::vector<ConstBytes>{read_bytes_of(values)}, sim::DType::fp32, true);
    std::vector<float> shard(part);
    communicator.reduce_scatter(members, std::vector<MutableBytes>{bytes_of(shard)},
                                std::vector<ConstBytes>{read_bytes_of(values)}, sim::DType::fp32, false);
    own.gathered.resize(count);
    communicator.all_gather(members, std::vector<MutableBytes>{bytes_of(own.gathered)},
                            std::vector<ConstBytes>{read_bytes_of(shard)}, sim::DType::fp32);
  });
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    CAPTURE(rank);
    CHECK(results[rank].reduced == sum);
    CHECK(results[rank].two == sum);
    CHECK(results[rank].gathered == sum);
    for (std::size_t i = 0; i < part; ++i) {
      const std::size_t at = rank * part + i;
      CHECK(results[rank].scattered[i] == (at < count ? 1.0f + sum[at] : 1.0f));
    }
  }
}

TEST_CASE("timing exchanges says before each how many of them there are already") {
  std::vector<std::pair<std::int64_t, std::int64_t>> said;  // by the first rank alone
  std::size_t rows = 0;
  runtime::run_thread_ranks(2, [&](runtime::Transport& transport) {
    Communicator communicator(transport);
    const auto timed = runtime::time_collectives(
        communicator, 4096, 0, [&](std::int64_t done, std::int64_t of) { said.emplace_back(done, of); });
    if (transport.rank() == 0) rows = timed.size();
  });
  REQUIRE(said.size() == rows);
  for (std::size_t i = 0; i < said.size(); ++i)
    CHECK(said[i] == std::pair(static_cast<std::int64_t>(i), static_cast<std::int64_t>(rows)));
}

TEST_CASE("Messages of different tags do not mix, and two ranks may send before either receives") {
  const auto run_ranks = GENERATE(&run_socket_ranks, &run_tcp_ranks, &runtime::run_thread_ranks);
  constexpr std::size_t kLarge = 4'000'000;  // more than a socket holds
  std::array<bool, 2> fine{};
  run_ranks(2, [&](runtime::Transport& transport) {
    Communicator communicator(transport);
    const std::int32_t self = transport.rank(), other = 1 - self;
    const std::vector<float> first = values_of(self, kLarge), second = values_of(self + 2, 3);
    communicator.send(other, 1, read_bytes_of(first));
    communicator.send(other, 2, read_bytes_of(second));
    std::vector<float> of_second(3), of_first(kLarge);
    communicator.receive(other, 2, bytes_of(of_second));
    communicator.receive(other, 1, bytes_of(of_first));
    fine[static_cast<std::size_t>(self)] =
        of_first == values_of(other, kLarge) && of_second == values_of(other + 2, 3);
    // After a message that came where it was awaited, too.
    std::vector<float> awaited(3);
    if (self == 0) communicator.send(1, 3, read_bytes_of(second));
    if (self == 1) communicator.receive(0, 3, bytes_of(awaited));
    if (self == 1) communicator.send(0, 4, read_bytes_of(second));
    if (self == 0) communicator.receive(1, 4, bytes_of(awaited));
    communicator.send(other, 5, read_bytes_of(first));
    communicator.receive(other, 5, bytes_of(of_first));
  });
  CHECK(fine[0]);
  CHECK(fine[1]);
}

TEST_CASE("What the first rank has is what all ranks get") {
  const auto run_ranks = GENERATE(&run_socket_ranks, &run_tcp_ranks, &runtime::run_thread_ranks);
  std::array<double, 3> got{};
  run_ranks(3, [&](runtime::Transport& transport) {
    Communicator communicator(transport);
    got[static_cast<std::size_t>(transport.rank())] = communicator.of_first(0.5 + transport.rank());
  });
  CHECK(got == std::array{0.5, 0.5, 0.5});
}

TEST_CASE("A rank that gives up is named to all others") {
  const auto run_ranks = GENERATE(&run_socket_ranks, &run_tcp_ranks);
  std::array<std::int32_t, 4> lost{-1, -1, -1, -1};
  run_ranks(4, [&](runtime::Transport& transport) {
    try {
      if (transport.rank() == 2) return transport.give_up("its loss is no number");
      Communicator communicator(transport);
      communicator.barrier();
    } catch (const runtime::RankLost& error) {
      lost[static_cast<std::size_t>(transport.rank())] = error.rank;
    }
  });
  CHECK(lost == std::array<std::int32_t, 4>{2, 2, -1, 2});
}

TEST_CASE("A rank that ended in order is named by one that waits for more, which gets what it sent before") {
  const auto run_ranks = GENERATE(&run_socket_ranks, &run_tcp_ranks, &run_shared_memory_ranks,
                                  &run_cramped_ranks, &runtime::run_thread_ranks);
  std::array<std::int32_t, 3> lost{-1, -1, -1};
  std::array<float, 3> got{};
  run_ranks(3, [&](runtime::Transport& transport) {
    Communicator communicator(transport);
    const auto self = static_cast<std::size_t>(transport.rank());
    const std::vector<float> sent{7};
    if (self == 2)
      for (const std::int32_t other : {0, 1}) communicator.send(other, 1, read_bytes_of(sent));
    if (self == 2) return;
    try {
      std::vector<float> received{0};
      communicator.receive(2, 1, bytes_of(received));
      got[self] = received.front();
      const auto other = static_cast<std::int32_t>(1 - self);
      communicator.send(other, 1, read_bytes_of(sent));
      communicator.receive(other, 1, bytes_of(received));  // who finds it first tells the other
      communicator.receive(2, 1, bytes_of(received));
    } catch (const runtime::RankLost& error) {
      lost[self] = error.rank;
    }
  });
  CHECK(got == std::array<float, 3>{7, 7, 0});
  CHECK(lost == std::array<std::int32_t, 3>{2, 2, -1});
}

TEST_CASE("What any rank says, all hear") {
  for (const std::int32_t who : {-1, 0, 2}) {
    std::array<int, 3> heard{-1, -1, -1};
    run_socket_ranks(3, [&](runtime::Transport& transport) {
      Communicator communicator(transport);
      heard[static_cast<std::size_t>(transport.rank())] = communicator.any(transport.rank() == who);
    });
    const int expected = who < 0 ? 0 : 1;
    CHECK(heard == std::array{expected, expected, expected});
  }
}
