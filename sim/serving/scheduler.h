// Continuous batching: which sequences the next step decodes, and which parts of prompts it reads. It
// knows requests, tokens and blocks of the KV cache, and nothing of time: a simulation prices its steps, a
// runtime executes them.
#pragma once
#include <cstdint>
#include <deque>
#include <vector>

#include "sim/scenario/serving_implementation.h"
#include "sim/serving/block_pool.h"

namespace sim {

struct SchedulerLimits {
  Batching batching = Batching::mixed;  // static_batch: no request joins before all have ended
  bool chunks_prompts = false;          // a prompt may be read over several steps
  bool reserves_output = false;         // begin only when all blocks that will ever be needed are free
  std::int64_t max_sequences = 256;     // in the batch
  std::int64_t max_tokens = 8192;       // of a step
  std::int64_t block_tokens = 16;       // of a block of the KV cache
  std::int64_t blocks = 0;
};

struct ServedRequest {
  std::int64_t prompt = 0, output = 1;  // tokens; output of at least one
};

using RequestIndex = std::int32_t;  // in the order of submit()

class Scheduler {
 public:
  // Throws std::invalid_argument where a limit is not above 0, or max_tokens is below max_sequences.
  explicit Scheduler(const SchedulerLimits& limits);

  // Throws std::invalid_argument where prompt or output is below 1, or the request could never run: it needs
  // more blocks than there are, or its prompt may not be cut and is longer than a step.
  RequestIndex submit(const ServedRequest& request);

  struct PromptPart {
    RequestIndex request = 0;
    std::int64_t tokens = 0;   // read in this step
    std::int64_t context = 0;  // tokens in the cache after this step
    bool ends = false;         // the prompt is read to its end, and a token comes
  };
  struct Step {
    std::vector<RequestIndex> decodes;
    std::int64_t decode_context = 0;  // tokens: sum over `decodes`, the new ones included
    std::vector<PromptPart> prompts;
    bool preempted = false;  // a sequence had to make room and will be read again
    bool empty() const { return decodes.empty() && prompts.empty(); }
  };
  // The next step; empty when there is nothing to do. complete() must be called before the next call.
  const Step& next();
  // How many times in a row the step that next() gave can be done if nothing is submitted: no request ends
  // before the last time, none can join, and the blocks suffice. At least 1.
  std::int64_t steps_alike() const;
  // Records that the step was done `times` times, at most steps_alike(). Returns the requests that ended.
  const std::vector<RequestIndex>& complete(std::int64_t times = 1);

  bool idle() const { return waiting_.empty() && running_.empty(); }
  std::int64_t waiting() const { return static_cast<std::int64_t>(waiting_.size()); }
  std::int64_t running() const { return static_cast<std::int64_t>(running_.size()); }
  std::int64_t used_blocks() const { return pool_.blocks() - pool_.free_blocks(); }
  std::int64_t preemptions() const { return preemptions_; }
  const std::vector<BlockIndex>& blocks_of(RequestIndex request) const { return at(request).blocks; }

 private:
  struct Sequence {
    ServedRequest request;
    std::int64_t cached = 0;     // tokens whose keys and values are in the cache
    std::int64_t generated = 0;  // tokens generated so far, also before a preemption
    std::int64_t to_read = 0;    // tokens of the prompt; after a preemption, also those generated before
    std::vector<BlockIndex> blocks;
  };
  Sequence& at(RequestIndex r) { return sequences_[static_cast<std::size_t>(r)]; }
  const Sequence& at(RequestIndex r) const { return sequences_[static_cast<std::size_t>(r)]; }
  std::int64_t blocks_for(std::int64_t tokens) const;
  bool reading(const Sequence& s) const { return s.cached < s.to_read; }
  bool grow(RequestIndex request, std::int64_t tokens);
  void drop_blocks(Sequence& s);
  void preempt_last();
  bool admit(std::int64_t& budget);
  void read_prompts(std::int64_t& budget);
  void decode_all(std::int64_t& budget);

  SchedulerLimits limits_;
  BlockPool pool_;
  std::vector<Sequence> sequences_;
  std::deque<RequestIndex> waiting_;
  std::vector<RequestIndex> running_;  // in the order in which they began
  Step step_;
  std::vector<RequestIndex> ended_;
  std::int64_t preemptions_ = 0;
};

}  // namespace sim
