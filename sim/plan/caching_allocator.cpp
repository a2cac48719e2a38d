#include "sim/plan/caching_allocator.h"

#include <algorithm>
#include <functional>

namespace sim {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kRounding = 512;                  // kMinBlockSize
constexpr std::int64_t kLargestSmall = kMiB;             // kSmallSize
constexpr std::int64_t kSmallSegment = 2 * kMiB;         // kSmallBuffer
constexpr std::int64_t kMediumSegment = 20 * kMiB;       // kLargeBuffer
constexpr std::int64_t kSmallestOwnSegment = 10 * kMiB;  // kMinLargeAlloc
constexpr std::int64_t kSegmentRounding = 2 * kMiB;      // kRoundLarge

std::int64_t rounded_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

std::vector<CachingAllocator::FreeBlocks::OfSize>::iterator CachingAllocator::FreeBlocks::at_least(
    std::int64_t bytes) {
  return std::lower_bound(sizes_.begin(), sizes_.end(), bytes,
                          [](const OfSize& s, std::int64_t value) { return s.bytes < value; });
}

void CachingAllocator::FreeBlocks::insert(const Node& node, Block block) {
  auto size = at_least(node.bytes);
  if (size == sizes_.end() || size->bytes != node.bytes) size = sizes_.insert(size, {node.bytes, {}});
  const Place place{node.segment, node.offset, block};
  size->places.insert(std::lower_bound(size->places.begin(), size->places.end(), place, std::greater<>()),
                      place);
}

void CachingAllocator::FreeBlocks::erase(const Node& node) {
  std::vector<Place>& places = at_least(node.bytes)->places;
  places.erase(std::lower_bound(places.begin(), places.end(), Place{node.segment, node.offset, kNone},
                                std::greater<>()));
}

CachingAllocator::Block CachingAllocator::FreeBlocks::take(std::int64_t bytes) {
  for (auto size = at_least(bytes); size != sizes_.end(); ++size) {
    if (size->places.empty()) continue;
    const Block block = size->places.back().block;
    size->places.pop_back();
    return block;
  }
  return kNone;
}

std::vector<CachingAllocator::Block> CachingAllocator::FreeBlocks::in_order() const {
  std::vector<Block> blocks;
  for (const OfSize& size : sizes_)
    for (auto place = size.places.rbegin(); place != size.places.rend(); ++place)
      blocks.push_back(place->block);
  return blocks;
}

CachingAllocator::Block CachingAllocator::allocate(Bytes requested) {
  const std::int64_t bytes = std::max(kRounding, rounded_up(requested.value, kRounding));
  const Pool pool = bytes <= kLargestSmall ? kSmall : kLarge;
  Block block = free_[pool].take(bytes);
  if (block == kNone) block = expandable_ ? grow_segment(bytes, pool) : new_segment(bytes, pool);
  at(block).free = false;
  const std::int64_t rest = at(block).bytes - bytes;
  const bool splits = pool == kSmall || expandable_ ? rest >= kRounding : rest > kLargestSmall;
  if (splits) split(block, bytes);
  allocated_ += Bytes{at(block).bytes};
  return block;
}

void CachingAllocator::release(Block block) {
  allocated_ = allocated_ - Bytes{at(block).bytes};
  if (const Block before = at(block).before; before != kNone && at(before).free) {
    erase_free(before);
    join_with_next(before);
    block = before;
  }
  if (const Block after = at(block).after; after != kNone && at(after).free) {
    erase_free(after);
    join_with_next(block);
  }
  insert_free(block);
}

void CachingAllocator::return_free_segments() {
  for (FreeBlocks& blocks : free_)
    for (const Block block : blocks.in_order()) {
      const Node& node = at(block);
      // The end of a segment that grows can be returned.
      const bool whole = node.before == kNone && node.after == kNone;
      const bool end = expandable_ && node.after == kNone;
      if (!whole && !end) continue;
      reserved_ = reserved_ - Bytes{node.bytes};
      if (expandable_) end_[node.pool] = node.before;
      if (node.before != kNone) at(node.before).after = kNone;
      unused_.push_back(block);
      blocks.erase(node);
    }
}

CachingAllocator::Block CachingAllocator::new_segment(std::int64_t bytes, Pool pool) {
  const std::int64_t size = pool == kSmall                ? kSmallSegment
                            : bytes < kSmallestOwnSegment ? kMediumSegment
                                                          : rounded_up(bytes, kSegmentRounding);
  if (reserved_ + Bytes{size} > limit_) return_free_segments();
  reserved_ += Bytes{size};
  most_reserved_ = std::max(most_reserved_, reserved_);
  return add({.bytes = size, .segment = segments_++, .pool = pool});
}

// Free bytes at the segment's end count towards `bytes`.
CachingAllocator::Block CachingAllocator::grow_segment(std::int64_t bytes, Pool pool) {
  const std::int64_t page = pool == kSmall ? kSmallSegment : kMediumSegment;
  Block last = end_[pool];
  const bool extends = last != kNone && at(last).free;
  const std::int64_t more = rounded_up(bytes - (extends ? at(last).bytes : 0), page);
  reserved_ += Bytes{more};
  most_reserved_ = std::max(most_reserved_, reserved_);
  if (extends) {
    erase_free(last);
    at(last).bytes += more;
    return last;
  }
  const std::int64_t offset = last == kNone ? 0 : at(last).offset + at(last).bytes;
  const Block block = add({.offset = offset,
                           .bytes = more,
                           .segment = static_cast<std::int32_t>(pool),
                           .pool = pool,
                           .before = last});
  if (last != kNone) at(last).after = block;
  return end_[pool] = block;
}

void CachingAllocator::split(Block block, std::int64_t bytes) {
  Node rest = at(block);
  rest.offset += bytes;
  rest.bytes -= bytes;
  rest.before = block;
  const Block added = add(rest);
  if (rest.after != kNone)
    at(rest.after).before = added;
  else if (expandable_)
    end_[rest.pool] = added;
  at(block).bytes = bytes;
  at(block).after = added;
  insert_free(added);
}

void CachingAllocator::join_with_next(Block block) {
  const Block next = at(block).after;
  at(block).bytes += at(next).bytes;
  at(block).after = at(next).after;
  if (at(block).after != kNone)
    at(at(block).after).before = block;
  else if (expandable_)
    end_[at(block).pool] = block;
  unused_.push_back(next);
}

CachingAllocator::Block CachingAllocator::add(const Node& node) {
  if (unused_.empty()) {
    nodes_.push_back(node);
    return static_cast<Block>(nodes_.size()) - 1;
  }
  const Block block = unused_.back();
  unused_.pop_back();
  at(block) = node;
  return block;
}

void CachingAllocator::insert_free(Block block) {
  Node& node = at(block);
  node.free = true;
  free_[node.pool].insert(node, block);
}

void CachingAllocator::erase_free(Block block) {
  const Node& node = at(block);
  free_[node.pool].erase(node);
}

}  // namespace sim
