#include "sim/serving/block_pool.h"

#include <stdexcept>

namespace sim {

std::optional<BlockIndex> BlockPool::allocate() {
  BlockIndex block = 0;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else if (std::ssize(users_) < blocks_) {
    block = static_cast<BlockIndex>(users_.size());
    users_.push_back(0);
  } else if (!idle_.empty()) {
    block = idle_.front();
    idle_.pop_front();
    where_idle_.erase(block);
    forget(block);
  } else {
    return std::nullopt;
  }
  users_[static_cast<std::size_t>(block)] = 1;
  return block;
}

void BlockPool::release(BlockIndex block) {
  std::int32_t& users = users_[static_cast<std::size_t>(block)];
  if (users <= 0) throw std::logic_error("a block of the KV cache is released that nobody uses");
  if (--users > 0) return;
  if (content_of_.contains(block))
    where_idle_[block] = idle_.insert(idle_.end(), block);
  else
    free_.push_back(block);
}

std::optional<BlockIndex> BlockPool::share(std::uint64_t content) {
  const auto found = by_content_.find(content);
  if (found == by_content_.end()) return std::nullopt;
  const BlockIndex block = found->second;
  if (users_[static_cast<std::size_t>(block)]++ == 0) {
    idle_.erase(where_idle_.at(block));
    where_idle_.erase(block);
  }
  return block;
}

std::optional<BlockIndex> BlockPool::find(std::uint64_t content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? std::nullopt : std::optional(found->second);
}

void BlockPool::publish(BlockIndex block, std::uint64_t content) {
  if (content_of_.contains(block) || by_content_.contains(content)) return;
  by_content_.emplace(content, block);
  content_of_.emplace(block, content);
}

void BlockPool::forget(BlockIndex block) {
  const auto found = content_of_.find(block);
  if (found == content_of_.end()) return;
  by_content_.erase(found->second);
  content_of_.erase(found);
}

}  // namespace sim
