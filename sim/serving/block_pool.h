// The memory of a paged KV cache: blocks of a fixed number of tokens, counted by who uses them. Blocks of a
// prompt that others may share stay known after their last user, until memory is short.
#pragma once
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

namespace sim {

using BlockIndex = std::int32_t;

class BlockPool {
 public:
  // Its own memory grows with the blocks that are used at once, not with those that there are.
  explicit BlockPool(std::int64_t blocks) : blocks_(blocks) {}

  std::int64_t blocks() const { return blocks_; }
  // Used by nobody; those of them that hold a known prefix go last, the longest unused first.
  std::int64_t free_blocks() const {
    return blocks_ - std::ssize(users_) + std::ssize(free_) + std::ssize(idle_);
  }
  std::int64_t users(BlockIndex block) const {
    return block < std::ssize(users_) ? users_[static_cast<std::size_t>(block)] : 0;
  }

  // A block for one user; empty where all are in use.
  std::optional<BlockIndex> allocate();
  void release(BlockIndex block);

  // Blocks by what stands in them and before them (a hash chain). share() takes a known block for one more
  // user.
  std::optional<BlockIndex> share(std::uint64_t content);
  std::optional<BlockIndex> find(std::uint64_t content) const;  // and leaves it as it is
  void publish(BlockIndex block, std::uint64_t content);

 private:
  void forget(BlockIndex block);

  std::int64_t blocks_ = 0;
  std::vector<std::int32_t> users_;  // of the first blocks; those after them were never used
  std::vector<BlockIndex> free_;     // that were used
  std::list<BlockIndex> idle_;       // known and unused, the longest unused first
  std::unordered_map<BlockIndex, std::list<BlockIndex>::iterator> where_idle_;
  std::unordered_map<std::uint64_t, BlockIndex> by_content_;
  std::unordered_map<BlockIndex, std::uint64_t> content_of_;
};

}  // namespace sim
