// What the executor asks of ranks' exchanges for a plan's collective operations, wherever buffers are: in the
// host's memory (communicator.h), on GPUs that hand them over themselves (nccl_collectives.h), on GPUs by way
// of the host (staged_collectives.h).
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

// Every member makes the same calls in the same order; several buffers are one exchange. A buffer's part i of
// n is elements [i * ceil(count / n), (i + 1) * ceil(count / n)), less at the end. Throws RankLost where a
// member is no more, std::logic_error for ranks that are not there.
class Collectives {
 public:
  virtual ~Collectives() = default;

  // buffer = sum over the members.
  virtual void all_reduce(const Members& members, std::span<const MutableBytes> buffers,
                          sim::DType dtype) = 0;
  // The same in two parts: what this rank adds may go at once, the sum is formed later; the buffers stay as
  // they are between. Members may begin sums of different tags in different orders; they end them in one.
  virtual void begin_all_reduce(const Members& members, MessageTag tag,
                                std::span<const MutableBytes> buffers) = 0;
  virtual void end_all_reduce(const Members& members, MessageTag tag, std::span<const MutableBytes> buffers,
                              sim::DType dtype) = 0;
  // shard = this rank's part of the sum, added to what it holds where `adds`. A shard may lie in its buffer,
  // at its part. The shard may be longer than the part.
  virtual void reduce_scatter(const Members& members, std::span<const MutableBytes> shards,
                              std::span<const ConstBytes> buffers, sim::DType dtype, bool adds) = 0;
  // buffer = the members' parts, one after the other. Shards as above.
  virtual void all_gather(const Members& members, std::span<const MutableBytes> buffers,
                          std::span<const ConstBytes> shards, sim::DType dtype) = 0;
  // Part j of `inp` goes to member j; part i of `out` came from member i. Parts are equal.
  virtual void all_to_all(const Members& members, MutableBytes out, ConstBytes inp) = 0;
  // To each member and from each, of any length: parts[i] is what goes to member i, or comes from it, in
  // segments. What is this rank's own is copied.
  using ConstParts = std::vector<std::vector<ConstBytes>>;
  using MutableParts = std::vector<std::vector<MutableBytes>>;
  virtual void exchange_parts(const Members& members, const MutableParts& out, const ConstParts& inp) = 0;
  // out = the sum of what each member has for this one, all of its length.
  virtual void sum_parts(const Members& members, std::span<const MutableBytes> out, const ConstParts& inp,
                         sim::DType dtype) = 0;
  // To the next member, from the one before, in a ring.
  virtual void exchange(const Members& members, std::span<const MutableBytes> out,
                        std::span<const ConstBytes> inp) = 0;

  // Messages of their own; send() does not wait for the receiver.
  virtual void send(std::int32_t to, MessageTag tag, ConstBytes buffer) = 0;
  virtual void receive(std::int32_t from, MessageTag tag, MutableBytes buffer) = 0;

  // Memory beside the buffers, where they are: at least so many bytes, those of the slot's last call.
  virtual MutableBytes memory(std::size_t slot, std::size_t bytes) = 0;
  // As many bytes, in segments of other lengths.
  virtual void copy(std::span<const MutableBytes> to, std::span<const ConstBytes> from) = 0;

  // Whether a device may note these calls and replay them (Device::begin_capture): all but messages.
  virtual bool can_be_captured() const { return false; }
  // Ends when all that was asked for is done. Throws where a member will never do its part.
  virtual void finish() {}
};

}  // namespace runtime
