// The interface through which the executor runs a plan's collective operations. Buffers are in the host's
// memory (communicator.h), on GPUs that exchange them directly (nccl_collectives.h), or on GPUs that exchange
// them through the host (staged_collectives.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/transport.h"
#include "sim/dtype.h"

namespace runtime {

// The ranks that take part, in their order, and where this one stands among them.
struct Members {
  std::vector<std::int32_t> ranks;
  std::size_t self = 0;
  std::size_t size() const { return ranks.size(); }
};

// Every member makes the same calls in the same order. A call with several buffers is one exchange. Part i of
// n of a buffer is elements [i * ceil(count / n), (i + 1) * ceil(count / n)), cut off at the end. Calls throw
// RankLost where a member has ended, and std::logic_error for ranks that do not exist.
class Collectives {
 public:
  virtual ~Collectives() = default;

  // buffer = sum over the members.
  virtual void all_reduce(const Members& members, std::span<const MutableBytes> buffers,
                          sim::DType dtype) = 0;
  // The same in two calls: the first may send this rank's terms, the second forms the sum. The buffers must
  // not change in between. Members may begin sums of several tags in any order, but end them in the same one.
  virtual void begin_all_reduce(const Members& members, MessageTag tag,
                                std::span<const MutableBytes> buffers) = 0;
  virtual void end_all_reduce(const Members& members, MessageTag tag, std::span<const MutableBytes> buffers,
                              sim::DType dtype) = 0;
  // shard = this rank's part of the sum, or with `adds`, shard += that part. A shard may lie in its buffer,
  // at the part's place. It may be longer than the part.
  virtual void reduce_scatter(const Members& members, std::span<const MutableBytes> shards,
                              std::span<const ConstBytes> buffers, sim::DType dtype, bool adds) = 0;
  // buffer = the members' parts, one after the other. Shards as above.
  virtual void all_gather(const Members& members, std::span<const MutableBytes> buffers,
                          std::span<const ConstBytes> shards, sim::DType dtype) = 0;
  // Part j of `inp` goes to member j; part i of `out` came from member i. Parts are equal.
  virtual void all_to_all(const Members& members, MutableBytes out, ConstBytes inp) = 0;
  // An exchange of parts of any length: inp[i] goes to member i, and out[i] comes from it, each in segments.
  // This rank's own part is copied.
  using ConstParts = std::vector<std::vector<ConstBytes>>;
  using MutableParts = std::vector<std::vector<MutableBytes>>;
  virtual void exchange_parts(const Members& members, const MutableParts& out, const ConstParts& inp) = 0;
  // out = the sum over the members of their parts for this one: inp[i] is for member i, as long as its `out`.
  virtual void sum_parts(const Members& members, std::span<const MutableBytes> out, const ConstParts& inp,
                         sim::DType dtype) = 0;
  // A ring: `inp` goes to the next member, and `out` comes from the one before.
  virtual void exchange(const Members& members, std::span<const MutableBytes> out,
                        std::span<const ConstBytes> inp) = 0;

  // Messages between two ranks, outside any exchange. send() does not wait for the receiver.
  virtual void send(std::int32_t to, MessageTag tag, ConstBytes buffer) = 0;
  virtual void receive(std::int32_t from, MessageTag tag, MutableBytes buffer) = 0;

  // `bytes` bytes of extra memory, on the same side as the buffers. Calls with the same slot share memory.
  virtual MutableBytes memory(std::size_t slot, std::size_t bytes) = 0;
  // Copies the same number of bytes between segments of other lengths.
  virtual void copy(std::span<const MutableBytes> to, std::span<const ConstBytes> from) = 0;

  // Whether a device may note these calls and replay them (Device::begin_capture): all but messages.
  virtual bool can_be_captured() const { return false; }
  // Returns when all exchanges so far are done. Throws where a member will never do its part.
  virtual void finish() {}
};

}  // namespace runtime
