#include "sim/plan/pack.h"

#include <algorithm>

namespace sim {
namespace {

using GroupTimes = std::vector<std::vector<std::int64_t>>;

bool recurs_within(const PackItem& recurring, const PackItem& once, const GroupTimes& group_times) {
  const auto& times = group_times[static_cast<std::size_t>(recurring.recurring)];
  const auto next = std::lower_bound(times.begin(), times.end(), once.first - recurring.last);
  return next != times.end() && *next + recurring.first <= once.last;
}

bool live_together(const PackItem& a, const PackItem& b, const GroupTimes& group_times) {
  if (a.recurring >= 0 && b.recurring < 0) return recurs_within(a, b, group_times);
  if (b.recurring >= 0 && a.recurring < 0) return recurs_within(b, a, group_times);
  return a.recurring == b.recurring && a.first <= b.last && b.first <= a.last;
}

}  // namespace

Bytes pack(std::vector<PackItem>& items, const GroupTimes& group_times) {
  std::vector<PackItem*> order;
  Bytes bottom;
  for (PackItem& i : items) {
    if (i.always) {
      i.offset = bottom;
      bottom += i.bytes;
    } else {
      order.push_back(&i);
    }
  }
  std::ranges::stable_sort(order, [](const PackItem* a, const PackItem* b) {
    return a->bytes != b->bytes ? a->bytes > b->bytes : a->last - a->first > b->last - b->first;
  });
  Bytes top = bottom;
  std::vector<const PackItem*> placed;  // by offset
  for (PackItem* item : order) {
    Bytes gap_begin = bottom;
    bool fits = false;
    Bytes best_gap;
    for (const PackItem* p : placed) {
      if (!live_together(*item, *p, group_times)) continue;
      const Bytes gap = p->offset - gap_begin;
      if (gap >= item->bytes && (!fits || gap < best_gap)) {
        fits = true;
        best_gap = gap;
        item->offset = gap_begin;
      }
      gap_begin = std::max(gap_begin, p->offset + p->bytes);
    }
    if (!fits) item->offset = gap_begin;
    top = std::max(top, item->offset + item->bytes);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), item,
                         [](const PackItem* a, const PackItem* b) { return a->offset < b->offset; }),
        item);
  }
  return top;
}

}  // namespace sim
