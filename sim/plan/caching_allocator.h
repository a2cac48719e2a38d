// The rules by which PyTorch's CUDA caching allocator takes memory from the device and hands it out: what a
// framework reserves is more than what is live, and how much more follows from the order of requests.
// Rules: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.1, default settings. Requests are rounded up to
// 512 bytes; those up to 1 MiB come from segments of 2 MiB, those under 10 MiB from segments of 20 MiB,
// larger ones from a segment of their own, rounded up to 2 MiB. The smallest free block that holds a request
// is taken, and split where what remains is worth it (512 bytes of a small segment, more than 1 MiB of a
// large one); neighbours that are free are joined. Where the device has no more, segments that are free as a
// whole are given back first.
#pragma once
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "sim/units.h"

namespace sim {

class CachingAllocator {
 public:
  using Block = std::int32_t;

  // `expandable`: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, a segment for each size class that grows
  // by pages of 2 MiB (small) or 20 MiB (large).
  explicit CachingAllocator(bool expandable = false) : expandable_(expandable) {}

  Block allocate(Bytes bytes);
  void release(Block block);
  // torch.cuda.empty_cache(): segments that are free as a whole go back to the device.
  void return_free_segments();
  // From then on free segments are returned before more than this is reserved.
  void set_limit(Bytes limit) { limit_ = limit; }

  Bytes allocated() const { return allocated_; }
  Bytes reserved() const { return reserved_; }
  Bytes most_reserved() const { return most_reserved_; }

 private:
  enum Pool : std::int32_t { kSmall, kLarge };
  static constexpr Block kNone = -1;

  // A part of a segment.
  struct Node {
    std::int64_t offset = 0, bytes = 0;
    std::int32_t segment = 0;
    Pool pool = kSmall;
    Block before = kNone, after = kNone;  // its neighbours
    bool free = false;
  };

  // Free blocks, the smallest first; equal ones in the order of segment and offset. Sizes are few and recur,
  // so a size keeps its entry when none of its blocks is left.
  class FreeBlocks {
   public:
    void insert(const Node& node, Block block);
    void erase(const Node& node);
    // Takes out the first block of at least so many bytes; kNone where there is none.
    Block take(std::int64_t bytes);
    std::vector<Block> in_order() const;

   private:
    struct Place {
      std::int32_t segment = 0;
      std::int64_t offset = 0;
      Block block = kNone;
      bool operator>(const Place& other) const {
        return std::tie(segment, offset) > std::tie(other.segment, other.offset);
      }
    };
    struct OfSize {
      std::int64_t bytes = 0;
      std::vector<Place> places;  // the first one last
    };
    std::vector<OfSize>::iterator at_least(std::int64_t bytes);
    std::vector<OfSize> sizes_;  // ascending
  };

  Block new_segment(std::int64_t bytes, Pool pool);
  Block grow_segment(std::int64_t bytes, Pool pool);
  void split(Block block, std::int64_t bytes);
  void join_with_next(Block block);
  Block add(const Node& node);
  void insert_free(Block block);
  void erase_free(Block block);
  Node& at(Block block) { return nodes_[static_cast<std::size_t>(block)]; }

  bool expandable_ = false;
  std::vector<Node> nodes_;
  std::vector<Block> unused_;  // of nodes_
  FreeBlocks free_[2];
  Block end_[2] = {kNone, kNone};  // expandable: the last block of each pool's segment
  std::int32_t segments_ = 0;
  Bytes allocated_, reserved_, most_reserved_, limit_{std::numeric_limits<std::int64_t>::max()};
};

}  // namespace sim
