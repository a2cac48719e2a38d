// Which part of a parameter a rank holds. Expert parallelism gives it whole experts. Tensor parallelism gives
// it rows of a matrix that is divided by outputs, and columns of one
// that is divided by inputs (Shoeybi et al. 2019, arXiv 1909.08053, section 3). Shapes are those of
// sim/plan/README.md. Moments and master copies of a parameter's shape are divided as the parameter is.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "sim/scenario/scenario.h"

namespace runtime {

struct TensorPart {
  std::int64_t rows = 0, columns = 0;  // of the whole; by columns: rows of the part
  std::int64_t first_row = 0;          // by columns
  bool by_columns = false;
  struct Run {
    std::int64_t begin = 0, count = 0;  // rows or columns of the whole, one behind the other in the part
  };
  std::vector<Run> runs;
  std::int64_t length = 0;  // rows or columns of the part; beyond the runs it is padding

  std::int64_t elements() const { return length * (by_columns ? rows : columns); }
  void take(std::span<const float> whole, std::span<float> part, float padding = 0) const;
  void take(std::span<const std::uint8_t> whole, std::span<std::uint8_t> part) const;
  void put(std::span<const float> part, std::span<float> whole) const;
  void put(std::span<const double> part, std::span<double> whole) const;
  // The same part of a matrix that has one number for each `group` columns of a row; empty where the part
  // cuts groups.
  std::optional<TensorPart> of_groups(std::int64_t group) const;
};

// Empty where every rank holds the whole, without padding. `parameter` is its name in the plan.
std::optional<TensorPart> part_of_parameter(const sim::Scenario& scenario, std::string_view parameter,
                                            std::int32_t rank);

}  // namespace runtime
