// How ranks exchange buffers: what the executor calls for a plan's collective operations. Written once over
// messages, whatever carries them.
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

// Every member makes the same calls in the same order. Buffers are host memory of the caller; several are one
// message. Sums are in the order of members whatever their number and the size, so that all members have the
// same bits; of 16-bit types in fp32, rounded once. A buffer's part i of n is elements
// [i * ceil(count / n), (i + 1) * ceil(count / n)), less at the end. Throws RankLost where a member is no
// more, std::logic_error for ranks that are not there.
class Communicator {
 public:
  // One rank alone: groups have one member, gathers copy.
  Communicator() = default;
  explicit Communicator(Transport& transport) : transport_(&transport) {}

  std::int32_t rank() const { return transport_ ? transport_->rank() : 0; }
  std::int32_t size() const { return transport_ ? transport_->size() : 1; }
  // All ranks of the job.
  Members everyone() const {
    Members all{{}, static_cast<std::size_t>(rank())};
    for (std::int32_t r = 0; r < size(); ++r) all.ranks.push_back(r);
    return all;
  }

  // buffer = sum over the members.
  void all_reduce(const Members& members, std::span<const MutableBytes> buffers, sim::DType dtype);
  // The same in two parts: what this rank adds goes at once, the sum is formed later. Members may begin sums
  // of different tags in different orders; each ends those that it began.
  void begin_all_reduce(const Members& members, MessageTag tag, std::span<const MutableBytes> buffers);
  void end_all_reduce(const Members& members, MessageTag tag, std::span<const MutableBytes> buffers,
                      sim::DType dtype);
  // shard = this rank's part of the sum, added to what it holds where `adds`. A shard may lie in its buffer,
  // at its part. The shard may be longer than the part.
  void reduce_scatter(const Members& members, std::span<const MutableBytes> shards,
                      std::span<const ConstBytes> buffers, sim::DType dtype, bool adds);
  // buffer = the members' parts, one after the other. Shards as above.
  void all_gather(const Members& members, std::span<const MutableBytes> buffers,
                  std::span<const ConstBytes> shards, sim::DType dtype);
  // Part j of `inp` goes to member j; part i of `out` came from member i. Parts are equal.
  void all_to_all(const Members& members, MutableBytes out, ConstBytes inp);
  // To each member and from each, of any length: parts[i] is what goes to member i, or comes from it, in
  // segments. What is this rank's own is copied.
  using ConstParts = std::vector<std::vector<ConstBytes>>;
  using MutableParts = std::vector<std::vector<MutableBytes>>;
  void exchange_parts(const Members& members, const MutableParts& out, const ConstParts& inp);
  // out = the sum of what each member has for this one, all of its length.
  void sum_parts(const Members& members, std::span<const MutableBytes> out, const ConstParts& inp,
                 sim::DType dtype);
  // To the next member, from the one before, in a ring.
  void exchange(const Members& members, std::span<const MutableBytes> out, std::span<const ConstBytes> inp);

  // Messages of their own, below kFirstFreeTag; send() does not wait for the receiver.
  static constexpr MessageTag kFirstFreeTag = MessageTag{1} << 62;
  void send(std::int32_t to, MessageTag tag, ConstBytes buffer);
  void receive(std::int32_t from, MessageTag tag, MutableBytes buffer);

  // Bytes of any length from each rank of the job to rank 0: by rank there, nothing elsewhere.
  std::vector<std::vector<std::byte>> gather_to_first(ConstBytes own);
  void barrier();

 private:
  Transport& transport(const Members& members) const;

  Transport* transport_ = nullptr;
  // For reductions: what one member sent; several buffers as one; sums.
  std::vector<std::byte> arriving_, packed_, summed_;
};

}  // namespace runtime
