#include "runtime/cache_shares.h"

#include "tests/support/catch.h"

TEST_CASE("What comes from memory is told by how far a read in turn is from the cache's time to memory's") {
  constexpr sim::Bytes kMiB{1 << 20};
  // 10 us where all is held, 50 where nothing is; the third reading was disturbed.
  const auto shares = runtime::cache_shares(
      {{kMiB * 8, 10}, {kMiB * 16, 20}, {kMiB * 24, 18}, {kMiB * 32, 40}, {kMiB * 64, 55}}, 50);
  REQUIRE(shares.size() == 5);
  CHECK(shares[0].working_set == kMiB * 8);
  CHECK(shares[0].from_memory == 0);
  CHECK(shares[1].from_memory == Approx(0.25));
  CHECK(shares[2].from_memory == shares[1].from_memory);  // a larger set never finds more in the cache
  CHECK(shares[3].from_memory == Approx(0.75));
  CHECK(shares[4].from_memory == 1);
}

TEST_CASE("Where memory is as fast as the cache nothing is said of what comes from it") {
  CHECK(runtime::cache_shares({{{1 << 20}, 10}, {{1 << 24}, 11}}, 11).empty());
  CHECK(runtime::cache_shares({}, 11).empty());
}

TEST_CASE("A cache that others hold most of counts as the part that is read faster than memory") {
  constexpr sim::Bytes kMiB{1 << 20};
  std::vector<sim::Bytes> asked;
  const auto serving = [&](sim::Bytes most) {
    asked.clear();
    return runtime::largest_that_serves(kMiB * 256, [&](sim::Bytes cache) {
      asked.push_back(cache);
      return cache <= most ? std::vector<sim::CacheShare>{{cache, 0}} : std::vector<sim::CacheShare>{};
    });
  };
  CHECK(serving(kMiB * 300).front().working_set == kMiB * 256);
  CHECK(serving(kMiB * 20).front().working_set == kMiB * 16);
  CHECK(asked == std::vector<sim::Bytes>{kMiB * 256, kMiB * 64, kMiB * 16});
  CHECK(serving({}).empty());
  CHECK(asked.back() == kMiB * 4);
  // Half of what is held again is rotated through.
  CHECK(runtime::held({{kMiB * 8, 0}, {kMiB * 16, 0.05}, {kMiB * 24, 0.3}}) == kMiB * 16);
  CHECK(runtime::held({}).value == 0);
}

TEST_CASE("Shares of a cache are measured over working sets from a quarter of it to twice its size") {
  const auto device = runtime::make_cpu_device(1);
  constexpr sim::Bytes kCache{8 << 20};
  const auto shares = runtime::measure_cache_shares(*device, kCache, {});
  CHECK(runtime::measure_cache_shares(*device, {}, {}).empty());
  if (shares.empty()) return;  // memory was as fast
  CHECK(shares.front().working_set.value == Approx(0.25 * kCache.value).epsilon(0.01));
  CHECK(shares.back().working_set.value == Approx(2.0 * kCache.value).epsilon(0.01));
  CHECK(shares.front().from_memory == 0);
}
