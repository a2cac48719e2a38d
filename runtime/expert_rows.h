// Where the rows of experts lie on their way between ranks. The rows that a rank sends are ordered by expert.
// Those that it receives are ordered by its own experts, then by the rank that they came from. Their numbers
// follow from the tokens' choices or the experts' capacity; ranks exchange them before the rows.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/device.h"
#include "sim/plan/plan.h"

namespace runtime {

class ExpertRows {
 public:
  // `rows`: how many rows this rank sends to each expert. `divided`: the ranks that experts are divided over.
  // `sharing`: the ranks that share each expert and gather its rows. Either is null where there are none.
  // Every member calls it.
  ExpertRows(std::vector<std::int64_t> rows, Communicator& communicator, const Members* divided,
             const Members* sharing);
  ExpertRows() = default;

  // Where the rows of each of this rank's experts begin, and their end.
  std::span<const std::int64_t> offsets() const { return offsets_; }

  // Rows received by the busiest rank over the mean, among the ranks over which experts are divided.
  double busiest_over_mean() const { return busiest_over_mean_; }

  // Rows at `inp`, `row_bytes` each, as an operation of Place to_experts, from_experts or among_experts moves
  // them. `room` is the rows that `out` has: throws DeviceError where more come.
  struct Rows {
    std::byte* out = nullptr;
    std::byte* inp = nullptr;
    std::int64_t row_bytes = 0, room = 0;
    sim::DType dtype{};
  };
  void move(const sim::Operation& operation, const Rows& rows, const Members& members,
            Collectives& collectives) const;

 private:
  using Segment = std::pair<std::int64_t, std::int64_t>;  // first row, rows
  using Layout = std::vector<std::vector<Segment>>;       // by rank

  // A layout ordered by expert, then by rank, from counts[rank][expert].
  static Layout interleaved(const std::vector<std::vector<std::int64_t>>& counts);

  std::int64_t routed_ = 0, received_ = 0, computed_ = 0;  // rows
  double busiest_over_mean_ = 1;
  Layout sent_;      // of this rank's rows, to each rank that has experts
  Layout arriving_;  // of received rows, from each
  Layout shared_;    // of computed rows, from each rank that shares the experts
  std::vector<std::int64_t> offsets_;
};

}  // namespace runtime
