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
  // After a preemption the prompt and all tokens generated so far are read again.
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

// The request that began last makes room, since those before it end sooner.
void Scheduler::preempt_last() {
  const RequestIndex victim = running_.back();
  running_.pop_back();
  Sequence& s = at(victim);
  ++preemptions_;
  step_.preempted = true;
  s.to_read = s.request.prompt + s.generated;
  s.cached = 0;
  waiting_.push_front(victim);
  drop_blocks(s);
}

// The first request in the queue begins, if there is room for it.
bool Scheduler::admit(std::int64_t& budget) {
  if (waiting_.empty() || running() >= limits_.max_sequences || budget <= 0) return false;
  const RequestIndex request = waiting_.front();
  Sequence& s = at(request);
  // A preempted request may be longer than a step, so it is read in parts whatever the rule.
  const bool cut = limits_.chunks_prompts || s.generated > 0;
  if (!cut && s.to_read > budget) return false;
  const std::int64_t kept = limits_.reserves_output ? s.request.prompt + s.request.output : s.to_read + 1;
  if (!grow(request, kept)) return false;
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
  return step_;
}

std::int64_t Scheduler::steps_alike() const {
  // A request that joined with a prompt decodes from the next step on, once the prompt is read.
  if (step_.decodes.size() != running_.size()) return 1;
  // The blocks that a preemption freed may let a request join the next step.
  if (!step_.prompts.empty() || step_.preempted) return 1;
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
    if (++s.generated >= s.request.output) ended_.push_back(part.request);
  }
  for (const RequestIndex request : ended_) drop_blocks(at(request));
  if (!ended_.empty())
    std::erase_if(running_, [&](RequestIndex r) { return at(r).generated >= at(r).request.output; });
  step_ = {};
  return ended_;
}

}  // namespace sim
