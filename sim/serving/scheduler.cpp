#include "sim/serving/scheduler.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace sim {
namespace {

void require_positive(const char* what, std::int64_t value) {
  if (value < 1) throw std::invalid_argument(std::string(what) + " must be above 0");
}

// What stands in a block of a shared prefix, and in all blocks before it (splitmix64).
std::uint64_t content_of(std::int64_t prefix, std::int64_t block) {
  std::uint64_t x =
      static_cast<std::uint64_t>(prefix) * 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(block);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits)
    : limits_(limits), pool_(std::max<std::int64_t>(0, limits.blocks)) {
  require_positive("max_sequences", limits.max_sequences);
  require_positive("max_tokens", limits.max_tokens);
  require_positive("block_tokens", limits.block_tokens);
  require_positive("blocks", limits.blocks);
  if (limits.max_tokens < limits.max_sequences)
    throw std::invalid_argument("max_tokens must be max_sequences or more: a step decodes all that run");
}

std::int64_t Scheduler::blocks_for(std::int64_t tokens) const {
  return (tokens + limits_.block_tokens - 1) / limits_.block_tokens;
}

RequestIndex Scheduler::submit(const ServedRequest& request) {
  require_positive("prompt", request.prompt);
  require_positive("output", request.output);
  if (blocks_for(request.prompt + request.output) > pool_.blocks())
    throw std::invalid_argument("a request of " + std::to_string(request.prompt + request.output) +
                                " tokens is larger than the KV cache, " +
                                std::to_string(pool_.blocks() * limits_.block_tokens) + " tokens");
  const bool cut = limits_.chunks_prompts || limits_.batching == Batching::static_batch;
  // After a preemption all that came is read again.
  if (!cut && request.prompt + request.output > limits_.max_tokens && request.prompt > limits_.max_tokens)
    throw std::invalid_argument("a prompt of " + std::to_string(request.prompt) +
                                " tokens is longer than a step, " + std::to_string(limits_.max_tokens));
  Sequence s;
  s.request = request;
  s.to_read = request.prompt;
  sequences_.push_back(std::move(s));
  waiting_.push_back(static_cast<RequestIndex>(sequences_.size() - 1));
  return waiting_.back();
}

bool Scheduler::grow(RequestIndex request, std::int64_t tokens) {
  Sequence& s = at(request);
  const std::int64_t more = blocks_for(tokens) - static_cast<std::int64_t>(s.blocks.size());
  if (more > pool_.free_blocks()) return false;
  for (std::int64_t i = 0; i < more; ++i) s.blocks.push_back(*pool_.allocate());
  return true;
}

void Scheduler::drop_blocks(Sequence& s) {
  for (const BlockIndex block : s.blocks) pool_.release(block);
  s.blocks.clear();
}

// The one that began last makes room: those before it end sooner.
void Scheduler::preempt_last() {
  const RequestIndex victim = running_.back();
  running_.pop_back();
  Sequence& s = at(victim);
  ++preemptions_;
  step_.preempted = true;
  if (limits_.preemption == Preemption::swap && !reading(s)) {
    s.swapped_blocks = static_cast<std::int64_t>(s.blocks.size());
    step_.swapped_out += s.swapped_blocks;
    swapped_.push_front(victim);
  } else {
    s.to_read = s.request.prompt + s.generated;
    s.cached = 0;
    waiting_.push_front(victim);
  }
  drop_blocks(s);
}

// Known blocks need not be read again; a token at least is, for its logits.
Scheduler::KnownPrefix Scheduler::known_prefix(const Sequence& s) const {
  KnownPrefix known;
  if (!limits_.prefix_cache || s.request.prefix < 0) return known;
  const std::int64_t shared = std::min(s.request.prefix_tokens, s.to_read - 1) / limits_.block_tokens;
  for (; known.blocks < shared; ++known.blocks) {
    const auto block = pool_.find(content_of(s.request.prefix, known.blocks));
    if (!block) break;
    if (pool_.users(*block) == 0) ++known.idle;
  }
  return known;
}

void Scheduler::take_prefix(Sequence& s, std::int64_t blocks) {
  for (std::int64_t i = 0; i < blocks; ++i) s.blocks.push_back(*pool_.share(content_of(s.request.prefix, i)));
  s.cached = blocks * limits_.block_tokens;
  prefix_hits_ += s.cached;
}

void Scheduler::publish_prefix(const Sequence& s) {
  if (!limits_.prefix_cache || s.request.prefix < 0) return;
  const std::int64_t shared =
      std::min({s.request.prefix_tokens, s.request.prompt, s.cached}) / limits_.block_tokens;
  for (std::int64_t i = 0; i < shared; ++i)
    pool_.publish(s.blocks[static_cast<std::size_t>(i)], content_of(s.request.prefix, i));
}

bool Scheduler::bring_back() {
  while (!swapped_.empty() && running() < limits_.max_sequences) {
    const RequestIndex request = swapped_.front();
    Sequence& s = at(request);
    if (!grow(request, s.cached + 1)) return false;
    step_.swapped_in += s.swapped_blocks;
    swapped_.pop_front();
    running_.push_back(request);
  }
  return swapped_.empty();
}

// The first that waits begins, if there is room for it.
bool Scheduler::admit(std::int64_t& budget) {
  if (waiting_.empty() || running() >= limits_.max_sequences || budget <= 0) return false;
  const RequestIndex request = waiting_.front();
  Sequence& s = at(request);
  const KnownPrefix known = known_prefix(s);
  const std::int64_t unread = s.to_read - known.blocks * limits_.block_tokens;
  // What was preempted may be longer than a step: it is read in parts whatever the rule.
  const bool cut = limits_.chunks_prompts || s.generated > 0;
  if (!cut && unread > budget) return false;
  const std::int64_t kept = limits_.reserves_output ? s.request.prompt + s.request.output : s.to_read + 1;
  if (blocks_for(kept) - known.blocks > pool_.free_blocks() - known.idle) return false;
  take_prefix(s, known.blocks);
  grow(request, kept);
  waiting_.pop_front();
  running_.push_back(request);
  return true;
}

void Scheduler::read_prompts(std::int64_t& budget) {
  const auto read = [&](RequestIndex request) {
    const Sequence& s = at(request);
    const std::int64_t tokens = std::min(s.to_read - s.cached, budget);
    if (tokens <= 0) return;
    step_.prompts.push_back({request, tokens, s.cached + tokens, s.cached + tokens == s.to_read});
    budget -= tokens;
  };
  for (const RequestIndex request : running_)
    if (reading(at(request))) read(request);
  if (!bring_back()) return;  // those that had to make room come before new ones
  while (admit(budget)) read(running_.back());
}

void Scheduler::decode_all(std::int64_t& budget) {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    const RequestIndex request = running_[i];
    if (reading(at(request))) continue;
    while (!grow(request, at(request).cached + 1)) {
      const bool itself = running_.size() == i + 1;
      preempt_last();
      if (itself) return;
    }
    step_.decodes.push_back(request);
    step_.decode_context += at(request).cached + 1;
    --budget;
  }
}

const Scheduler::Step& Scheduler::next() {
  step_ = {};
  std::int64_t budget = limits_.max_tokens;
  switch (limits_.batching) {
    case Batching::mixed:
      decode_all(budget);
      read_prompts(budget);
      break;
    case Batching::prefill_first:
      read_prompts(budget);
      if (step_.prompts.empty()) decode_all(budget);
      break;
    case Batching::static_batch:
      budget = std::numeric_limits<std::int64_t>::max();
      if (running_.empty()) read_prompts(budget);
      if (step_.prompts.empty()) decode_all(budget);
      break;
  }
  if (step_.empty()) decode_all(budget);  // those that were just brought back
  return step_;
}

std::int64_t Scheduler::steps_alike() const {
  // Somebody who joined with a prompt that is read decodes from the next step on.
  if (step_.decodes.size() != running_.size()) return 1;
  // What was freed by a preemption may let somebody join the next step.
  if (!step_.prompts.empty() || step_.preempted || step_.swapped_in > 0) return 1;
  std::int64_t steps = std::numeric_limits<std::int64_t>::max();
  for (const RequestIndex r : step_.decodes) steps = std::min(steps, at(r).request.output - at(r).generated);
  if (step_.decodes.empty()) return 1;
  const auto suffice = [&](std::int64_t n) {
    std::int64_t more = 0;
    for (const RequestIndex r : step_.decodes)
      more += std::max<std::int64_t>(
          0, blocks_for(at(r).cached + n) - static_cast<std::int64_t>(at(r).blocks.size()));
    return more <= pool_.free_blocks();
  };
  while (!limits_.reserves_output && steps > 1 && !suffice(steps)) steps /= 2;
  return std::max<std::int64_t>(1, steps);
}

const std::vector<RequestIndex>& Scheduler::complete(std::int64_t times) {
  ended_.clear();
  for (const RequestIndex request : step_.decodes) {
    Sequence& s = at(request);
    if (times > 1) grow(request, s.cached + times);
    s.cached += times;
    s.generated += times;
    if (s.generated >= s.request.output) ended_.push_back(request);
  }
  for (const PromptPart& part : step_.prompts) {
    Sequence& s = at(part.request);
    s.cached = part.context;
    if (!part.ends) continue;
    publish_prefix(s);
    if (++s.generated >= s.request.output) ended_.push_back(part.request);
  }
  for (const RequestIndex request : ended_) drop_blocks(at(request));
  if (!ended_.empty())
    std::erase_if(running_, [&](RequestIndex r) { return at(r).generated >= at(r).request.output; });
  step_ = {};
  return ended_;
}

}  // namespace sim
