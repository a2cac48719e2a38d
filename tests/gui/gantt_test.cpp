// Rows of bars: what is drawn of tens of thousands of slots.
#include "app/gui/widgets/gantt.h"

#include <cmath>
#include <random>

#include "sim/units.h"
#include "tests/support/catch.h"

using namespace app::gui;

namespace {

struct Item {
  sim::Seconds start, end;
  std::size_t kind;
};

std::vector<Item> random_items(std::mt19937& random, int n) {
  std::vector<Item> items;
  double t = 0;
  for (int i = 0; i < n; ++i) {
    t += std::exponential_distribution<double>(2)(random);
    const double end = t + std::exponential_distribution<double>(1)(random);
    items.push_back({{t}, {end}, random() % 4});
    t = end;
  }
  return items;
}

}  // namespace

TEST_CASE("a row costs no more bars than it has pixels, and its bars cover the time of its items") {
  std::mt19937 random(7);
  constexpr float kLeast = 2, kWidth = 800;
  for (const int n : {1, 30, 1000, 50000}) {
    const std::vector<Item> items = random_items(random, n);
    const double whole = items.back().end.value;
    std::vector<Bar> bars;
    merge_bars(
        std::span<const Item>(items), 0, whole, kLeast,
        [&](double t) { return static_cast<float>(t / whole) * kWidth; },
        [](const Item& item, float width, BarKinds& kinds) { kinds[item.kind] += width; }, bars);
    CHECK(bars.size() <= static_cast<std::size_t>(2 * kWidth / kLeast) + 1);
    double drawn = 0, items_time = 0, of_kinds = 0;
    for (const Bar& bar : bars) {
      drawn += (bar.end - bar.begin) * bar.filled;
      CHECK(bar.filled <= 1);
      if (bar.index != kMerged) continue;
      float shares = 0;
      for (const float share : bar.kinds) shares += share;
      CHECK(shares == Approx(1).epsilon(1e-3));
      of_kinds += shares;
    }
    for (const Item& item : items) items_time += item.end.value - item.start.value;
    INFO(n << " items in " << bars.size() << " bars, " << of_kinds << " merged");
    // A bar that was cut off where the next pixel begins hides at most that pixel's part.
    CHECK(drawn / kWidth == Approx(items_time / whole).epsilon(0.03));
  }
}

TEST_CASE("only what lies in the time in view is drawn, alone where it is wide enough") {
  std::mt19937 random(8);
  const std::vector<Item> items = random_items(random, 10000);
  const Item& middle = items[5000];
  std::vector<Bar> bars;
  const double begin = middle.start.value, end = middle.end.value;
  merge_bars(
      std::span<const Item>(items), begin, end, 2.0f,
      [&](double t) { return static_cast<float>((t - begin) / (end - begin)) * 800; },
      [](const Item&, float width, BarKinds& kinds) { kinds[0] += width; }, bars);
  REQUIRE_FALSE(bars.empty());
  CHECK(bars.size() <= 3);  // with its neighbours, where they touch the edge
  CHECK(std::any_of(bars.begin(), bars.end(), [](const Bar& bar) { return bar.index == 5000; }));
}
