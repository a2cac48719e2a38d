// Rows of bars over time: what is narrower than a pixel is merged, so that a row costs no more than its
// pixels.
#pragma once
#include <imgui.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace app::gui {

inline constexpr std::size_t kBarKinds = 16;
using BarKinds = std::array<float, kBarKinds>;

struct Bar {
  float begin = 0, end = 0;  // pixels
  // What it is: the index of the one bar that it stands for, or kMerged where several share it.
  std::size_t index = 0;
  float filled = 1;  // share of its width that the merged bars cover
  BarKinds kinds{};  // of merged bars: what share of them is of which kind
};
inline constexpr std::size_t kMerged = static_cast<std::size_t>(-1);

// Bars of several rows, merged once for as many frames as neither their items nor their places change.
struct KeptBars {
  std::shared_ptr<const void> of;  // what holds the items: held here, so that nothing else has its address
  std::vector<double> drawn_as;    // all else that they follow from
  std::vector<std::vector<Bar>> rows;
};

// The bars that lie in [begin, end] of the times; `pixel_of` maps a time to pixels. The items are sorted by
// start and do not overlap; an item has start and end in seconds, and weigh(item, width, kinds) adds a width
// to the kinds that it is of. Bars narrower than `least` pixels are merged with their neighbours into bars of
// that width.
template <class Item, class PixelOf, class Weigh>
void merge_bars(std::span<const Item> items, double begin, double end, float least, PixelOf pixel_of,
                Weigh weigh, std::vector<Bar>& bars) {
  const auto first = std::partition_point(items.begin(), items.end(),
                                          [&](const Item& item) { return item.end.value < begin; });
  Bar merged;
  float covered = 0;
  bool open = false;
  const auto close = [&] {
    if (!open) return;
    open = false;
    for (float& share : merged.kinds) share /= std::max(covered, 1e-6f);
    merged.filled = std::min(1.0f, covered / std::max(merged.end - merged.begin, 1e-6f));
    bars.push_back(merged);
  };
  for (auto item = first; item != items.end() && item->start.value <= end; ++item) {
    const float from = pixel_of(item->start.value), to = pixel_of(item->end.value);
    if (to - from >= least) {
      close();
      bars.push_back({from, to, static_cast<std::size_t>(item - items.begin()), 1, {}});
      continue;
    }
    // Cells of the pixel grid: neighbouring rows then merge alike, and nothing flickers while one pans.
    for (float at = from; at < to;) {
      const float cell = std::floor(at / least) * least, until = std::min(to, cell + least);
      if (open && cell > merged.begin) close();
      if (!open) {
        open = true;
        covered = 0;
        merged = {cell, cell + least, kMerged, 0, {}};
      }
      weigh(*item, until - at, merged.kinds);
      covered += until - at;
      if (!(until > at)) break;
      at = until;
    }
  }
  close();
}

}  // namespace app::gui
