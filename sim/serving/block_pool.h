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
  // Its own memory grows with the blocks that are used at once, not with those that there are.
  explicit BlockPool(std::int64_t blocks) : blocks_(blocks) {}

  std::int64_t blocks() const { return blocks_; }
  std::int64_t free_blocks() const { return blocks_ - std::ssize(is_used_) + std::ssize(free_); }

  // What was used before goes first; empty where all are in use.
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

  void release(BlockIndex block) {
    if (!is_used_.at(static_cast<std::size_t>(block)))
      throw std::logic_error("a block of the KV cache is released that nobody uses");
    is_used_[static_cast<std::size_t>(block)] = false;
    free_.push_back(block);
  }

 private:
  std::int64_t blocks_ = 0;
  std::vector<bool> is_used_;     // of the first blocks; those after them were never used
  std::vector<BlockIndex> free_;  // that were used
};

}  // namespace sim
