// How ranks exchange buffers in the host's memory: for a plan's collective operations, and for what runs
// tell each other besides. All of it is made of a Transport's messages, whatever carries them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "runtime/collectives.h"
#include "runtime/transport.h"
#include "sim/dtype.h"

namespace runtime {

// Sums are formed in the order of members, whatever their number and the size, so that all members get the
// same bits. Sums of 16-bit types are formed in fp32 and rounded once.
class Communicator final : public Collectives {
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

  void all_reduce(const Members& members, std::span<const MutableBytes> buffers, sim::DType dtype) override;
  void begin_all_reduce(const Members& members, MessageTag tag,
                        std::span<const MutableBytes> buffers) override;
  void end_all_reduce(const Members& members, MessageTag tag, std::span<const MutableBytes> buffers,
                      sim::DType dtype) override;
  void reduce_scatter(const Members& members, std::span<const MutableBytes> shards,
                      std::span<const ConstBytes> buffers, sim::DType dtype, bool adds) override;
  void all_gather(const Members& members, std::span<const MutableBytes> buffers,
                  std::span<const ConstBytes> shards, sim::DType dtype) override;
  void all_to_all(const Members& members, MutableBytes out, ConstBytes inp) override;
  void exchange_parts(const Members& members, const MutableParts& out, const ConstParts& inp) override;
  void sum_parts(const Members& members, std::span<const MutableBytes> out, const ConstParts& inp,
                 sim::DType dtype) override;
  void exchange(const Members& members, std::span<const MutableBytes> out,
                std::span<const ConstBytes> inp) override;

  // Messages of plans have tags below kFirstFreeTag. kAnnouncement is for ranks that send data by other ways.
  static constexpr MessageTag kFirstFreeTag = MessageTag{1} << 62;
  static constexpr MessageTag kAnnouncement = kFirstFreeTag + 16;
  void send(std::int32_t to, MessageTag tag, ConstBytes buffer) override;
  void receive(std::int32_t from, MessageTag tag, MutableBytes buffer) override;

  MutableBytes memory(std::size_t slot, std::size_t bytes) override;
  void copy(std::span<const MutableBytes> to, std::span<const ConstBytes> from) override;

  // Takes what has arrived, without waiting. Throws RankLost where another rank has ended.
  void check() const {
    if (transport_) transport_->check();
  }

  // Sends bytes of any length from each rank of the job to rank 0. Rank 0 gets them by rank, others nothing.
  std::vector<std::vector<std::byte>> gather_to_first(ConstBytes own);
  void barrier();
  // Returns rank 0's `own` on every rank.
  double of_first(double own);
  // Returns on every rank whether `own` is true on any. any_of() is for a process that may be alone (null).
  bool any(bool own);
  static bool any_of(Communicator* among, bool own) { return among ? among->any(own) : own; }

 private:
  Transport& transport(const Members& members) const;
  // Sends (receives) piece i to (from) each other member whose part has that many pieces.
  void send_piece(const Members& members, MessageTag tag, const ConstParts& parts, std::size_t i);
  void receive_piece(const Members& members, MessageTag tag, const MutableParts& parts, std::size_t i);
  // Sends pieces from number `begun` on: up to number i + 1, and a limited number more while a member's next
  // message has not come. Returns the number of the first piece that is not yet sent.
  std::size_t send_ahead(const Members& members, const ConstParts& parts, std::size_t begun, std::size_t i,
                         std::size_t pieces);
  // out = (or +=) the sum of this member's data and the data in the next message of each other member.
  void sum_of_members(const Members& members, MessageTag tag, std::span<const MutableBytes> out,
                      const std::vector<ConstBytes>& own, sim::DType dtype, bool adds);
  // out = (or +=) the sum of this member's piece and the pieces that arrive from the others.
  void sum_piece(const Members& members, std::span<const MutableBytes> out,
                 const std::vector<ConstBytes>& own, sim::DType dtype, bool adds);
  // Sends parts to the other members while receiving theirs.
  void swap_pieces(const Members& members, const MutableParts& received, const ConstParts& sent);
  // out = (or +=) the sum of this member's part and those of the others, who each send as many bytes.
  void sum_pieces(const Members& members, std::span<const MutableBytes> out,
                  const std::vector<ConstBytes>& own, const ConstParts& sent, sim::DType dtype, bool adds);

  Transport* transport_ = nullptr;
  std::map<std::size_t, std::vector<std::byte>> memory_;  // by slot
};

}  // namespace runtime
