#include "runtime/collectives_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>

#include "sim/quantile.h"

namespace runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kSmallest = 1024;
constexpr std::size_t kFewest = 5, kMost = 1000;  // repetitions

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The largest of all ranks' numbers.
double slowest(Communicator& communicator, const Members& members, double own) {
  std::vector<double> all(members.size());
  const MutableBytes gathered = std::as_writable_bytes(std::span(all));
  const ConstBytes shard = std::as_bytes(std::span(&own, 1));
  communicator.all_gather(members, std::span(&gathered, 1), std::span(&shard, 1), sim::DType::fp64);
  return *std::max_element(all.begin(), all.end());
}

double share_sent(sim::OpKind kind, double n) {
  if (kind == sim::OpKind::all_reduce) return 2 * (n - 1) / n;
  return kind == sim::OpKind::exchange || kind == sim::OpKind::send ? 1 : (n - 1) / n;
}

}  // namespace

std::vector<CollectiveRow> time_collectives(
    Communicator& communicator, std::int64_t largest, double seconds_each,
    const std::function<void(std::int64_t done, std::int64_t of)>& progress) {
  Members members{{}, static_cast<std::size_t>(communicator.rank())};
  for (std::int32_t rank = 0; rank < communicator.size(); ++rank) members.ranks.push_back(rank);
  const auto n = static_cast<std::int64_t>(members.size());
  std::vector<CollectiveRow> rows;
  std::int64_t sizes = 0;
  for (std::int64_t wanted = kSmallest; wanted <= largest; wanted *= 4) ++sizes;
  for (std::int64_t wanted = kSmallest; wanted <= largest; wanted *= 4) {
    // Equal parts of whole numbers.
    const std::int64_t unit = n * static_cast<std::int64_t>(sizeof(float));
    const std::int64_t bytes = (wanted + unit - 1) / unit * unit;
    const auto elements = static_cast<std::size_t>(bytes) / sizeof(float);
    std::vector<float> a(elements), b(elements), shard(elements / members.size());
    const MutableBytes whole = std::as_writable_bytes(std::span(a));
    const MutableBytes other = std::as_writable_bytes(std::span(b));
    const MutableBytes part = std::as_writable_bytes(std::span(shard));
    const ConstBytes whole_read = whole, part_read = part;
    const auto there_and_back = [&] {
      const MessageTag tag = 0;
      if (communicator.rank() == 0) {
        communicator.send(1, tag, whole_read);
        communicator.receive(1, tag, other);
      } else if (communicator.rank() == 1) {
        communicator.receive(0, tag, other);
        communicator.send(0, tag, whole_read);
      }
    };
    const std::array<std::pair<sim::OpKind, std::function<void()>>, 6> kinds{
        {{sim::OpKind::all_reduce,
          [&] { communicator.all_reduce(members, std::span(&whole, 1), sim::DType::fp32); }},
         {sim::OpKind::reduce_scatter,
          [&] {
            communicator.reduce_scatter(members, std::span(&part, 1), std::span(&whole_read, 1),
                                        sim::DType::fp32, false);
          }},
         {sim::OpKind::all_gather,
          [&] {
            communicator.all_gather(members, std::span(&whole, 1), std::span(&part_read, 1),
                                    sim::DType::fp32);
          }},
         {sim::OpKind::all_to_all, [&] { communicator.all_to_all(members, other, whole); }},
         {sim::OpKind::exchange,
          [&] { communicator.exchange(members, std::span(&other, 1), std::span(&whole_read, 1)); }},
         {sim::OpKind::send, there_and_back}}};
    for (const auto& [kind, once] : kinds) {
      if (progress && communicator.rank() == 0)
        progress(static_cast<std::int64_t>(rows.size()), sizes * static_cast<std::int64_t>(kinds.size()));
      once();
      std::vector<double> times;
      double spent = 0;
      while (times.size() < kFewest || (spent < seconds_each && times.size() < kMost)) {
        communicator.barrier();
        const Clock::time_point begin = Clock::now();
        once();
        times.push_back(slowest(communicator, members, seconds_since(begin)));
        spent += times.back();
      }
      const double ways = kind == sim::OpKind::send ? 2 : 1;
      const double median = sim::quantile(times, 0.5) / ways;
      const double bandwidth = static_cast<double>(bytes) / median;
      rows.push_back({kind, bytes, median, bandwidth, bandwidth * share_sent(kind, static_cast<double>(n))});
    }
  }
  return communicator.rank() == 0 ? rows : std::vector<CollectiveRow>{};
}

}  // namespace runtime
