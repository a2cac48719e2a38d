// Collectives by NCCL for ranks that have a GPU each, in streams of their own beside the operations' stream.
// An exchange begins when the operations before it are done, and the operations behind it wait for it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/collectives.h"
#include "runtime/communicator.h"
#include "runtime/device_rows.h"
#include "runtime/nccl_library.h"

namespace runtime {

// Sums are formed in NCCL's order, and NCCL rounds those of 16-bit types. All members get the same bits.
class NcclCollectives final : public Collectives {
 public:
  // Makes NCCL's communicators: one for each of the groups, and one for each pair of ranks that messages go
  // between, in each direction. Every rank calls it, with the groups that it is in and its pairs (from, to).
  // The arguments must outlive it. Throws NoDevice where NCCL is missing, DeviceError with NCCL's reason.
  using Pair = std::pair<std::int32_t, std::int32_t>;
  NcclCollectives(Device& device, Communicator& communicator, std::span<const Members> groups,
                  std::span<const Pair> pairs);
  ~NcclCollectives() override;
  NcclCollectives(const NcclCollectives&) = delete;
  NcclCollectives& operator=(const NcclCollectives&) = delete;

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
  // A message is sent from a copy, so that the sender's operations go on. Messages between two ranks arrive
  // in the order of send(). If receive() asks for a later one, the earlier ones wait in memory of their own.
  void send(std::int32_t to, MessageTag tag, ConstBytes buffer) override;
  void receive(std::int32_t from, MessageTag tag, MutableBytes buffer) override;
  MutableBytes memory(std::size_t slot, std::size_t bytes) override;
  void copy(std::span<const MutableBytes> to, std::span<const ConstBytes> from) override;

  bool can_be_captured() const override { return true; }
  void finish() override;

 private:
  // Messages of one direction between two ranks.
  struct Line {
    NcclCommunicator nccl = nullptr;
    std::size_t aside = 0;
    // in_use: copies of messages on their way, or that came and wait. free: copies for the next messages.
    std::vector<MutableBytes> in_use, free;
    std::vector<std::pair<MessageTag, MutableBytes>> arrived;
  };

  NcclCommunicator join(const Members& members);
  NcclCommunicator nccl_of(const Members& members) const;
  Line& line(Pair pair);
  MutableBytes copy_for(Line& line, std::size_t bytes);
  // One group of NCCL's calls in the collectives' stream; `calls` is called now, and by replays.
  using Calls = std::function<int(const NcclLibrary&, NcclCommunicator, NcclStream)>;
  void carry_out(const char* what, const Members& members, std::vector<Calls> calls);
  void require(int result, const std::string& what) const;
  MutableBytes own_memory(std::size_t bytes);

  const NcclLibrary& nccl_;
  Device& device_;
  Communicator& communicator_;
  DeviceMemory memory_;
  std::size_t next_own_slot_ = 0;   // of an exchange
  std::size_t next_line_slot_ = 0;  // of messages
  std::map<std::vector<std::int32_t>, NcclCommunicator> groups_;
  std::map<Pair, Line> lines_;
};

}  // namespace runtime
