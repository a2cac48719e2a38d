// Collectives of ranks on GPUs by way of the host's memory: what ranks that share one GPU use, since NCCL
// takes one rank a GPU. Each call waits for the device.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "runtime/collectives.h"
#include "runtime/communicator.h"
#include "runtime/device_rows.h"

namespace runtime {

// Sums are the communicator's, in the order of members.
class StagedCollectives final : public Collectives {
 public:
  // The arguments outlive it.
  StagedCollectives(Device& device, Communicator& communicator);

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
  void send(std::int32_t to, MessageTag tag, ConstBytes buffer) override;
  void receive(std::int32_t from, MessageTag tag, MutableBytes buffer) override;
  MutableBytes memory(std::size_t slot, std::size_t bytes) override;
  void copy(std::span<const MutableBytes> to, std::span<const ConstBytes> from) override;

 private:
  using Host = std::vector<std::byte>;
  // Segments of the device, one after the other.
  Host fetch(std::span<const ConstBytes> segments);
  void store(std::span<const MutableBytes> segments, ConstBytes host);

  Device& device_;
  Communicator& communicator_;
  DeviceMemory memory_;
};

}  // namespace runtime
