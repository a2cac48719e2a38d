#include "runtime/cache_shares.h"

#include <algorithm>

#include "runtime/machine_pace.h"
#include "runtime/single_operation.h"
#include "runtime/stopwatch.h"

namespace runtime {

std::vector<sim::CacheShare> cache_shares(const std::vector<ReadInTurn>& read, double seconds_from_memory) {
  constexpr double kDistinct = 1.2;  // times the cache's, below which their difference is noise
  if (read.empty() || seconds_from_memory < kDistinct * read.front().seconds) return {};
  const double held = read.front().seconds;
  std::vector<sim::CacheShare> shares;
  double share = 0;
  for (const ReadInTurn& turn : read) {
    share = std::clamp((turn.seconds - held) / (seconds_from_memory - held), share, 1.0);
    shares.push_back({turn.working_set, share});
  }
  return shares;
}

std::vector<sim::CacheShare> largest_that_serves(
    sim::Bytes cache, const std::function<std::vector<sim::CacheShare>(sim::Bytes)>& shares_of) {
  constexpr std::int64_t kSmallest = 4 << 20;
  std::vector<sim::CacheShare> shares = shares_of(cache);
  while (shares.empty() && cache.value / 4 >= kSmallest) {
    cache.value /= 4;
    shares = shares_of(cache);
  }
  return shares;
}

sim::Bytes held(const std::vector<sim::CacheShare>& shares) {
  constexpr double kNearlyNone = 0.1;
  sim::Bytes largest;
  for (const sim::CacheShare& share : shares)
    if (share.from_memory <= kNearlyNone) largest = share.working_set;
  return largest;
}

namespace {

std::vector<sim::CacheShare> shares_of_cache(Device& device, sim::Bytes last_level_cache,
                                             const std::stop_token& stop) {
  constexpr std::int64_t kPieces = 8;  // of the cache's size, each a product's weight
  constexpr std::int64_t kColumns = 256;
  const std::int64_t rows =
      last_level_cache.value / kPieces / static_cast<std::int64_t>(kColumns * sizeof(float));
  if (rows <= 0) return {};
  const SingleOperation piece = product(sim::OpKind::matmul, 1, rows, kColumns);
  // The mean, since what a cache keeps is fast and the rest slow; the least of some, since others interrupt.
  constexpr SampleLength kLength{.seconds = 0.012, .most = 100};
  constexpr int kTimes = 3;
  const auto least_mean = [](auto&& time) {
    double least = time().mean;
    for (int i = 1; i < kTimes; ++i) least = std::min(least, time().mean);
    return least;
  };
  std::vector<ReadInTurn> read;
  for (std::int64_t pieces = kPieces / 4; pieces <= 2 * kPieces; pieces += 2) {
    if (stop.stop_requested()) return {};
    const sim::Bytes working_set = operands_size(piece) * pieces;
    Stopwatch stopwatch(device, working_set, working_set, sim::DType::fp32, kLength);
    read.push_back({working_set, least_mean([&] { return stopwatch.time_cached(piece); })});
  }
  Stopwatch stopwatch(device, uncached_size(last_level_cache), {}, sim::DType::fp32, kLength);
  return cache_shares(read, least_mean([&] { return stopwatch.time_uncached(piece); }));
}

}  // namespace

std::vector<sim::CacheShare> measure_cache_shares(Device& device, sim::Bytes last_level_cache,
                                                  const std::stop_token& stop) {
  return largest_that_serves(last_level_cache,
                             [&](sim::Bytes cache) { return shares_of_cache(device, cache, stop); });
}

}  // namespace runtime
