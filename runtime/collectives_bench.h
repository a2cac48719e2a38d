// Collectives of several ranks, timed alone: `ridgepoint bench --collectives`.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/communicator.h"
#include "sim/plan/operation.h"

namespace runtime {

// Bandwidths in bytes a second, as nccl-tests defines them (github.com/NVIDIA/nccl-tests,
// doc/PERFORMANCE.md): of the algorithm, size / time; of the bus, that times what each rank must send of the
// size: 2 (n - 1) / n for all-reduce, (n - 1) / n for reduce-scatter, all-gather and all-to-all, 1 for
// send/receive: exchange, where all send and receive at once, and send, where one of two does and the other
// answers, half the time of both. The size is that of the whole buffer.
struct CollectiveRow {
  sim::OpKind kind{};
  std::int64_t bytes = 0;
  double seconds = 0;  // median over repetitions of the slowest rank
  double algorithm_bandwidth = 0, bus_bandwidth = 0;
};

// Sizes four times the one before, from 1 KiB to `largest`. Every rank calls it; rank 0 gets the rows, and is
// told before each of them how many there are already.
std::vector<CollectiveRow> time_collectives(
    Communicator& communicator, std::int64_t largest, double seconds_each,
    const std::function<void(std::int64_t done, std::int64_t of)>& progress = nullptr);

}  // namespace runtime
