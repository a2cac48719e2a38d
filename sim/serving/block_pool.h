// The memory of a paged KV cache: blocks of a fixed number of tokens.
#pragma once
#include <cstdint>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <vector>

namespace sim {

using BlockIndex = std::int32_t;

class BlockPool {
 public:
  // The pool's own memory grows with the most blocks in use at once, not with `blocks`.
  explicit BlockPool(std::int64_t blocks) : blocks_(blocks) {}

  std::int64_t blocks() const { return blocks_; }
  std::int64_t free_blocks() const { return blocks_ - std::ssize(is_used_) + std::ssize(free_); }

  // Prefers a block that was used before; empty where all are in use.
  std::optional<BlockIndex> allocate() {
    if (free_blocks() == 0) return std::nullopt;
    if (free_.empty()) {
      free_.push_back(static_cast<BlockIndex>(is_used_.size()));
      is_used_.push_back(false);
    }
    const BlockIndex block = free_.back();
    free_.pop_back();
    is_used_[static_cast<std::size_t>(block)] = true;
    return block;
  }

  void release(BlockIndex block) {  // throws std::logic_error where the block is not in use
    if (!is_used_.at(static_cast<std::size_t>(block)))
      throw std::logic_error("a block of the KV cache is released that nobody uses");
    is_used_[static_cast<std::size_t>(block)] = false;
    free_.push_back(block);
  }

 private:
  std::int64_t blocks_ = 0;
  std::vector<bool> is_used_;     // by block; blocks beyond its end were never used
  std::vector<BlockIndex> free_;  // blocks that were used before and are free again
};

}  // namespace sim
