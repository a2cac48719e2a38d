// How ranks exchange buffers: what the executor calls for a plan's collective operations.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "sim/dtype.h"
#include "sim/plan/plan.h"

namespace runtime {

// Every rank of the group makes the same calls in the same order. Buffers are device memory of the caller;
// reductions are sums in the element type, in the order of ranks.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual std::int32_t rank() const = 0;
  virtual std::int32_t size() const = 0;

  // buffer = sum over the group.
  virtual void all_reduce(const sim::Group& group, std::span<std::byte> buffer, sim::DType dtype) = 0;
  // shard (1/size of buffer) = this rank's part of the sum.
  virtual void reduce_scatter(const sim::Group& group, std::span<std::byte> shard,
                              std::span<const std::byte> buffer, sim::DType dtype) = 0;
  // buffer = the group's shards, in the order of ranks.
  virtual void all_gather(const sim::Group& group, std::span<std::byte> buffer,
                          std::span<const std::byte> shard) = 0;
  // Part j of `inp` goes to rank j of the group; part i of `out` came from rank i.
  virtual void all_to_all(const sim::Group& group, std::span<std::byte> out,
                          std::span<const std::byte> inp) = 0;
  // To and from the neighbour in the group: the next rank, the previous rank.
  virtual void send(const sim::Group& group, std::span<const std::byte> buffer) = 0;
  virtual void receive(const sim::Group& group, std::span<std::byte> buffer) = 0;
};

// One rank alone: every group has size 1, so reductions leave the data as it is and gathers copy. A send has
// no neighbour: std::logic_error, as for a larger group.
std::unique_ptr<Communicator> make_single_rank_communicator();

}  // namespace runtime
