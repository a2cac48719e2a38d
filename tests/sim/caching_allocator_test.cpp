#include "sim/plan/caching_allocator.h"

#include <random>
#include <vector>

#include "tests/support/catch.h"

namespace {

using namespace sim;

constexpr std::int64_t kMiBytes = std::int64_t{1} << 20;

TEST_CASE("segments are 2 MiB for small requests, 20 MiB for medium ones, rounded to 2 MiB above") {
  const auto reserved_for = [](std::int64_t bytes) {
    CachingAllocator allocator;
    allocator.allocate({bytes});
    return allocator.reserved().value;
  };
  CHECK(reserved_for(1) == 2 * kMiBytes);
  CHECK(reserved_for(kMiBytes) == 2 * kMiBytes);
  CHECK(reserved_for(kMiBytes + 1) == 20 * kMiBytes);
  CHECK(reserved_for(10 * kMiBytes) == 10 * kMiBytes);
  CHECK(reserved_for(11 * kMiBytes) == 12 * kMiBytes);
}

TEST_CASE("requests are rounded up to 512 bytes, and a freed block serves the next request of its size") {
  CachingAllocator allocator;
  const auto first = allocator.allocate({100});
  CHECK(allocator.allocated().value == 512);
  allocator.release(first);
  CHECK(allocator.allocated().value == 0);
  allocator.allocate({512});
  CHECK(allocator.reserved().value == 2 * kMiBytes);
}

TEST_CASE("a larger tensor does not fit into what a smaller one left: both are reserved") {
  CachingAllocator allocator;
  allocator.release(allocator.allocate({100 * kMiBytes}));
  const auto larger = allocator.allocate({200 * kMiBytes});
  CHECK(allocator.reserved().value == 300 * kMiBytes);
  allocator.release(larger);
  allocator.return_free_segments();
  CHECK(allocator.reserved().value == 0);
}

TEST_CASE("neighbours that are free are joined: many small pieces of a block make room for the whole again") {
  CachingAllocator allocator;
  allocator.release(allocator.allocate({64 * kMiBytes}));
  std::vector<CachingAllocator::Block> pieces;
  for (int i = 0; i < 4; ++i) pieces.push_back(allocator.allocate({16 * kMiBytes}));
  CHECK(allocator.reserved().value == 64 * kMiBytes);
  for (const int i : {2, 0, 3, 1}) allocator.release(pieces[static_cast<std::size_t>(i)]);
  allocator.allocate({64 * kMiBytes});
  CHECK(allocator.reserved().value == 64 * kMiBytes);
}

TEST_CASE("where the device is full, free segments are given back before more is taken") {
  CachingAllocator allocator;
  allocator.set_limit({150 * kMiBytes});
  allocator.release(allocator.allocate({100 * kMiBytes}));
  allocator.allocate({120 * kMiBytes});
  CHECK(allocator.reserved().value == 120 * kMiBytes);
}

TEST_CASE(
    "whatever is asked for and freed, what is handed out is reserved, and expandable segments reserve no "
    "more") {
  std::mt19937 random(3);
  CachingAllocator plain, expandable(true);
  std::vector<std::pair<CachingAllocator::Block, CachingAllocator::Block>> live;
  for (int i = 0; i < 3000; ++i) {
    if (live.size() > 40 || (!live.empty() && random() % 3 == 0)) {
      const std::size_t gone = random() % live.size();
      plain.release(live[gone].first);
      expandable.release(live[gone].second);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(gone));
    } else {
      const Bytes bytes{static_cast<std::int64_t>(1 + random() % (1u << (8 + random() % 20)))};
      live.emplace_back(plain.allocate(bytes), expandable.allocate(bytes));
    }
    REQUIRE(plain.allocated() <= plain.reserved());
    REQUIRE(expandable.allocated() <= expandable.reserved());
  }
  for (const auto& [a, b] : live) {
    plain.release(a);
    expandable.release(b);
  }
  CHECK(plain.allocated().value == 0);
  CHECK(expandable.allocated().value == 0);
  plain.return_free_segments();
  expandable.return_free_segments();
  CHECK(plain.reserved().value == 0);
  CHECK(expandable.reserved().value == 0);
}

}  // namespace
